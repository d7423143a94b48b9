"""The files of docs/deploy: read, held against what cells need, and their command lines run."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from server_process import ServerProcess

from envhost.client import EnvClient
from envhost.config import Limits

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "docs" / "deploy"
Start = Callable[..., ServerProcess]
Instruction = tuple[str, str]


def dockerfile() -> list[Instruction]:
    """Return the Dockerfile's instructions in order, continued lines joined."""
    text = (DEPLOY / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    pairs = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [(name, rest.strip()) for name, rest in pairs]


def value(name: str) -> str:
    """Return the argument of an instruction that stands in the Dockerfile once."""
    (found,) = [rest for instruction, rest in dockerfile() if instruction == name]
    return found


def compose() -> dict[str, Any]:
    """Return the one service of the compose file."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert list(services) == ["envhost"]
    service: dict[str, Any] = services["envhost"]
    return service


def kubernetes() -> dict[str, Any]:
    """Return the manifest's objects by kind."""
    return {
        each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    }


def pod() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pod's specification and its one container."""
    spec = kubernetes()["Deployment"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


def unit() -> dict[str, list[str]]:
    """Return the settings of the systemd unit, each with all its values."""
    settings: dict[str, list[str]] = {}
    for line in (DEPLOY / "envhost.service").read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, setting = line.partition("=")
            settings.setdefault(key, []).append(setting)
    return settings


def commands() -> dict[str, list[str]]:
    """Return what each file runs, from the interpreter on."""
    init, dashes, *entrypoint = json.loads(value("ENTRYPOINT"))
    assert (init, dashes) == ("tini", "--")
    return {
        "Dockerfile": entrypoint + json.loads(value("CMD")),
        "compose.yaml": entrypoint + compose()["command"],
        "kubernetes.yaml": entrypoint + pod()[1]["args"],
        "envhost.service": shlex.split(unit()["ExecStart"][0]),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["Dockerfile", "compose.yaml", "kubernetes.yaml", "envhost.service"]
)
def test_each_command_line_serves_behind_its_token(
    name: str, start_server: Start, tmp_path: Path
) -> None:
    """As it stands but for address, port and where the token lies."""
    python, *arguments = commands()[name]
    assert Path(python).name == "python"
    assert arguments[:3] == ["-m", "envhost", "serve"]
    options = arguments[3:]
    token = tmp_path / "token"
    token.write_text("of-the-file\n")
    for option, here in (("--token-file", str(token)), ("--host", "127.0.0.1"), ("--port", "0")):
        options[options.index(option) + 1] = here

    server = start_server(*options)

    with EnvClient(server.url, token="of-the-file") as client:
        assert client.reset(seed=0)[0]
    assert server.stop() == 0


# -- the container ---------------------------------------------------------------------------------


def test_the_dockerfile_copies_what_an_install_needs() -> None:
    """All that it copies exists, and what `pip install .` reads is among it."""
    copied = [word for _, rest in dockerfile() if _ == "COPY" for word in rest.split()[:-1]]
    for name in copied:
        assert (ROOT / name).exists(), name
    assert set(copied) >= {"pyproject.toml", "README.md", "LICENSE", "envhost", "rltrain"}


def test_the_dockerfile_keeps_the_usual_rules() -> None:
    """What hadolint would look at: a fixed base, clean layers, not root, arguments as lists."""
    instructions = dockerfile()
    names = [name for name, _ in instructions]
    assert names[0] == "FROM"
    assert ":" in value("FROM")
    assert not value("FROM").endswith(":latest")
    runs = [rest for name, rest in instructions if name == "RUN"]
    for run in runs:
        if "apt-get install" in run:
            assert "apt-get update" in run
            assert "--no-install-recommends" in run
            assert "rm -rf /var/lib/apt/lists/*" in run
        if "pip install" in run:
            assert "--no-cache-dir" in run
    assert any({"bubblewrap", "tini"} <= set(run.split()) for run in runs)
    user = value("USER").partition(":")[0]
    assert user.isdigit()
    assert user != "0"
    assert names.index("USER") > max(i for i, name in enumerate(names) if name == "RUN")
    for name in ("ENTRYPOINT", "CMD"):
        assert isinstance(json.loads(value(name)), list)
    _, _, check = value("HEALTHCHECK").partition("CMD ")
    compile(json.loads(check)[2], "HEALTHCHECK", "exec")


def test_the_compose_file_gives_what_cells_need() -> None:
    """The three filters of Docker's that forbid bubblewrap are off, and nothing else is."""
    service = compose()
    options = dict(option.split("=") for option in service["security_opt"])
    assert options == {
        "seccomp": "unconfined",
        "apparmor": "unconfined",
        "systempaths": "unconfined",
        "no-new-privileges": "true",
    }
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True
    assert "privileged" not in service
    assert "cap_add" not in service
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert (DEPLOY / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).exists()
    assert seconds(service["stop_grace_period"]) > Limits().drain_seconds
    assert service["mem_limit"]
    assert service["pids_limit"]


def seconds(text: str) -> float:
    """Return a duration like 45s."""
    assert text.endswith("s")
    return float(text[:-1])


# -- Kubernetes ------------------------------------------------------------------------------------


def test_the_pod_gives_what_cells_need() -> None:
    """Unconfined filters and an unmasked /proc in a user namespace; no privilege of the host's."""
    spec, container = pod()
    assert spec["hostUsers"] is False  # Kubernetes asks for it where procMount is Unmasked
    context = {**spec["securityContext"], **container["securityContext"]}
    assert context["seccompProfile"] == {"type": "Unconfined"}
    assert context["appArmorProfile"] == {"type": "Unconfined"}
    assert context["procMount"] == "Unmasked"
    assert context["runAsNonRoot"] is True
    assert str(context["runAsUser"]) == value("USER").partition(":")[0]
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["readOnlyRootFilesystem"] is True
    assert "privileged" not in context
    assert spec["automountServiceAccountToken"] is False


def test_the_pod_drains_before_it_is_killed() -> None:
    """Readiness is /readyz; the grace holds preStop and the drain time, with some to spare."""
    spec, container = pod()
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    drain = float(container["args"][container["args"].index("--drain-timeout") + 1])
    assert spec["terminationGracePeriodSeconds"] >= before + drain + 10
    # A pod is out of the address before it is told to end.
    probe = container["readinessProbe"]
    assert before >= probe["periodSeconds"] * probe["failureThreshold"]


def test_the_manifest_hangs_together() -> None:
    """Selectors meet labels, ports meet names, mounts meet volumes, the token its path."""
    objects = kubernetes()
    deployment = objects["Deployment"]["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    for kind, selector in (
        ("Deployment", deployment["selector"]["matchLabels"]),
        ("Service", objects["Service"]["spec"]["selector"]),
        ("PodDisruptionBudget", objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]),
        ("NetworkPolicy", objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]),
    ):
        assert selector.items() <= labels.items(), kind
    spec, container = pod()
    (port,) = container["ports"]
    assert port["containerPort"] == 8000
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]
    assert objects["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() == {volume["name"] for volume in spec["volumes"]}
    token = container["args"][container["args"].index("--token-file") + 1]
    assert token == f"{mounts['token']}/token"


# -- systemd ---------------------------------------------------------------------------------------


@pytest.mark.slow  # its program is not installed for --fast
def test_the_unit_is_one(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say, and its score of exposure is 4 at most."""
    analyze = shutil.which("systemd-analyze")
    assert analyze, "systemd-analyze is missing: apt-get install systemd"
    text = (DEPLOY / "envhost.service").read_text()
    assert text.count("/opt/envhost/bin/python ") == 1
    path = tmp_path / "envhost.service"
    path.write_text(text.replace("/opt/envhost/bin/python ", f"{sys.executable} "))

    verified = subprocess.run(
        [analyze, "verify", path], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stdout, verified.stderr) == (0, "", "")
    # Ten times the score, as the option takes it.
    subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=40", "--no-pager", path],
        capture_output=True,
        check=True,
    )


def test_the_unit_leaves_out_what_cells_need() -> None:
    """None of the settings stands there with which bubblewrap does not start."""
    settings = unit()
    for name in (
        "RestrictNamespaces",
        "ProtectKernelTunables",
        "ProtectKernelLogs",
        "ProtectProc",
        "ProcSubset",
        "ProtectControlGroups",
        "PrivateUsers",
    ):
        assert name not in settings
    denied = settings["SystemCallFilter"][0]
    assert denied.startswith("~")
    assert not {"@mount", "@process", "@sandbox", "@privileged"} & set(denied[1:].split())
    assert settings["Delegate"] == ["yes"]
    assert "AF_NETLINK" in settings["RestrictAddressFamilies"][0]  # brings the loopback up


def test_the_unit_drains_before_it_is_killed() -> None:
    """SIGTERM goes to the server alone, and its patience is longer than the drain time."""
    settings = unit()
    assert settings["KillMode"] == ["mixed"]
    assert float(settings["TimeoutStopSec"][0]) > Limits().drain_seconds
