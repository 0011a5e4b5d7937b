#!/bin/sh
# Make a certificate authority and the server's certificate.
set -eu
. "$(dirname "$0")/common.sh"

usage() {
    cat <<'TEXT'
usage: certificates.sh DIRECTORY NAME...

Makes in DIRECTORY:
  ca.pem      the authority's certificate: copy it to every device and to who runs `flwr`
  ca.key      its key: needed for further certificates only, keep it offline
  server.pem  the server's certificate
  server.key  its key: stays on the server

NAME... are the host names and IP addresses under which devices reach the server.
localhost and 127.0.0.1 are always added: the SuperLink's own helpers use them.
MEL_DAYS (825) is how long the server's certificate is valid; the authority's ten times as long.
Existing files are never overwritten.
TEXT
}

case "${1:-}" in -h | --help) usage; exit 0 ;; esac
[ $# -ge 2 ] || { usage >&2; exit 2; }
need openssl
dir=$1
shift
mkdir -p "$dir"
fresh "$dir/ca.key" "$dir/ca.pem" "$dir/server.key" "$dir/server.pem"

san="DNS:localhost,IP:127.0.0.1"
for name in "$@"; do
    case "$name" in
    localhost | 127.0.0.1) ;;
    *[!A-Za-z0-9.:*-]*) die "not a host name or address: $name" ;;
    *:*) san="$san,IP:$name" ;;
    *[!0-9.]*) san="$san,DNS:$name" ;;
    *) san="$san,IP:$name" ;;
    esac
done

days=${MEL_DAYS:-825}
umask 077
work=$(mktemp -d "$dir/.new.XXXXXX")
trap 'rm -rf "$work"' EXIT
openssl ecparam -name secp384r1 -genkey -noout -out "$work/ca.key"
openssl req -x509 -new -sha384 -key "$work/ca.key" -days "$((days * 10))" -subj "/CN=flwr-mel authority" \
    -addext "basicConstraints=critical,CA:TRUE,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -out "$work/ca.pem"
openssl ecparam -name secp384r1 -genkey -noout -out "$work/server.key"
openssl req -new -sha384 -key "$work/server.key" -subj "/CN=flwr-mel server" -out "$work/server.csr"
cat >"$work/server.ext" <<TEXT
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth
subjectAltName=$san
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
TEXT
openssl x509 -req -sha384 -in "$work/server.csr" -CA "$work/ca.pem" -CAkey "$work/ca.key" -CAcreateserial \
    -days "$days" -extfile "$work/server.ext" -out "$work/server.pem" 2>/dev/null
openssl verify -CAfile "$work/ca.pem" "$work/server.pem" >/dev/null || die "the new certificate is not valid"
chmod 644 "$work/ca.pem" "$work/server.pem"
for file in ca.key ca.pem server.key server.pem; do
    mv -n "$work/$file" "$dir/$file"
done
echo "made $dir/ca.pem, ca.key, server.pem, server.key for $san"
