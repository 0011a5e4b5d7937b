#!/bin/sh
# Three devices on this machine, from an empty directory to the first trained round, with Flower's own commands:
#
#     deploy/loopback.sh DIRECTORY [RUN-CONFIG]
#
# TLS, one registered key per device, and nginx in front of the server if it is installed. The commands are those
# of docs/DEPLOY.md, with free ports of 127.0.0.1 in place of two machines. Everything stops when the run is over;
# DIRECTORY keeps certificates, keys, logs and the run (records.jsonl, model.npz).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { echo "usage: $0 DIRECTORY [RUN-CONFIG]" >&2; exit 2; }
[ -z "$(ls -A "$1" 2>/dev/null)" ] || { echo "$0: DIRECTORY must be empty, got $1" >&2; exit 2; }
command -v flwr-mel >/dev/null || { echo "$0: flwr-mel is not on PATH; activate its environment first" >&2; exit 4; }
mkdir -p "$1"
dir=$(cd "$1" && pwd)
export FLWR_HOME="$dir/flwr" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1
export FLWR_SUPEREXEC_TASK_POLL_INTERVAL=0.25 PYTHONPYCACHEPREFIX="${PYTHONPYCACHEPREFIX:-$dir/pycache}"
mkdir "$dir/logs" "$FLWR_HOME"

# Free ports, below those that the system gives to outgoing connections: server, proxy, one per device.
set -- "${2:-}" $(python3 - <<'END'
import random, socket
sockets = []
while len(sockets) < 5:
    try:
        s = socket.socket(); s.bind(("127.0.0.1", random.SystemRandom().randrange(10000, 32000))); sockets.append(s)
    except OSError:
        s.close()
print(*(s.getsockname()[1] for s in sockets))
END
)
config=$1 superlink_port=$2 door=$3
shift 3

# Devices end first: they take their leave of the server.
servers= devices=
stop() { for pids in "$devices" "$servers"; do [ -z "$pids" ] || { kill $pids || true; wait $pids || true; }; done 2>/dev/null; }
trap stop EXIT
trap 'exit 130' INT TERM
# start NAME COMMAND...: in the background, with its output in logs/NAME.log.
start() { name=$1; shift; "$@" >"$dir/logs/$name.log" 2>&1 </dev/null & }
# await NAME TEXT: until the log has the text.
await() {
    tries=0
    until grep -q "$2" "$dir/logs/$1.log" 2>/dev/null; do
        tries=$((tries + 1))
        [ $tries -lt 1200 ] || { echo "$0: $1 did not start, see $dir/logs/$1.log" >&2; exit 1; }
        sleep 0.25
    done
}

echo "1. certificates"
command -v nginx >/dev/null || { echo "nginx is not installed: devices connect to the server directly"; door=$superlink_port; }
server=localhost:$door
flwr-mel bundle "$dir" --server "$server"

echo "2. server"
cd "$dir"
start superlink flower-superlink --host 127.0.0.1 --port "$superlink_port" \
    --ssl-ca-certfile ca.pem --ssl-certfile server.pem --ssl-keyfile server.key \
    --enable-supernode-auth --database superlink.db --disable-runtime-dependency-installation
servers=$!
if [ "$door" != "$superlink_port" ]; then
    sed "s#/srv/mel#$dir#; s#listen 8000#listen 127.0.0.1:$door#; s#127.0.0.1:8001#127.0.0.1:$superlink_port#" \
        "$here/nginx.conf" >mel.conf
    mkdir proxy
    cat >nginx.conf <<END
daemon off;
pid $dir/proxy/pid;
error_log stderr;
events {}
http {
    access_log off;
    client_body_temp_path $dir/proxy/body;
    proxy_temp_path $dir/proxy/proxy;
    fastcgi_temp_path $dir/proxy/fastcgi;
    uwsgi_temp_path $dir/proxy/uwsgi;
    scgi_temp_path $dir/proxy/scgi;
    include $dir/mel.conf;
}
END
    start nginx nginx -e stderr -p "$dir/proxy" -c "$dir/nginx.conf"
    servers="$servers $!"
fi
cat >"$FLWR_HOME/config.toml" <<END
[superlink.fleet]
address = "localhost:$superlink_port"
root-certificates = "$dir/ca.pem"
END
await superlink "startup complete"

echo "3. devices"
flwr-mel bundle "$dir" pi-1 pi-2 pi-3 --server "$server" --connection fleet
for name in pi-1 pi-2 pi-3; do
    . "devices/$name/device.env"
    start "$name" flower-supernode --superlink "$MEL_SERVER" --node-config "$MEL_NODE_CONFIG" \
        --root-certificates "devices/$name/ca.pem" --auth-supernode-private-key "devices/$name/device.key" \
        --host 127.0.0.1 --port "$1"
    devices="$devices $!"
    shift
done

echo "4. training"
case " $config" in *" rounds="*) ;; *) config="rounds=1 $config" ;; esac
flwr run "$here/app" fleet --stream \
    --run-config "devices=3 data-dir=\"synthetic\" run-dir=\"$dir/run\" $config"
# `flwr run` succeeds even if the run failed.
[ -f run/model.npz ] || { flwr ls fleet; echo "$0: the run failed, see $dir/logs" >&2; exit 1; }
echo "trained: $dir/run"
