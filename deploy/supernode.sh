#!/bin/sh
# Start a device: TLS, its own key, and what it can do.
set -eu
. "$(dirname "$0")/common.sh"

usage() {
    cat <<'TEXT'
usage: supernode.sh HOST:PORT CA KEY NAME [KEY=VALUE...]

Starts Flower's SuperNode in the foreground.
  HOST:PORT     the server
  CA            ca.pem, made by certificates.sh
  KEY           the device's private key, made by node_key.sh and registered
  NAME          the device's name in records; keep it the same for ever
  KEY=VALUE...  more node configuration, e.g. data-dir=/srv/data mel-profile=/etc/flwr-mel/profile.toml
                mel-energy-limit-j=50.0; what is neither a number nor true or false is text

MEL_PORT (9094) is a port on this machine's loopback for the SuperNode's own helpers.
MEL_VENV is the virtual environment with flwr and flwr-mel, if it is not active.
Numerical libraries use one thread, so that what a device measures of itself holds when it is busy;
OMP_NUM_THREADS (1) says otherwise.
TEXT
}

case "${1:-}" in -h | --help) usage; exit 0 ;; esac
[ $# -ge 4 ] || { usage >&2; exit 2; }
need flower-supernode "pip install flwr-mel, and set MEL_VENV"
server=$1 ca=$2 key=$3 name=$4
shift 4
readable "$ca" "$key"
case "$(head -c 40 "$key")" in
*"PRIVATE KEY"*) ;;
*) die "$key is not a private key; give the file without .pub" ;;
esac
case "$name" in "" | *[!A-Za-z0-9._-]*) die "not a name of letters, digits, dots and dashes: $name" ;; esac
config="mel-learner=\"$name\""
for pair in "$@"; do
    case "$pair" in [A-Za-z]*=*) ;; *) die "not KEY=VALUE: $pair" ;; esac
    word=${pair%%=*} value=${pair#*=}
    case "$word$value" in *[\"\'\\]*) die "no quotes or backslashes, please: $pair" ;; esac
    # Flower reads TOML, in which text has quotes.
    if ! printf '%s\n' "$value" | grep -Eqx 'true|false|[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?'; then
        value="\"$value\""
    fi
    config="$config $word=$value"
done
for variable in OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS; do
    export "$variable=${OMP_NUM_THREADS:-1}"
done
exec flower-supernode \
    --superlink "$server" \
    --root-certificates "$ca" \
    --auth-supernode-private-key "$key" \
    --host 127.0.0.1 --port "${MEL_PORT:-9094}" \
    --node-config "$config"
