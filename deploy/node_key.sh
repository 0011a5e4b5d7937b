#!/bin/sh
# Make the key pair by which the server knows a device.
set -eu
. "$(dirname "$0")/common.sh"

usage() {
    cat <<'TEXT'
usage: node_key.sh FILE [NAME]

Makes FILE (the private key, which never leaves the device) and FILE.pub (which the server's operator
registers with register.sh). NAME, the host's by default, is a comment in the public key.
Existing files are never overwritten: a new key is a new device to the server.
TEXT
}

case "${1:-}" in -h | --help) usage; exit 0 ;; esac
[ $# -ge 1 ] && [ $# -le 2 ] || { usage >&2; exit 2; }
need ssh-keygen "package openssh-client"
file=$1
fresh "$file" "$file.pub"
umask 077
mkdir -p "$(dirname "$file")"
ssh-keygen -q -t ecdsa -b 384 -N "" -C "${2:-$(uname -n)}" -f "$file"
chmod 644 "$file.pub"
echo "made $file and $file.pub; give $file.pub to the server's operator"
