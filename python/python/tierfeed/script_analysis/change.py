"""The line of a PyTorch script that makes its loader, as it is and as tierfeed feeds it.

A loader becomes a `TierLoader`, which reads in the order of the job. One with a sampler of its own
stays, over a `TierDataset`, because the order is the sampler's. What a job cannot read by itself is not
changed.
"""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

from .finding import Finding
from .job import epochs, main_loader, order
from .load import File
from .tables import last

LOADERS = ("torch.", "torchdata.", "torch_geometric.", "monai.")
IMAGE_FOLDERS = ("ImageFolder", "ImageNet")


class Change(NamedTuple):
    file: str
    line: int
    before: str
    after: str
    imports_line: int  # The new imports stand above this line.
    imports: str
    notes: list[str]  # What else changes, or is to be written by the user.


def change(files: list[File], findings: list[Finding]) -> Change | None:
    loader = main_loader(findings)
    if loader is None or not loader.what.startswith(LOADERS):
        return None
    file = next(it for it in files if it.name == loader.file)
    call = call_at(file, loader)
    is_part = " over " in loader.text("reads")
    # A line that makes the loaders of training and of validation is the user's to take apart.
    places = [(it.file, it.line) for it in findings if it.kind == "loader"]
    is_shared = places.count((loader.file, loader.line)) > 1
    if call is None or is_shared or (is_part and order(loader) == "published"):
        return None
    (decode, notes), name = decode_of(file, call, loader), name_of(file, call)
    if order(loader) == "published":
        after = over_dataset(file, call, decode)
        notes.append(f"{place_of_epochs(findings)} tierfeed.torch.announce({name}, epoch=epoch)")
    else:
        arguments = [f"decode={decode}", *threads(file, call, loader)]
        collate = argument(call, "collate_fn", 6)
        arguments += [f"collate={source(file, collate)}"] if is_given(collate) else []
        pinned = argument(call, "pin_memory", 7)
        arguments += [f"pin_memory={source(file, pinned)}"] if is_set(pinned) else []
        dropped = argument(call, "drop_last", 8)
        if isinstance(dropped, ast.Constant) and dropped.value is True:
            arguments.append('short_batch="drop"')
        elif is_set(dropped):
            notes.append(f'short_batch="drop" where {source(file, dropped)} is true')
        after = f"tierfeed.torch.TierLoader({', '.join(arguments)})"
        notes += notes_of_epochs(file, name)
    modules = ["tierfeed.torch"]
    modules = ["tierfeed.images", *modules] if decode.startswith("tierfeed.images.") else modules
    lines = whole_lines(file, call)
    before_call, after_call = outside(file, call)
    return Change(
        file.name,
        call.lineno,
        lines,
        before_call + after + after_call,
        first_import(file),
        "\n".join(f"import {it}" for it in modules),
        notes,
    )


def call_at(file: File, loader: Finding) -> ast.Call | None:
    nodes: list[Any] = [node for it in file.statements for node in ast.walk(it)]
    calls = (it for it in nodes if isinstance(it, ast.Call) and it.lineno == loader.line)
    names = (last(loader.what), last(loader.what.replace("[", ".")))
    return next((it for it in calls if ast.unparse(it.func).rpartition(".")[2] in names), None)


def argument(call: ast.Call, name: str, place: int) -> ast.expr | None:
    named = next((it.value for it in call.keywords if it.arg == name), None)
    return named or (call.args[place] if place < len(call.args) else None)


def is_given(node: ast.expr | None) -> bool:
    return node is not None and not (isinstance(node, ast.Constant) and node.value is None)


def is_set(node: ast.expr | None) -> bool:
    return is_given(node) and not (isinstance(node, ast.Constant) and node.value is False)


def decode_of(file: File, call: ast.Call, loader: Finding) -> tuple[str, list[str]]:
    """What makes an input of training of a sample, and what is left to write."""
    dataset, reads = argument(call, "dataset", 0), loader.text("reads")
    if last(reads) in IMAGE_FOLDERS and isinstance(dataset, (ast.Name, ast.Attribute)):
        return f"tierfeed.images.decoder({source(file, dataset)}.transform)", []
    if last(reads) in IMAGE_FOLDERS and isinstance(dataset, ast.Call):
        transform = argument(dataset, "transform", 1)
        return f"tierfeed.images.decoder({source(file, transform)})", []
    what = f"the part of {reads} that makes an input of training" if reads else "your own function"
    return "decode", [f"decode(sample, label): {what}, of the bytes of one sample"]


def threads(file: File, call: ast.Call, loader: Finding) -> list[str]:
    workers = argument(call, "num_workers", 5)
    fact = loader.fact("num_workers")
    is_none = workers is None or (fact is not None and fact.of(int) == 0)
    return [] if is_none else [f"decode_threads={source(file, workers)}"]


def over_dataset(file: File, call: ast.Call, decode: str) -> str:
    """The call over a `TierDataset`."""
    new = ast.parse(f"tierfeed.torch.TierDataset(decode={decode})", mode="eval").body
    places = [new if it is argument(call, "dataset", 0) else it for it in call.args]
    keywords = [
        ast.keyword(it.arg, new) if it.arg == "dataset" else it for it in call.keywords
    ]
    return source(file, ast.Call(call.func, places, keywords))


def source(file: File, node: ast.expr | None) -> str:
    """On one line."""
    return " ".join(ast.unparse(node).split("\n")) if node else "None"


def whole_lines(file: File, call: ast.Call) -> str:
    return b"\n".join(file.lines[call.lineno - 1 : call.end_lineno]).decode(errors="replace")


def outside(file: File, call: ast.Call) -> tuple[str, str]:
    """What stands on the lines of a call before it and behind it."""
    first, end = file.lines[call.lineno - 1], file.lines[(call.end_lineno or call.lineno) - 1]
    before, behind = first[: call.col_offset], end[call.end_col_offset :]
    return before.decode(errors="replace"), behind.decode(errors="replace")


def first_import(file: File) -> int:
    """The line of the first plain import; `from __future__` stands before all others."""
    imports = (it for it in file.statements if isinstance(it, (ast.Import, ast.ImportFrom)))
    lines = [it.lineno for it in imports if getattr(it, "module", "") != "__future__"]
    return min(lines, default=1)


def name_of(file: File, call: ast.Call) -> str:
    """What the loader is assigned to."""
    nodes: list[Any] = [node for it in file.statements for node in ast.walk(it)]
    assigned = (it for it in nodes if isinstance(it, ast.Assign) and it.value is call)
    return next((source(file, it.targets[0]) for it in assigned), "LOADER")


def notes_of_epochs(file: File, name: str) -> list[str]:
    """A `set_epoch` is that of the loader, no longer of its sampler."""
    nodes: list[Any] = [node for it in file.statements for node in ast.walk(it)]
    calls = [it for it in nodes if isinstance(it, ast.Call) and it.args]
    calls = [it for it in calls if getattr(it.func, "attr", "") == "set_epoch"]
    own = f"becomes {name}.set_epoch"
    return [
        f"{file.name}:{it.lineno}, {source(file, it)} {own}({source(file, it.args[0])})" for it in calls
    ]


def place_of_epochs(findings: list[Finding]) -> str:
    found = epochs(findings)
    if found is None:
        return "before each epoch:"
    return f"{found[0].file}:{found[0].line}, at the start of each epoch:"
