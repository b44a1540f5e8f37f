"""Makes skipped tests visible: every test that cannot run on a machine says so through this module.

The environment variables are those of the Rust tests (`docs/testing.md`): `TIERFEED_REQUIRE` says what
this machine offers and lacks, `TIERFEED_SKIPS` names the file that lists the skips.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any, NoReturn

import pytest

# Read once, because tests clear the environment of such names.
REQUIRE = os.environ.get("TIERFEED_REQUIRE")
SKIPS = os.environ.get("TIERFEED_SKIPS")
MARK = "for want of "


def skip(need: str, why: str) -> NoReturn:
    """Skips the calling test, or fails it where this machine must offer what it needs."""
    __tracebackhide__ = True
    if REQUIRE is not None and f"-{need}" not in REQUIRE.split(","):
        pytest.fail(f"skips for want of {need}, which TIERFEED_REQUIRE does not excuse: {why}")
    if SKIPS is not None:
        test = os.environ.get("PYTEST_CURRENT_TEST", "a module of tests").removesuffix(" (call)")
        with open(SKIPS, "a", encoding="utf-8") as file:
            file.write(f"{need}\t{test}\t{why}\n")
    pytest.skip(f"{MARK}{need}: {why}", allow_module_level=True)


def module(name: str) -> Any:
    """Imports a module that not every machine has."""
    __tracebackhide__ = True
    try:
        found: ModuleType = importlib.import_module(name)
    except ImportError as error:
        skip(f"module-{name.split('.')[0]}", str(error))
    return found
