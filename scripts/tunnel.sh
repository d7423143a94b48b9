#!/bin/sh
# Make this machine's environment server reachable on a GPU host, as http://127.0.0.1:PORT there.
# Run on the environment host: scripts/tunnel.sh GPU_HOST [LOCAL_PORT [REMOTE_PORT]] [-- SSH_OPTION...]
set -eu

usage() {
    echo "usage: scripts/tunnel.sh GPU_HOST [LOCAL_PORT [REMOTE_PORT]] [-- SSH_OPTION...]" >&2
    exit 2
}

host=${1-}
case $host in "" | -*) usage ;; esac
shift
local_port=8000
remote_port=
if [ $# -gt 0 ] && [ "$1" != -- ]; then
    local_port=$1
    shift
fi
if [ $# -gt 0 ] && [ "$1" != -- ]; then
    remote_port=$1
    shift
fi
[ $# -gt 0 ] && shift
remote_port=${remote_port:-$local_port}

echo "http://127.0.0.1:$remote_port on $host reaches port $local_port here; Ctrl-C ends it"
# The far end listens on its loopback only; ssh ends, rather than idles, where the port is taken.
exec ssh -N -R "127.0.0.1:$remote_port:127.0.0.1:$local_port" \
    -o ExitOnForwardFailure=yes -o ServerAliveInterval=15 -o ServerAliveCountMax=3 "$@" "$host"
