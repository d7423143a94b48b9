"""Fixtures that start real servers as real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from server_process import ServerProcess, serve

# In a shell's background these tests ignore interrupts, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

ECHO = textwrap.dedent('''
    """A text environment that echoes; the answer's length is the reward."""
    import trio
    from envhost.environment import Observation, StepResult, text_observation


    class Echo:
        """Echo the answer; some answers misbehave on purpose."""

        def __init__(self, build: str = ""):
            if build:
                raise eval(build)
            self.closed = False

        async def reset(self, *, seed=None, row_index=None, evaluation=False):
            if seed == -1:
                raise RuntimeError("no such seed")
            return Observation(text_observation(f"hello {seed}"), {"seed": seed})

        async def step(self, action):
            text = action["message"]
            if text == "sleep":
                await trio.sleep_forever()
            if text == "exit":
                raise SystemExit(3)
            if text == "interrupt":
                raise KeyboardInterrupt
            if text == "nan":
                return StepResult(
                    observation=text_observation(""), reward=float("nan"), terminated=False
                )
            return StepResult(
                observation=text_observation(text),
                reward=float(len(text)),
                terminated=text == "end",
                truncated=text == "cut",
                metadata={"said": text},
            )

        async def state(self):
            return {"dataset_size": 7}

        async def close(self):
            self.closed = True
''')


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """Return a function that starts a server with the given arguments; all end with the test."""
    with ExitStack() as stack:
        yield lambda *arguments: stack.enter_context(serve(tmp_path, *arguments))


@pytest.fixture(scope="module")
def start_shared_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., ServerProcess]]:
    """Like `start_server`, for servers that a module's tests share."""
    with ExitStack() as stack:
        directory = tmp_path_factory.mktemp("shared")
        yield lambda *arguments: stack.enter_context(serve(directory, *arguments))


@pytest.fixture(scope="session")
def echo_entrypoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the entrypoint of an echo environment."""
    path = tmp_path_factory.mktemp("echo") / "echo_environment.py"
    path.write_text(ECHO)
    return f"{path}:Echo"


@pytest.fixture
def run_envhost() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs `python -m envhost` with arguments to its end."""

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "envhost", *arguments],
            capture_output=True,
            text=True,
            input=stdin,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Return a certificate that is its own authority, and its key, for 127.0.0.1."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


@pytest.fixture(scope="session")
def quickstart_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the model that the quickstart trains; making it takes a minute."""
    folder = tmp_path_factory.mktemp("quickstart") / "model"
    subprocess.run(
        [sys.executable, "scripts/make_tiny_model.py", folder],
        check=True,
        cwd=Path(__file__).parent.parent,
    )
    return folder
