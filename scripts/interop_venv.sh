#!/usr/bin/env bash
# Print the Python of a virtual environment that holds exactly the packages named, made at first
# use and kept under .cache/interop by a hash of the pins.
#
# Usage: scripts/interop_venv.sh PIN...      for instance  scripts/interop_venv.sh openenv==0.4.2
set -euo pipefail

if [ $# -eq 0 ]; then
  echo "usage: $0 PIN..." >&2
  exit 2
fi

root="$(cd "$(dirname "$0")/.." && pwd)"
python="${PYTHON:-python3}"
version="$("$python" -c 'import sys; print(sys.version)')"
key="$(printf '%s\n' "$version" "$@" | sha256sum | cut -c1-16)"
venv="$root/.cache/interop/$key"

mkdir -p "$root/.cache/interop"
exec 9>"$venv.lock"
flock 9
if [ ! -e "$venv/complete" ]; then
  echo "making $venv with $*" >&2
  rm -rf "$venv"
  "$python" -m venv "$venv" >&2
  "$venv/bin/python" -m pip install -qqq --disable-pip-version-check "$@" >&2
  printf '%s\n' "$@" >"$venv/complete"
fi
echo "$venv/bin/python"
