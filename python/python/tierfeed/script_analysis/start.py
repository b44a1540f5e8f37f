"""What `tierfeed init` asks of scripts, each by itself: keys of a job, and what the job leaves out."""

from __future__ import annotations

import ast
import os
from functools import partial
from typing import Any

from .analysis import deeply, plain
from .carry import carried
from .find import Finder
from .finding import Finding
from .interpreter import Interpreter
from .job import Key, epochs, main_loader, order, ranks, told
from .load import ScriptError, load
from .values import CERTAIN, UNKNOWN

DISTRIBUTED = ("init_process_group", "DistributedDataParallel", "DistributedSampler", "Accelerator")


def starts(paths: list[str]) -> list[dict[str, Any]]:
    """In the order of the paths. A script that cannot be read says why."""
    return [deeply(partial(start, path)) for path in paths]


def start(path: str) -> dict[str, Any]:
    try:
        files, _ = load([path])
    except ScriptError as error:
        return {"script": path, "error": str(error)}
    findings = Finder(Interpreter(files)).all()
    loader, world = main_loader(findings), ranks(findings)
    passes = epochs(findings)
    places = {"order.epochs": f"{passes[0].file}:{passes[0].line}"} if passes else {}
    document = {
        "script": path,
        "imports": [os.path.realpath(it.name) for it in files[1:]],
        "loader": loader and {"what": loader.what, "file": loader.file, "line": loader.line},
        "trains": is_training(files[0].statements, findings),
        "is_distributed": any(
            it.kind == "distribution" and it.what.endswith(DISTRIBUTED) for it in findings
        ),
        "shuffle": order(loader) if loader else "",
        "keys": [key(it, places) for it in told(findings, loader)] if loader else [],
        "world": {"nodes": world[2], "ranks_per_node": world[1]} if world else None,
    }
    if loader:
        format = loader.fact("format")
        document["reads"] = loader.text("reads")
        document["is_foreign"] = format is not None and not format.value and " or " not in format.text
        document.update(carried(files, findings, loader)._asdict())
    return plain(document)  # type: ignore[no-any-return]


def is_training(statements: list[ast.stmt], findings: list[Finding]) -> bool:
    """Whether a file is one that starts a training, rather than a module of one."""
    is_started = any(
        isinstance(it, (ast.For, ast.While))
        or (isinstance(it, ast.If) and "__name__" in ast.unparse(it.test))
        for it in statements
    )
    return is_started and any(it.kind in ("phase", "epochs") for it in findings)


def key(of: Key, places: dict[str, str]) -> dict[str, Any]:
    """What is not certain says why, what is certain may have a place of its own."""
    fact = of.fact
    is_known = fact is not None and fact.certainty is not UNKNOWN
    why = fact.why if fact else of.missing
    value = fact.value if fact and is_known else None
    is_certain = fact is not None and fact.certainty is CERTAIN
    return {"name": of.name, "value": value, "why": why or places.get(of.name), "is_certain": is_certain}
