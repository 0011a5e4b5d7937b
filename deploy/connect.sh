#!/bin/sh
# Tell the command `flwr` where the server is.
set -eu
. "$(dirname "$0")/common.sh"

usage() {
    cat <<'TEXT'
usage: connect.sh CONNECTION HOST:PORT CA

Adds a connection to Flower's configuration (FLWR_HOME/config.toml, by default ~/.flwr/config.toml), so
that `flwr run . CONNECTION` and register.sh find the server.
  CONNECTION  a name of your choice, letters, digits and dashes
  CA          ca.pem, made by certificates.sh
TEXT
}

case "${1:-}" in -h | --help) usage; exit 0 ;; esac
[ $# -eq 3 ] || { usage >&2; exit 2; }
case "$1" in "" | *[!A-Za-z0-9-]*) die "not a name of letters, digits and dashes: $1" ;; esac
case "$2" in *[!A-Za-z0-9.:_-]* | *: | :*) die "not HOST:PORT: $2" ;; *:*) ;; *) die "not HOST:PORT: $2" ;; esac
readable "$3"
ca=$(cd "$(dirname "$3")" && pwd)/$(basename "$3")
home=${FLWR_HOME:-$HOME/.flwr}
mkdir -p "$home"
config=$home/config.toml
if [ -e "$config" ] && grep -qF "[superlink.$1]" "$config"; then
    die "$config has a connection $1 already; edit it there"
fi
printf '\n[superlink.%s]\naddress = "%s"\nroot-certificates = "%s"\n' "$1" "$2" "$ca" >>"$config"
echo "added connection $1 to $config"
