#!/bin/sh
# Start the server: TLS, registered devices only, state that survives a restart.
set -eu
. "$(dirname "$0")/common.sh"

usage() {
    cat <<'TEXT'
usage: superlink.sh CERTIFICATES STATE [HOST [PORT]]

Starts Flower's SuperLink in the foreground, over TLS, for registered devices only.
  CERTIFICATES  directory made by certificates.sh
  STATE         directory for the database and for runs; made if it is not there
  HOST, PORT    where to listen (127.0.0.1 and 8001): this machine only. Devices come in through proxy.sh.
                Whoever reaches this port can register devices and start runs.

Server apps run in STATE, so relative paths of their configuration are below it.
MEL_VENV is the virtual environment with flwr and flwr-mel, if it is not active.
TEXT
}

case "${1:-}" in -h | --help) usage; exit 0 ;; esac
[ $# -ge 2 ] && [ $# -le 4 ] || { usage >&2; exit 2; }
need flower-superlink "pip install flwr-mel, and set MEL_VENV"
certificates=$(cd "$1" && pwd) || die "no such directory: $1"
readable "$certificates/ca.pem" "$certificates/server.pem" "$certificates/server.key"
umask 077
mkdir -p "$2"
state=$(cd "$2" && pwd)
cd "$state"

# Tells parallelized apps, wherever they cannot see this command line, that shards leave over TLS only.
export FLWR_MEL_TRANSPORT=tls
export FLWR_HOME="${FLWR_HOME:-$state/flwr}"
exec flower-superlink \
    --host "${3:-127.0.0.1}" --port "${4:-8001}" \
    --ssl-ca-certfile "$certificates/ca.pem" \
    --ssl-certfile "$certificates/server.pem" \
    --ssl-keyfile "$certificates/server.key" \
    --enable-supernode-auth \
    --database "$state/superlink.db" \
    --disable-runtime-dependency-installation
