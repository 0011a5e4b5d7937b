#!/bin/sh
# Let devices, and nothing else, through to the server.
set -eu
. "$(dirname "$0")/common.sh"

usage() {
    cat <<'TEXT'
usage: proxy.sh CERTIFICATES STATE [HOST [PORT [SUPERLINK]]]

Starts nginx in the foreground. It passes on what devices need (/v1/fleet/) and refuses all else: nobody
outside registers devices, starts runs or reads their logs.
  CERTIFICATES  directory made by certificates.sh
  STATE         directory for nginx's own files; made if it is not there
  HOST, PORT    where to listen (0.0.0.0 and 8000)
  SUPERLINK     where superlink.sh listens (127.0.0.1:8001)
TEXT
}

case "${1:-}" in -h | --help) usage; exit 0 ;; esac
[ $# -ge 2 ] && [ $# -le 5 ] || { usage >&2; exit 2; }
PATH="$PATH:/usr/sbin:/sbin"
need nginx "package nginx-light"
certificates=$(cd "$1" && pwd) || die "no such directory: $1"
readable "$certificates/ca.pem" "$certificates/server.pem" "$certificates/server.key"
host=${3:-0.0.0.0} port=${4:-8000} superlink=${5:-127.0.0.1:8001}
for word in "$host:$port" "$superlink" "$certificates"; do
    case "$word" in *[\;\{\}\"\'\ ]*) die "no spaces, quotes, braces or semicolons, please: $word" ;; esac
done
umask 077
mkdir -p "$2"
state=$(cd "$2" && pwd)
cat >"$state/nginx.conf" <<TEXT
worker_processes 1;
daemon off;
pid $state/nginx.pid;
error_log stderr warn;
events {}
http {
    access_log off;
    server_tokens off;
    client_body_temp_path $state/body;
    proxy_temp_path $state/proxy;
    fastcgi_temp_path $state/fastcgi;
    uwsgi_temp_path $state/uwsgi;
    scgi_temp_path $state/scgi;
    server {
        listen $host:$port ssl;
        ssl_certificate $certificates/server.pem;
        ssl_certificate_key $certificates/server.key;
        ssl_protocols TLSv1.2 TLSv1.3;
        # Models are large and are passed on as they come.
        client_max_body_size 0;
        location /v1/fleet/ {
            # With its path: what was checked is what is passed on.
            proxy_pass https://$superlink/v1/fleet/;
            proxy_ssl_trusted_certificate $certificates/ca.pem;
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host \$host;
            proxy_request_buffering off;
            proxy_buffering off;
            proxy_read_timeout 600s;
            proxy_send_timeout 600s;
        }
        location / {
            return 403;
        }
    }
}
TEXT
exec nginx -p "$state" -e stderr -c "$state/nginx.conf"
