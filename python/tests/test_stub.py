"""`_native.pyi` names what the native module has: no more, no less."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import tierfeed
from tierfeed import _native

STUB = ast.parse(Path(tierfeed.__file__).with_name("_native.pyi").read_text())
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}

# Known to type checkers by name only; at run time they are slots of the C interface.
PROTOCOLS = {"__buffer__", "__iter__"}


NO_ERRORS = sorted(name for name in CLASSES if not issubclass(getattr(_native, name), Exception))


def members(name: str) -> list[ast.FunctionDef]:
    """What the stub says that a class has."""
    return [node for node in CLASSES[name].body if isinstance(node, ast.FunctionDef)]


def test_the_stub_names_every_class_and_no_other() -> None:
    native = {name for name, value in vars(_native).items() if inspect.isclass(value)}
    assert set(CLASSES) == native


@pytest.mark.parametrize("name", NO_ERRORS)
def test_the_stub_names_every_member_and_no_other(name: str) -> None:
    stubbed = {member.name for member in members(name)} - PROTOCOLS
    native = getattr(_native, name)
    assert {it for it in stubbed if not it.startswith("_")} == {
        it for it in vars(native) if not it.startswith("_")
    }
    assert all(hasattr(native, it) for it in stubbed)


@pytest.mark.parametrize("name", NO_ERRORS)
def test_the_stub_has_the_same_parameters(name: str) -> None:
    for member in members(name):
        native = getattr(getattr(_native, name), member.name, None)
        if member.name.startswith("_") or not callable(native):
            continue
        parameters = [*member.args.args, *member.args.kwonlyargs]
        stubbed = [argument.arg for argument in parameters]
        found = list(inspect.signature(native).parameters)
        assert [it for it in found if it != "self"] == [it for it in stubbed if it != "self"]
