"""Reads scripts, and those files beside them that they import.

A module is followed only if it lies in the directory of the script or of the importing file, or below
it; `sys.path` is not searched.
"""

from __future__ import annotations

import ast
import json
import os
import re
import stat
from dataclasses import dataclass, field
from typing import Any

from .recover import parse

FILES_MAX = 32  # Files that are analysed together.
FILE_BYTES_MAX = 1 << 20  # A larger file is not taken for a script.
NOTEBOOK_BYTES_MAX = 64 << 20  # Of a notebook, with the pictures that it shows.
NOTEBOOK = ".ipynb"
BYTES_MAX = 4 << 20  # All files together; imports beyond are not followed.
IMPORT_DEPTH_MAX = 4  # How many imports may lead from a script to a file.


class ScriptError(Exception):
    """A script cannot be analysed: it cannot be read, or is no text in UTF-8."""


@dataclass(eq=False)
class File:
    """A file as it was read."""

    name: str  # As it is named in findings.
    text: str
    root: str = ""  # The directory of the script that leads here.
    depth: int = 0  # How many imports lead here.
    links: dict[str, int] = field(default_factory=dict)
    """Which of the other files an import of this one means."""
    stars: dict[str, str] = field(default_factory=dict)  # Modules that it imports everything of.

    def __post_init__(self) -> None:
        self.text = self.text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
        self.lines = self.text.encode(errors="replace").split(b"\n")
        self.statements, self.problems = parse(self.text)


def read(path: str) -> str:
    try:
        # To open a pipe would block until another process writes to it.
        if not stat.S_ISREG(os.stat(path).st_mode):
            said = "is no regular file; give the Python file that starts the training"
            raise ScriptError(f"{path}: {said}")
        most = NOTEBOOK_BYTES_MAX if path.endswith(NOTEBOOK) else FILE_BYTES_MAX
        with open(path, "rb") as file:
            content = file.read(most + 1)
        if len(content) > most:
            said = f"is larger than {most} bytes; that is no training script"
            raise ScriptError(f"{path}: {said}")
        return code_of_notebook(path, content) if path.endswith(NOTEBOOK) else content.decode()
    except OSError as error:
        said = f"cannot be read: {error.strerror} (os error {error.errno})"
    except UnicodeDecodeError as error:
        said = f"byte {error.start} is no UTF-8; Python files are UTF-8, convert it"
    raise ScriptError(f"{path}: {said}")


def code_of_notebook(path: str, content: bytes) -> str:
    """The cells with code, one after the other. What is for IPython alone becomes a comment."""
    try:
        cells = [it for it in json.loads(content)["cells"] if it["cell_type"] == "code"]
        code = "\n".join("".join(it["source"]) for it in cells)
    except (ValueError, KeyError, TypeError) as error:
        raise ScriptError(f"{path}: is no notebook of Jupyter ({error})") from error
    if len(code) > FILE_BYTES_MAX:
        raise ScriptError(f"{path}: its code is larger than {FILE_BYTES_MAX} bytes")
    return re.sub(r"^(\s*)([%!?])", r"\1#\2", code, flags=re.MULTILINE)


def load(paths: list[str]) -> tuple[list[File], list[str]]:
    """The scripts and what they import, and what was left out."""
    if len(paths) > FILES_MAX:
        raise ScriptError(f"{len(paths)} scripts are given; at most {FILES_MAX} are analysed together")
    files = [File(path, read(path), os.path.dirname(path)) for path in dict.fromkeys(paths)]
    numbers = {os.path.realpath(file.name): number for number, file in enumerate(files)}
    left_out: set[str] = set()
    for file in files:
        for name in imported_names(file.statements):
            found = None if name in file.links else file_of(name, file)
            if found is None:
                continue
            real = os.path.realpath(found)
            is_full = len(files) >= FILES_MAX or sum(len(it.text) for it in files) > BYTES_MAX
            if real in numbers:
                file.links[name] = numbers[real]
            elif is_full or file.depth >= IMPORT_DEPTH_MAX:
                left_out.add(f"{found}: not followed, the limit of files is reached")
            else:
                try:
                    files.append(File(found, read(found), file.root, file.depth + 1))
                    file.links[name] = numbers[real] = len(files) - 1
                except ScriptError as error:
                    left_out.add(f"not followed: {error}")
    return files, sorted(left_out)


def file_of(name: str, file: File) -> str | None:
    """The file that an import of `name` means."""
    own, parts = os.path.dirname(file.name), name.removeprefix(".").split(".")
    if not all(re.fullmatch(r"\w+", part) for part in parts):
        return None
    roots = [own] if name.startswith(".") else [own, file.root]
    bases = [os.path.join(root, *parts) for root in roots]
    candidates = (it for base in bases for it in (f"{base}.py", f"{base}/__init__.py"))
    return next((it for it in candidates if os.path.isfile(it)), None)


def imported_names(statements: list[ast.stmt]) -> list[str]:
    """What imports may name: modules, or with a member a module below them."""
    nodes: list[Any] = [node for statement in statements for node in ast.walk(statement)]
    nodes = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    names: list[str] = []
    for node in sorted(nodes, key=lambda it: (it.lineno, it.col_offset)):
        module = module_name(node)
        for alias in node.names:
            if not module:
                names.append(alias.name)
            else:
                names += [module] if alias.name == "*" else [member_name(module, alias.name), module]
    return names


def module_name(node: ast.Import | ast.ImportFrom) -> str:
    """Of `from module import name`, with the dots of a relative import; empty for `import name`."""
    return "." * node.level + (node.module or "") if isinstance(node, ast.ImportFrom) else ""


def member_name(module: str, member: str) -> str:
    return f"{module}{'' if module.endswith('.') else '.'}{member}"
