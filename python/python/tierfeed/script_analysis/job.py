"""The job file that a script suggests, and where a script does something else than a job file says."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from . import known as tables
from .finding import Fact, Finding
from .value import CERTAIN, LIKELY, UNKNOWN, Certainty


class Contradiction(NamedTuple):
    key: str
    job: str
    script: str
    file: str
    line: int
    certainty: Certainty
    why: str | None


def main_loader(findings: list[Finding]) -> Finding | None:
    """The loader or pipeline that a job is about: the one for training, else the first."""
    loaders = [it for it in findings if it.kind in ("loader", "pipeline")]
    phases = [getattr(it.fact("phase"), "text", None) for it in loaders]
    for phase in ("training", None):
        if phase in phases:
            return loaders[phases.index(phase)]
    return loaders[0] if loaders else None


def epochs(findings: list[Finding]) -> tuple[Finding, Fact] | None:
    """The passes over the data, and where it stands."""
    facts = [(it, it.fact("epochs")) for it in findings if it.kind == "epochs"]
    told = [(it, fact) for it, fact in facts if fact]
    return next((it for it in told if it[1].of(int) is not None), told[0] if told else None)


def seed(findings: list[Finding], loader: Finding) -> Fact | None:
    """The seed of the order that a loader reads in."""

    def of(*names: str) -> Fact | None:
        found = (it for it in findings if it.kind == "seed" and it.what in names)
        first = next(found, None)
        return first.fact("seed") if first else None

    name = order(loader)
    if name == "torch-distributed":
        return loader.fact("sampler.seed") or of("lightning.seed_everything")
    if name == "torch-random":
        is_own = loader.fact("generator")
        return of(*(["torch.Generator.manual_seed"] if is_own else tables.GLOBAL_SEEDS))
    if name == "grain":
        return loader.fact("seed") or of("grain.IndexSampler")
    return loader.fact({"mosaic": "shuffle_seed", "tf-shuffle": "seed"}.get(name or "", ""))


def order(loader: Finding) -> str | None:
    """The order of a loader, if it is at least likely."""
    fact = loader.fact("order.shuffle")
    found: str | None = fact.of(str) if fact else None
    return found


def ranks(findings: list[Finding]) -> tuple[Finding, int, int] | None:
    """Ranks on a node, and nodes, where a script says so itself."""

    def number(it: Finding, name: str) -> int:
        fact = it.fact(name)
        return max(fact.of(int) or 0, 0) if fact else 0

    for it in findings:
        count = number(it, "nprocs") or number(it, "devices")
        if it.kind == "distribution" and count:
            return it, count, number(it, "num_nodes") or 1
    return None


def suggested(script: str, findings: list[Finding]) -> str:
    """Keys that are at least likely, the others as comments."""
    loader = main_loader(findings)
    if loader is None:
        lines = ["# no loader was found: nothing can be suggested"]
        for it in findings:
            if it.kind == "reader":
                text = getattr(it.fact("format"), "text", "unknown")
                lines.append(f"# {it.file}:{it.line} reads files with {it.what}: format {text}")
        return "".join(f"{one_line(it)}\n" for it in lines)
    stem = re.sub(r"(\.py)+$", "", script.rpartition("/")[2])
    name = re.sub(r"[^A-Za-z0-9]", "-", stem).strip("-") or "job"
    lines = [f"# from {loader.file}:{loader.line}, {loader.what}", f"name: {name}", "dataset:"]
    lines.append(key("  source", loader.fact("source"), "not found in the script"))
    lines.append(key("  format", loader.fact("format"), "what is read is not found"))
    if getattr(loader.fact("format"), "text", "") == "raw":
        lines.append(key("  record_bytes", loader.fact("record_bytes"), "the size of a record"))
    lines += ["order:", key("  shuffle", loader.fact("order.shuffle"), "not found")]
    lines += keys_of_order(findings, loader)
    passes = epochs(findings)
    lines.append(key("  epochs", passes[1] if passes else None, "no loop over epochs was found"))
    lines.append(key("batch_size", loader.fact("batch_size"), "not found"))
    world, unsaid = ranks(findings), "the launcher decides how many nodes and ranks there are"
    counts = f"{{ nodes: {world[2]}, ranks_per_node: {world[1]} }}" if world else ""
    lines.append(f"world: {counts}" if world else f"# world: {unsaid}")
    return "".join(f"{one_line(it)}\n" for it in lines)


def keys_of_order(findings: list[Finding], loader: Finding) -> list[str]:
    """The keys that only the order of a loader has."""
    name, lines = order(loader), []

    def only_if(value: bool, own: str, fact: Fact | None) -> None:
        if fact and fact.of(bool) is value:
            lines.append(key(own, fact))

    if name not in (None, "sequential", "published"):
        unset = "no seed is set; without one use `published`"
        lines.append(key("  seed", seed(findings, loader), unset))
    if name == "torch-distributed":
        only_if(True, "  drop_last", loader.fact("sampler.drop_last"))
    elif name == "torch-random":
        lines += ["  generator: loader"] if loader.fact("generator") else []
        only_if(True, "  persistent_workers", loader.fact("persistent_workers"))
    elif name == "tf-shuffle":
        lines.append(key("  buffer", loader.fact("buffer_size"), "the buffer of `shuffle` is not known"))
        found = next((it for it in findings if it.what == "tensorflow.random.set_seed"), None)
        fact = found.fact("seed") if found else None
        lines += [key("  global_seed", fact)] if fact else []
        only_if(False, "  reshuffle", loader.fact("reshuffle_each_iteration"))
    elif name == "mosaic":
        lines.append(key("  shard_samples", None, "samples in a shard: see index.json"))
        names = {"algorithm": "shuffle_algo", "canonical_nodes": "num_canonical_nodes",
                 "shuffle_block": "shuffle_block_size"}  # fmt: skip
        for own, argument in names.items():
            fact = loader.fact(argument)
            lines += [key(f"  {own}", fact)] if fact else []
    return lines


def key(name: str, fact: Fact | None, missing: str = "unknown") -> str:
    value = scalar(fact.value) if fact and fact.certainty is not UNKNOWN else None
    if fact and value is not None:
        word = fact.certainty.name.lower()
        comment = f"  # {word}: {fact.why}" if fact.why else f"  # {word}"
        return f"{name}: {value}" + ("" if fact.certainty is CERTAIN else comment)
    indent = " " * (len(name) - len(name.lstrip()))
    why = f"{fact.text}: {fact.why or 'unknown'}" if fact else missing
    return f"{indent}# {name.strip()}: {why}"


def scalar(value: Any) -> str | None:
    """As YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, str):
        return None
    if re.fullmatch(r"[A-Za-z/][A-Za-z0-9_./-]*", value) and value not in (
        "true", "false", "null", "yes", "no", "on", "off",
    ):  # fmt: skip
        return value
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f-\x9f]", lambda it: f"\\u{ord(it[0]):04x}", text) + '"'


def one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", text)


def contradictions(findings: list[Finding], job: dict[str, Any]) -> list[Contradiction]:
    """Where the script differs from a job; a value that is unknown contradicts nothing."""
    loader = main_loader(findings)
    if loader is None:
        return []
    found: list[Contradiction] = []

    def compare(name: str, place: Finding, fact: Fact | None, kind: type, of_job: Any) -> None:
        if fact and fact.of(kind) is not None and fact.value != of_job:
            shown = str(of_job).lower() if isinstance(of_job, bool) else str(of_job)
            sure = fact.certainty, fact.why
            found.append(Contradiction(name, shown, fact.text, place.file, place.line, *sure))

    compare("batch_size", loader, loader.fact("batch_size"), int, job["batch_size"])
    passes = epochs(findings)
    if passes:
        compare("order.epochs", *passes, int, job["epochs"])
    name = order(loader)
    if name == job["shuffle"] and name not in ("sequential", "published"):
        compare("order.seed", loader, seed(findings, loader), int, job["seed"])
    # A published order is the one in which the trainer reads.
    if job["shuffle"] != "published":
        compare("order.shuffle", loader, loader.fact("order.shuffle"), str, job["shuffle"])
    compare("dataset.format", loader, loader.fact("format"), str, job["format"])
    # The job's `drop_last` is that of the sampler, which cuts an epoch to a multiple of the ranks.
    compare("order.drop_last", loader, loader.fact("sampler.drop_last"), bool, job["drop_last"])
    world, nodes, per_node = ranks(findings), job["nodes"], job["ranks_per_node"]
    if world and world[1:] != (per_node, nodes):
        place, count, on = world
        both = f"{nodes} nodes of {per_node} ranks", f"{on} nodes of {count} ranks"
        found.append(Contradiction("world", *both, place.file, place.line, LIKELY, place.what))
    return found
