#!/usr/bin/env bash
# See it all work on this machine: a server that runs programs in bubblewrap, and a model that
# learns to write them. Ends with status 1 if it did not learn.
set -euo pipefail
started=$SECONDS
output=runs/quickstart-$(date +%Y%m%d-%H%M%S)
case "$#:${1-}" in
    0:) ;;
    2:--output) output=$(realpath -m -- "$2") ;;
    *)
        echo "usage: scripts/quickstart.sh [--output DIR]" >&2
        exit 2
        ;;
esac
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/setup.sh
. scripts/lib/setup.sh

# Threads that wait without spinning leave the processors to the programs that are being judged.
export OMP_WAIT_POLICY=PASSIVE
export HF_HUB_OFFLINE=1 # the model is made here; nothing is fetched

ensure_venv train
ensure_bubblewrap
installed=$SECONDS

# A model once made is kept for as long as what makes it stays the same.
model=.cache/tiny-model
sources=(scripts/make_tiny_model.py scripts/make_lists.py envhost/problems/lists.jsonl constraints-cpu.txt)
key=$(cat "${sources[@]}" | sha256sum | cut -c1-16)
if [ ! -e "$model/made-$key" ]; then
    say "making a tiny model that half knows its job (about a minute)"
    rm -rf "$model"
    .venv/bin/python scripts/make_tiny_model.py "$model"
    touch "$model/made-$key"
fi

say "training it against programs' verdicts: 25 steps of 16 problems × 8 programs"
.venv/bin/python -m rltrain scripts/quickstart.yaml --device cpu --output "$output"

say "the whole run took $((SECONDS - started)) s, $((installed - started)) s of them for installing"
.venv/bin/python scripts/show_run.py "$output" --expected-rise 0.3
