"""What a script says, as text for people and as a document of JSON."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from . import job
from .find import Finder
from .finding import Finding
from .interpreter import Interpreter
from .load import File, load
from .values import CERTAIN, Certainty

T = TypeVar("T")

STACK_BYTES = 256 << 20
"""Of the thread that looks at deeply nested scripts; only what is used takes memory."""


class Analysis(NamedTuple):
    files: list[str]
    findings: list[Finding]
    syntax_errors: list[tuple[str, int, str]]
    left_out: list[str]
    job_yaml: str
    contradictions: list[job.Contradiction]


def analyze(paths: list[str], of_job: dict[str, Any] | None = None) -> Analysis:
    """Analyses scripts, and the files beside them that they import."""
    return deeply(lambda: of_files(*load(paths), of_job))


def analyze_text(name: str, text: str, of_job: dict[str, Any] | None = None) -> Analysis:
    return deeply(lambda: of_files([File(name, text)], [], of_job))


def deeply(function: Callable[[], T]) -> T:
    """Runs a function with room for recursion."""
    limit, size = sys.getrecursionlimit(), threading.stack_size(STACK_BYTES)
    sys.setrecursionlimit(max(limit, 40_000))
    try:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(function).result()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)


def of_files(files: list[File], left_out: list[str], of_job: dict[str, Any] | None) -> Analysis:
    interpreter = Interpreter(files)
    findings = Finder(interpreter).all()
    if interpreter.fuel <= 0:
        left_out.append("the files are larger than can be followed; some values are missing")
    errors = [(file.name, line, what) for file in files for line, what in file.problems]
    suggested = job.suggested(files[0].name, findings)
    contradictions = job.contradictions(findings, of_job) if of_job else []
    return Analysis([it.name for it in files], findings, errors, left_out, suggested, contradictions)


def document(analysis: Analysis) -> dict[str, Any]:
    findings = [{**vars(it), "facts": [fact._asdict() for fact in it.facts]} for it in analysis.findings]
    errors = [dict(zip(("file", "line", "what"), it)) for it in analysis.syntax_errors]
    contradictions = [it._asdict() for it in analysis.contradictions]
    whole = {**analysis._asdict(), "findings": findings, "syntax_errors": errors}
    return plain({**whole, "contradictions": contradictions})  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """As JSON can hold it."""
    if isinstance(value, Certainty):
        return value.name.lower()
    if isinstance(value, dict):
        return {name: plain(it) for name, it in value.items()}
    if isinstance(value, list):
        return [plain(it) for it in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(analysis: Analysis) -> str:
    """The lines that people read."""
    lines, kind = [], ""
    for found in analysis.findings:
        if found.kind != kind:
            lines += ["", found.kind] if kind else [found.kind]
        kind = found.kind
        lines.append(f"  {found.file}:{found.line}  {found.what}{sure(found.certainty, found.why)}")
        lines += [f"    {it.name:<19} {it.text}{sure(it.certainty, it.why)}" for it in found.facts]
    sections = {
        "not Python": [f"{file}:{line}  {what}" for file, line, what in analysis.syntax_errors],
        "left out": analysis.left_out,
        "contradictions with the job": [
            f"{it.key}: {it.job} in the job, {it.script} at {it.file}:{it.line}"
            + sure(it.certainty, it.why, is_told=True)[1:]
            for it in analysis.contradictions
        ],
        "job file that this suggests": analysis.job_yaml.splitlines(),
    }
    lines = lines or ["nothing of PyTorch, TensorFlow or JAX was found"]
    for title, items in sections.items():
        lines += ["", title, *(f"  {it}" for it in items)] if items else []
    return "".join(f"{it.rstrip()}\n" for it in lines)


def sure(certainty: Certainty, why: str | None, is_told: bool = False) -> str:
    """What is certain needs no word, but for where it comes from."""
    if certainty is CERTAIN and not is_told:
        return f"  ({why})" if why else ""
    return f"  [{certainty.name.lower()}: {why}]" if why else f"  [{certainty.name.lower()}]"
