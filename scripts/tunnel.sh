#!/bin/sh
# Make this machine's environment server reachable on a GPU host, through an SSH reverse tunnel.
# Needs nothing but sh and OpenSSH here, and curl, python3 or wget there for the check.
set -u

usage() {
    cat <<'END'
usage: scripts/tunnel.sh GPU_HOST [--remote-port 8000] [--local-port 8000] [--once] [--check]
                         [SSH OPTION...]

Run on the environment host. On GPU_HOST, http://127.0.0.1:REMOTE_PORT then reaches the environment
server on this machine's LOCAL_PORT; the port is open on GPU_HOST's loopback only. Checks that the
server answers here, opens the tunnel, checks through ssh that it answers there, and keeps the
tunnel up until stopped, with pauses that grow to 30 s.

  --remote-port N   port on GPU_HOST (8000)
  --local-port N    port of the environment server here (8000)
  --once            end, with status 1, when the connection ends
  --check           check the whole way, and end: status 0 if all of it works
  --help            this text

Anything else goes to ssh: -p PORT, -i KEY, -J JUMP_HOST, -F FILE, -o OPTION=VALUE and so on.
Status: 0 checked, 1 no tunnel, 2 wrong use, 130 and 143 stopped by Ctrl-C and SIGTERM.
END
}

say() { printf 'tunnel: %s\n' "$*"; }

wrong_use() {
    printf 'tunnel: %s; see scripts/tunnel.sh --help\n' "$*" >&2
    exit 2
}

# -- what the user asked for ------------------------------------------------------------------

is_port() {
    case $1 in "" | *[!0-9]* | ??????*) return 1 ;; esac
    [ "$1" -ge 1 ] && [ "$1" -le 65535 ]
}

host=
remote_port=8000
local_port=8000
mode=keep
left=$#
while [ "$left" -gt 0 ]; do
    word=$1
    shift
    left=$((left - 1))
    case $word in
        --help | -h)
            usage
            exit 0
            ;;
        --once) mode=once ;;
        --check) mode=check ;;
        --remote-port=* | --local-port=*)
            value=${word#*=}
            is_port "$value" || wrong_use "${word%%=*}: expected a port from 1 to 65535, got '$value'"
            case $word in --remote*) remote_port=$value ;; *) local_port=$value ;; esac
            ;;
        --remote-port | --local-port)
            [ "$left" -gt 0 ] || wrong_use "$word: expected a port"
            is_port "$1" || wrong_use "$word: expected a port from 1 to 65535, got '$1'"
            case $word in --remote*) remote_port=$1 ;; *) local_port=$1 ;; esac
            shift
            left=$((left - 1))
            ;;
        --) ;;
        --*) wrong_use "unknown option $word" ;;
        -[BbcDEeFIiJLlmOoPpQRSWw]) # ssh's options that take a value
            [ "$left" -gt 0 ] || wrong_use "$word: expected a value"
            set -- "$@" "$word" "$1"
            shift
            left=$((left - 1))
            ;;
        -?*) set -- "$@" "$word" ;;
        *)
            [ -z "$host" ] || wrong_use "expected one GPU_HOST, got '$host' and '$word'"
            host=$word
            ;;
    esac
done
[ -n "$host" ] || wrong_use "expected a GPU_HOST"
command -v ssh >/dev/null || wrong_use "no ssh here: install openssh-client"

# -- the check, run by sh here and there ------------------------------------------------------

# Prints the URL at which a port answers as an environment server does, or "nothing", or "no tool" to
# ask with. The certificate is not looked at: no token is sent.
# shellcheck disable=SC2016 # expanded where it runs
check='
ask() {
    if command -v curl >/dev/null; then
        curl -fsk --noproxy "*" --max-time 10 "$1"
    elif command -v python3 >/dev/null; then
        python3 -c "
import ssl, sys, urllib.request as r
tls = r.HTTPSHandler(context=ssl._create_unverified_context())
page = r.build_opener(r.ProxyHandler({}), tls).open(sys.argv[1], timeout=10)
sys.stdout.write(page.read(99).decode())
" "$1"
    elif command -v wget >/dev/null; then
        wget -qO- --no-proxy --no-check-certificate -T 10 -t 1 "$1"
    else
        echo no tool
    fi
} 2>/dev/null
for url in "http://127.0.0.1:$1" "https://127.0.0.1:$1"; do
    case $(ask "$url/health") in
        *healthy*) echo "$url"; exit ;;
        "no tool") echo "no tool"; exit ;;
    esac
done
echo nothing
'

check_here() { printf '%s' "$check" | sh -s -- "$local_port"; }

# check_there [SSH OPTION...]: through the open connection where there is one.
check_there() { printf '%s' "$check" | ssh -S "$folder/ssh" "$@" "$host" sh -s -- "$remote_port" 2>/dev/null; }

# -- one connection ---------------------------------------------------------------------------

folder=$(mktemp -d /tmp/tunnel.XXXXXX) || exit 1
waiting=

# control check|exit: ask the ssh in the background whether it lives, or tell it to end.
control() { ssh -F none -S "$folder/ssh" -O "$1" "$host" 2>/dev/null; }

end() {
    [ -z "$waiting" ] || kill "$waiting" 2>/dev/null
    control exit
    rm -rf "$folder"
}

trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# connect [SSH OPTION...]: open the tunnel in the background. With -f, ssh goes there only
# when the far side has opened the port; what it said until then is in $folder/debug.
connect() {
    rm -f "$folder/ssh"
    ssh -f -N -M -S "$folder/ssh" -R "127.0.0.1:$remote_port:127.0.0.1:$local_port" \
        -o ExitOnForwardFailure=yes -o ServerAliveInterval=15 -o ServerAliveCountMax=3 \
        -o ConnectTimeout=15 -o LogLevel=DEBUG1 -o RemoteCommand=none \
        "$@" "$host" 2>"$folder/debug"
}

said() { grep -Eiq -e "$1" "$folder/said"; }

# explain [SSH OPTION...]: why `connect` failed; status 0 where another try may help, 4 where an
# environment server answers on the far side already.
explain() {
    # Of the debugging lines only the far side's own tell why a port was not opened.
    tr -d '\r' <"$folder/debug" | sed 's/^debug1: \(Remote: \)/\1/' |
        grep -Ev '^(debug|OpenSSH_|Authenticated to|Transferred|Bytes per|Remote: .*key options|$)' >"$folder/said"
    sed 's/^/  | /' "$folder/said"
    if said 'HOST IDENTIFICATION HAS CHANGED'; then
        say "the host key of $host is not the one known here: it was set up anew, or somebody stands" \
            "in between. Ask who runs it; if it is right, remove the old key as ssh says above"
        return 1
    elif said 'host key verification failed'; then
        say "the host key of $host is not known here, and nobody confirmed it: log in once by hand," \
            "ssh $host, and compare what it shows"
        return 1
    elif said 'permission denied|too many authentication failures|no supported authentication'; then
        say "authentication: $host lets none of the offered keys or passwords in. Name the key with" \
            "-i KEY, or the user as USER@$host"
        return 1
    elif said 'disabled port forwarding'; then
        say "$host does not allow port forwarding: in its sshd_config AllowTcpForwarding must be yes or" \
            "remote, and the key in authorized_keys not restricted, or restrict,port-forwarding"
        return 1
    elif said 'port forwarding refused|administratively prohibited'; then
        say "$host does not allow this port: PermitListen in its sshd_config, or permitlisten of the key" \
            "in authorized_keys, must name 127.0.0.1:$remote_port"
        return 1
    elif said 'remote port forwarding failed'; then
        case $(check_there "$@") in http*)
            say "port $remote_port on $host is taken by what answers as an environment server:" \
                "perhaps a tunnel is already up. Use it, end it, or choose another --remote-port"
            return 4
            ;;
        esac
        say "port $remote_port on $host is taken: choose another with --remote-port. If a lost tunnel" \
            "still holds it, $host frees it when its sshd notices (ClientAliveInterval)"
        return 1
    elif said 'bad configuration|unknown option|illegal option|^usage: ssh|no such file|bad owner'; then
        say "ssh does not take these options"
        return 1
    elif said 'could not resolve'; then
        say "no machine is known by the name $host"
    elif said 'connection refused'; then
        say "$host runs no ssh server there: is the port right (-p)?"
    elif said 'timed out|no route to host|unreachable'; then
        say "$host does not answer: is it up, and the way to it open?"
    else
        say "ssh could not connect to $host"
    fi
}

# look_through [SSH OPTION...]: check the far side through the open connection, and tell; status 0
# where it answers.
look_through() {
    answer=$(check_there "$@")
    case $answer in
        http*)
            say "up: $answer on $host reaches the environment server here"
            return 0
            ;;
        nothing)
            say "the port is open on $host, but no environment server answers through it: it may have" \
                "ended here in the meantime"
            ;;
        "no tool") say "up, not checked: $host has none of curl, python3 and wget to check it with" ;;
        *) say "up, not checked: this login runs no commands on $host" ;;
    esac
    return 1
}

# pause SECONDS: unlike a sleep of the shell's own, it ends at once on a signal.
pause() {
    sleep "$1" &
    waiting=$!
    wait "$waiting"
    waiting=
}

# -- the whole --------------------------------------------------------------------------------

here=$(check_here)
case $here in
    http*) say "the environment server answers here, at $here" ;;
    "no tool") say "the environment server is not checked: install curl, python3 or wget" ;;
    *)
        say "no environment server answers at http://127.0.0.1:$local_port/health here: start it first," \
            "python -m envhost serve --port $local_port, or name its port with --local-port"
        exit 1
        ;;
esac

was_up=0
seconds=1
while :; do
    if connect "$@"; then
        if look_through "$@"; then works=0; else works=1; fi
        [ $mode != check ] || exit $works
        was_up=1
        seconds=1
        while control check; do pause 1; done
        say "the connection to $host ended"
        [ $mode = keep ] || exit 1
    else
        explain "$@"
        why=$?
        [ $mode != check ] || [ $why != 4 ] || exit 0
        if [ $mode != keep ] || { [ $why != 0 ] && [ $was_up = 0 ]; }; then exit 1; fi
    fi
    say "trying again in $seconds s"
    pause $seconds
    seconds=$((seconds * 2))
    [ $seconds -le 30 ] || seconds=30
done
