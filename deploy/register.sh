#!/bin/sh
# Let devices take part: register their public keys with the server.
set -eu
. "$(dirname "$0")/common.sh"

usage() {
    cat <<'TEXT'
usage: register.sh CONNECTION KEY.pub...

Registers the devices with these public keys (made by node_key.sh on the device).
CONNECTION is a name given to connect.sh. List devices with: flwr supernode list CONNECTION
TEXT
}

case "${1:-}" in -h | --help) usage; exit 0 ;; esac
[ $# -ge 2 ] || { usage >&2; exit 2; }
need flwr "pip install flwr-mel, and set MEL_VENV"
connection=$1
shift
readable "$@"
for key in "$@"; do
    case "$(head -c 20 "$key")" in
    ecdsa-sha2-nistp*) ;;
    *) die "$key is not a public ECDSA key; give the file that ends in .pub" ;;
    esac
done
for key in "$@"; do
    flwr supernode register "$key" "$connection" --name "$(basename "$key" .pub)"
done
