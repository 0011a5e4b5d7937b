# Read by the other scripts: errors, and where Flower's commands are.

die() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

need() {
    command -v "$1" >/dev/null 2>&1 || die "$1 is not installed${2:+ ($2)}"
}

readable() {
    for _path in "$@"; do
        [ -r "$_path" ] || die "cannot read $_path"
    done
}

fresh() {
    for _path in "$@"; do
        [ ! -e "$_path" ] || die "$_path exists already and is not overwritten; move it away first"
    done
}

# Flower starts its helpers by name, so its commands must be on the PATH, not only at a known place.
if [ -n "${MEL_VENV:-}" ]; then
    PATH="$MEL_VENV/bin:$PATH"
    export PATH
fi
export FLWR_TELEMETRY_ENABLED="${FLWR_TELEMETRY_ENABLED:-0}"
export FLWR_DISABLE_UPDATE_CHECK="${FLWR_DISABLE_UPDATE_CHECK:-1}"
