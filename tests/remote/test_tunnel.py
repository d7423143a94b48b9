"""The tunnel between two machines: a real sshd, a real ssh, a real server behind them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from ports import free_port, is_open
from rawclient import wait_until
from server_process import ServerProcess
from sshd import Sshd, make_key
from tunnel import SCRIPT, opened, run_tunnel

from envhost.client import EnvClient
from envhost.errors import SessionLost

pytestmark = pytest.mark.slow  # they need sshd, which scripts/test.sh --fast does not install

Start = Callable[..., ServerProcess]


@pytest.fixture(scope="module")
def server(start_shared_server: Start, echo_entrypoint: str) -> ServerProcess:
    """Return a server on this side of the tunnel."""
    return start_shared_server(echo_entrypoint)


def _check(sshd: Sshd, server: ServerProcess, *arguments: str | Path) -> Any:
    local = ("--local-port", str(server.port))
    return run_tunnel("gpu", "--check", *local, "-F", sshd.client, *arguments)


def _ssh_processes(sshd: Sshd) -> list[str]:
    """Return the command lines of live ssh clients of this sshd's."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = process.info["cmdline"] or []
        if str(sshd.client) in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(" ".join(line))
    return found


# -- the life of a tunnel --------------------------------------------------------------------------


def test_a_tunnel_comes_back_when_the_connection_does(
    gpu: Sshd, server: ServerProcess, tmp_path: Path
) -> None:
    """Sessions go through again once sshd, killed with all of its connections, is back."""
    port = free_port()
    folders = set(Path("/tmp").glob("tunnel.*"))
    with opened(gpu, tmp_path, local_port=server.port, remote_port=port) as tunnel:
        tunnel.wait_for(f"tunnel: up: http://127.0.0.1:{port} on gpu reaches")
        with EnvClient(f"http://127.0.0.1:{port}", retry_seconds=60) as client:
            assert client.reset(seed=5)[0] == "hello 5"
            assert client.step("abc")[1] == 3.0

            gpu.stop()
            with pytest.raises(SessionLost):
                client.step("abc")
            assert not is_open(port)
            gpu.start()

            assert client.reset(seed=6)[0] == "hello 6"
            assert client.step("abcd")[1] == 4.0
        tunnel.wait_for("tunnel: up:", count=2)
        said = tunnel.said()
        assert "the connection to gpu ended" in said
        assert "trying again in 1 s" in said
        assert tunnel.stop() == 128 + signal.SIGTERM
    wait_until(lambda: not _ssh_processes(gpu))
    wait_until(lambda: not is_open(port))
    assert set(Path("/tmp").glob("tunnel.*")) <= folders


def test_pauses_between_tries_grow(gpu: Sshd, server: ServerProcess, tmp_path: Path) -> None:
    """A machine that is away is tried again after 1, 2, 4 s; a signal ends a pause at once."""
    gpu.stop()
    with opened(gpu, tmp_path, local_port=server.port, remote_port=free_port()) as tunnel:
        tunnel.wait_for("trying again in 4 s")
        said = tunnel.said()
        assert "gpu runs no ssh server there" in said
        assert said.index("again in 1 s") < said.index("again in 2 s") < said.index("again in 4 s")
        assert tunnel.stop(signal.SIGINT) == 128 + signal.SIGINT


def test_a_tunnel_that_was_up_waits_for_its_port(
    gpu: Sshd, server: ServerProcess, tmp_path: Path
) -> None:
    """What would end a first try, a taken port, is waited for once the tunnel has worked."""
    port = free_port()
    with opened(gpu, tmp_path, local_port=server.port, remote_port=port) as tunnel:
        tunnel.wait_for("tunnel: up:")
        gpu.stop()
        wait_until(lambda: not is_open(port))
        with socket.create_server(("127.0.0.1", port)) as other:
            gpu.start()
            tunnel.wait_for("remote port forwarding failed")
            other.close()
        tunnel.wait_for(f"port {port} on gpu is taken")
        tunnel.wait_for("tunnel: up:", count=2)


def test_once_ends_with_the_connection(gpu: Sshd, server: ServerProcess, tmp_path: Path) -> None:
    """With --once nothing is tried again: status 1."""
    port = free_port()
    with opened(gpu, tmp_path, "--once", local_port=server.port, remote_port=port) as tunnel:
        tunnel.wait_for("tunnel: up:")
        gpu.stop()
        assert tunnel.process.wait(30) == 1
        assert "trying again" not in tunnel.said()


def test_the_far_port_is_on_the_loopback_only(
    gpu: Sshd, server: ServerProcess, tmp_path: Path
) -> None:
    """Even where sshd would let the client choose (GatewayPorts clientspecified)."""
    gpu.restart("GatewayPorts clientspecified")
    port = free_port()
    with opened(gpu, tmp_path, local_port=server.port, remote_port=port) as tunnel:
        tunnel.wait_for("tunnel: up:")
        listening = {
            connection.laddr.ip
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
        }
        assert listening == {"127.0.0.1"}


# -- the check -------------------------------------------------------------------------------------


def test_a_check_goes_the_whole_way_and_ends(gpu: Sshd, server: ServerProcess) -> None:
    """Status 0, the URL as the GPU machine sees it, and no tunnel left."""
    port = free_port()
    ended = _check(gpu, server, "--remote-port", str(port))

    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        f"tunnel: the environment server answers here, at http://127.0.0.1:{server.port}",
        f"tunnel: up: http://127.0.0.1:{port} on gpu reaches the environment server here",
    ]
    wait_until(lambda: not is_open(port))


def test_a_check_beside_a_tunnel_sees_it(gpu: Sshd, server: ServerProcess, tmp_path: Path) -> None:
    """A port that answers already is told as such, with status 0."""
    port = free_port()
    with opened(gpu, tmp_path, local_port=server.port, remote_port=port) as tunnel:
        tunnel.wait_for("tunnel: up:")
        ended = _check(gpu, server, f"--remote-port={port}")
        assert ended.returncode == 0
        assert "perhaps a tunnel is already up" in ended.stdout


def test_a_check_sees_a_server_with_tls(
    gpu: Sshd, start_server: Start, echo_entrypoint: str, certificate: tuple[Path, Path]
) -> None:
    """The URL then begins with https; the check asks for no trust, since it sends no token."""
    cert, key = map(str, certificate)
    server = start_server(echo_entrypoint, "--tls-cert", cert, "--tls-key", key)
    port = free_port()

    ended = _check(gpu, server, "--remote-port", str(port))

    assert ended.returncode == 0
    assert f"up: https://127.0.0.1:{port} on gpu" in ended.stdout


@pytest.mark.parametrize(
    ("tool", "words", "status"),
    [
        ("curl", "reaches the environment server here", 0),
        ("python3", "reaches the environment server here", 0),
        ("wget", "reaches the environment server here", 0),
        (None, "up, not checked: gpu has none of curl, python3 and wget", 1),
    ],
)
def test_the_check_uses_what_the_far_side_has(
    gpu: Sshd, server: ServerProcess, tmp_path: Path, tool: str | None, words: str, status: int
) -> None:
    """Any one of three common tools will do there."""
    for name in filter(None, ("sh", tool)):
        found = shutil.which(name, path="/usr/bin:/bin")
        assert found, f"{name} is missing"
        (tmp_path / name).symlink_to(found)
    # Not SetEnv: a login shell's own files may set another path after it.
    gpu.restart(f'ForceCommand PATH={tmp_path} sh -c "$SSH_ORIGINAL_COMMAND"')

    ended = _check(gpu, server, "--remote-port", str(free_port()))

    assert words in ended.stdout
    assert ended.returncode == status


# -- what is wrong, in plain words -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("AllowTcpForwarding no", "AllowTcpForwarding must be yes or remote"),
        ("AllowTcpForwarding local", "AllowTcpForwarding must be yes or remote"),
        ("PermitListen 127.0.0.1:1", "PermitListen in its sshd_config, or permitlisten"),
        ("ForceCommand /bin/false", "up, not checked: this login runs no commands on gpu"),
    ],
)
def test_what_the_far_side_forbids_is_told(
    gpu: Sshd, server: ServerProcess, option: str, words: str
) -> None:
    """With the setting that forbids it."""
    gpu.restart(option)
    ended = _check(gpu, server, "--remote-port", str(free_port()))
    assert (ended.returncode, ended.stderr) == (1, "")
    assert words in ended.stdout


def test_a_restricted_key_may_still_forward(gpu: Sshd, server: ServerProcess) -> None:
    """The line that docs/remote.md gives for authorized_keys is enough, and bounds the port."""
    port = free_port()
    key = gpu.keys.read_text()
    try:
        gpu.keys.write_text(f'restrict,port-forwarding,permitlisten="127.0.0.1:{port}" {key}')
        assert _check(gpu, server, "--remote-port", str(port)).returncode == 0
        other = _check(gpu, server, "--remote-port", str(free_port()))
        assert "does not allow this port" in other.stdout
    finally:
        gpu.keys.write_text(key)


def test_a_taken_port_is_told(gpu: Sshd, server: ServerProcess, tmp_path: Path) -> None:
    """By something else than an environment server; a first try ends with status 1."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        # Nothing accepts there: only a short patience of curl's ends the question what it is.
        with opened(gpu, tmp_path, local_port=server.port, remote_port=port) as tunnel:
            tunnel.wait_for("remote port forwarding failed")
            other.close()
            assert tunnel.process.wait(60) == 1
            assert f"port {port} on gpu is taken: choose another with --remote" in tunnel.said()


def test_no_server_here_is_told(gpu: Sshd) -> None:
    """Before ssh is tried at all."""
    port = free_port()
    ended = run_tunnel("gpu", "--local-port", str(port), "-F", gpu.client)
    assert ended.returncode == 1
    assert f"python -m envhost serve --port {port}" in ended.stdout


def test_an_unknown_host_key_is_told(gpu: Sshd, server: ServerProcess) -> None:
    """Nobody is asked where nobody is at a terminal, and the key is not taken."""
    ended = _check(gpu, server, "-o", "UserKnownHostsFile=/dev/null")
    assert ended.returncode == 1
    assert "host key of gpu is not known here" in ended.stdout


def test_a_host_key_can_be_confirmed_at_a_terminal(
    gpu: Sshd, server: ServerProcess, tmp_path: Path
) -> None:
    """The first time to a new machine: ssh asks, and after a yes the tunnel is there."""
    known = tmp_path / "known_hosts"
    terminal, inside = os.openpty()
    arguments = ("gpu", "--check", "--local-port", str(server.port), "-F", gpu.client)
    options = ("-o", "BatchMode=no", "-o", f"UserKnownHostsFile={known}", "--remote-port")
    with subprocess.Popen(
        ["setsid", "--ctty", "--wait", SCRIPT, *arguments, *options, str(free_port())],
        stdin=inside,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(inside)
        asked = b""
        while b"(yes/no" not in asked:
            asked += os.read(terminal, 4096)
        os.write(terminal, b"yes\n")
        said, _ = process.communicate(timeout=60)
    os.close(terminal)
    assert "tunnel: up:" in said
    assert process.returncode == 0
    assert "ssh-ed25519" in known.read_text()


def test_a_changed_host_key_is_told(gpu: Sshd, server: ServerProcess, tmp_path: Path) -> None:
    """As what it may be: a new machine, or somebody in between."""
    public = make_key(tmp_path / "other").with_suffix(".pub").read_text()
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{gpu.port} {public}")
    ended = _check(gpu, server, "-o", f"UserKnownHostsFile={known}")
    assert ended.returncode == 1
    assert "somebody stands in between" in ended.stdout


def test_a_refused_login_is_told(gpu: Sshd, server: ServerProcess) -> None:
    """A key that the far side does not know."""
    keys = gpu.keys.read_text()
    try:
        gpu.keys.write_text("")
        ended = _check(gpu, server)
    finally:
        gpu.keys.write_text(keys)
    assert ended.returncode == 1
    assert "tunnel: authentication: gpu lets none of the offered keys" in ended.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("-p", "1"), "gpu runs no ssh server there: is the port right (-p)?"),
        (("-o", "HostName=nowhere.invalid"), "no machine is known by the name gpu"),
        (("-o", "Nonsense=yes"), "ssh does not take these options"),
    ],
)
def test_a_way_that_leads_nowhere_is_told(
    gpu: Sshd, server: ServerProcess, options: tuple[str, ...], words: str
) -> None:
    """A wrong port, a wrong name, a wrong option."""
    ended = run_tunnel(
        *("gpu", "--once", *options, "-F", gpu.client, "--local-port", str(server.port))
    )
    assert ended.returncode == 1
    assert words in ended.stdout


# -- its command line ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "expected a GPU_HOST"),
        (("--once",), "expected a GPU_HOST"),
        (("gpu", "8000"), "expected one GPU_HOST, got 'gpu' and '8000'"),
        (("gpu", "--remote-port"), "--remote-port: expected a port"),
        (("gpu", "--local-port", "0"), "--local-port: expected a port from 1 to 65535, got '0'"),
        (("gpu", "--remote-port=70000"), "--remote-port: expected a port from 1 to 65535"),
        (("gpu", "--remote-port", "8o"), "expected a port from 1 to 65535, got '8o'"),
        (("gpu", "--forever"), "unknown option --forever"),
        (("gpu", "-p"), "-p: expected a value"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(arguments: tuple[str, ...], words: str) -> None:
    """What was expected, and what came."""
    ended = run_tunnel(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_help_names_every_option() -> None:
    """`--help` goes to standard output, with status 0."""
    ended = run_tunnel("--help")
    assert (ended.returncode, ended.stderr) == (0, "")
    for option in ("--remote-port", "--local-port", "--once", "--check", "SSH OPTION"):
        assert option in ended.stdout


@pytest.mark.parametrize("shell", ["dash", "bash --posix", "sh"])
def test_it_is_posix_sh(shell: str) -> None:
    """Every shell takes it, and it asks for no other than sh."""
    assert SCRIPT.read_text().startswith("#!/bin/sh\n")
    assert os.access(SCRIPT, os.X_OK)
    subprocess.run([*shell.split(), "-n", SCRIPT], check=True)
