"""What of a script a job does not carry over: what changes samples or labels, what is said elsewhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from .finding import Finding
from .load import File
from .values import last_name

OF_DATASET = {
    "target_transform": "labels are those of the files",
    "loader": "samples are the bytes of the files, and decode(sample, label) decodes them",
    "is_valid_file": "all files of the format are samples",
}
"""Arguments of datasets, and what a job does instead."""
OF_LOADER = {
    "collate_fn": "is collate= of TierLoader",
    "drop_last": 'is short_batch="drop" of TierLoader',
    "pin_memory": "is pin_memory= of TierLoader",
    "worker_init_fn": "has no counterpart: there are no worker processes",
    "num_workers": "are decode_threads= of TierLoader, for a decode that draws nothing at random: "
    "threads share the generators of the process",
}
"""Arguments of loaders, and where they are said."""
HELD = ("samples", "imgs", "targets", "classes", "class_to_idx", "data", "indices")
"""What a dataset of torchvision holds."""
CHANGES = ("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort", "shuffle")
SEVERAL = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.For)


class Carried(NamedTuple):
    part: str | None  # Why the training reads other samples than a job over the same files.
    warnings: list[str]  # What changes samples, labels or order.
    notes: list[str]  # What is said in another place.


def carried(files: list[File], findings: list[Finding], loader: Finding) -> Carried:
    part, place = loader.text("part"), f"{loader.file}:{loader.line}"
    told = f"{place}: the script trains on {part}; a job reads all of one source" if part else None
    warnings = [*of_dataset(findings, loader), *changes(files), *several(files, loader)]
    warnings += [
        f"{it.file}:{it.line}: {it.what}: {it.why}"
        for it in findings
        if it.kind == "advice" and "seed" not in it.what
    ]
    notes = [*of_loader(loader), *of_epochs(files, findings), *others(findings, loader)]
    return Carried(told, warnings, notes)


def of_dataset(findings: list[Finding], loader: Finding) -> Iterator[str]:
    place = f"{loader.file}:{loader.line}"
    for name, instead in OF_DATASET.items():
        fact = loader.fact(f"dataset.{name}")
        if fact and fact.text != "None":
            yield f"{place}: {name}={fact.text} of the dataset is not carried over: {instead}"
    own = loader.text("reads").split(",")[0].rpartition(" ")[2]
    for it in findings:
        if it.kind == "dataset" and own and it.what == f"class {own}":
            yield (
                f"{it.file}:{it.line}: which samples {own} has, in which order and with which labels, "
                "is not carried over: decode(sample, label) gets the bytes of one file or record"
            )
    readers = [it for it in findings if it.kind == "reader" and own]
    opened = [it for it in readers if it.text("in").startswith(f"{own}.")]
    if len(opened) > 1:
        names = ", ".join(f"{it.what} ({it.line})" for it in opened)
        several = f"one item of {own} opens several files: {names}"
        yield f"{opened[0].file}: {several}; a sample of a job is one"


def changes(files: list[File]) -> Iterator[str]:
    """Statements that change what a dataset holds, such as `images.samples = …`."""
    for file in files:
        for node in nodes_of(file):
            targets: list[Any] = []
            if isinstance(node, (ast.Assign, ast.Delete)):
                targets = node.targets
            elif isinstance(node, ast.AugAssign):
                targets = [node.target]
            elif isinstance(node, ast.Call) and last_name(node.func) in CHANGES:
                targets = [getattr(node.func, "value", None), *node.args]
            held = [it.value if isinstance(it, ast.Subscript) else it for it in targets]
            for it in held:
                is_own = last_name(getattr(it, "value", None)) in ("", "self")
                if isinstance(it, ast.Attribute) and it.attr in HELD and not is_own:
                    what = f"{ast.unparse(it)} is changed, which is not carried over"
                    yield f"{file.name}:{node.lineno}: {what}"


def several(files: list[File], loader: Finding) -> Iterator[str]:
    """A line that makes the loaders of several phases."""
    file = next(it for it in files if it.name == loader.file)
    called = [last_name(it.func) for own in files for it in nodes_of(own) if isinstance(it, ast.Call)]
    functions = (it for it in nodes_of(file) if isinstance(it, (ast.FunctionDef, ast.AsyncFunctionDef)))
    repeats: list[ast.AST] = [it for it in nodes_of(file) if isinstance(it, SEVERAL)]
    repeats += [it for it in functions if called.count(it.name) > 1]
    made = [it for node in repeats for it in ast.walk(node) if isinstance(it, ast.Call)]
    if any(it.lineno == loader.line and "Loader" in last_name(it.func) for it in made):
        yield (
            f"{loader.file}:{loader.line} makes several loaders: only that of the training is fed by "
            "this job; give it a line of its own"
        )


def of_loader(loader: Finding) -> Iterator[str]:
    for name, instead in OF_LOADER.items():
        fact = loader.fact(name)
        if fact and fact.text not in ("None", "False", "0"):
            yield f"{loader.file}:{loader.line}: {name}={fact.text} {instead}"


def of_epochs(files: list[File], findings: list[Finding]) -> Iterator[str]:
    """A `set_epoch` is that of the loader, no longer of its sampler."""
    calls = [(file, it) for file in files for it in nodes_of(file) if isinstance(it, ast.Call)]
    calls = [(file, it) for file, it in calls if getattr(it.func, "attr", "") == "set_epoch"]
    for file, it in calls:
        yield f"{file.name}:{it.lineno}: {ast.unparse(it)} becomes set_epoch of the TierLoader"
    for found in findings if calls else ():
        start = found.fact("start") if found.kind == "epochs" else None
        if start and start.text != "0":
            yield (
                f"{found.file}:{found.line} begins with epoch {start.text}: the job counts from 0, and"
                " the training leaves out those before"
            )


def others(findings: list[Finding], loader: Finding) -> Iterator[str]:
    here = (loader.file, loader.line)
    for it in findings:
        if it.kind == "loader" and (it.file, it.line) != here:
            phase = re.sub(r"^$", "another one", it.text("phase"))
            yield (
                f"{it.file}:{it.line}: this loader ({phase}) stays as it is, or reads one of the "
                "`datasets` of the job: TierLoader(dataset=NAME)"
            )


def nodes_of(file: File) -> list[Any]:
    return [node for it in file.statements for node in ast.walk(it)]
