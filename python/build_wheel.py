"""Puts what cargo builds into the wheel: the native modules, and the `tierfeed` program beside them.

`pip install ./python` builds them here, with the packages that README.md names. `make wheel` built them
before, and says where they are in TIERFEED_BUILT.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The native module runs in this interpreter (`abi3-py311` in Cargo.toml) and every later one.
TAG = "cp311-abi3-linux_{machine}"

PACKAGES = ("tierfeed", "tierfeed-python", "tierfeed-tensorflow")


class BuiltByCargo(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that hatchling calls while it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Names the files and the platform of the wheel; an editable installation is refused."""
        if version == "editable":
            raise SystemExit("an editable installation needs no wheel: `make build` sets up .venv")
        built = Path(os.environ["TIERFEED_BUILT"]) if "TIERFEED_BUILT" in os.environ else self.build()
        build_data["force_include"] = {
            str(built / "libtierfeed_native.so"): "tierfeed/_native.abi3.so",
            str(built / "libtierfeed_tensorflow.so"): "tierfeed/_tensorflow.so",
            str(built / "tierfeed"): "tierfeed/_bin/tierfeed",
        }
        build_data["pure_python"] = False
        build_data["tag"] = TAG.format(machine=os.uname().machine)

    def build(self) -> Path:
        """Builds with cargo, and returns the folder of what it built."""
        workspace = Path(self.root).parent
        subprocess.run(
            ["cargo", "build", "--release", *(f"--package={package}" for package in PACKAGES)],
            cwd=workspace,
            check=True,
        )
        return workspace / os.environ.get("CARGO_TARGET_DIR", "target") / "release"
