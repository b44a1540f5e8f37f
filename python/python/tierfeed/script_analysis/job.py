"""The job file that a script suggests, and where a script does something else than a job file says."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from . import tables
from .finding import Fact, Finding, said
from .values import CERTAIN, LIKELY, UNKNOWN, Certainty

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Contradiction(NamedTuple):
    key: str
    job: str
    script: str
    file: str
    line: int
    certainty: Certainty
    why: str | None


class Key(NamedTuple):
    """What a script says of a key of a job file."""

    name: str  # With its section, such as `order.seed`.
    fact: Fact | None
    missing: str = "unknown"  # What is said if there is no fact.


def main_loader(findings: list[Finding]) -> Finding | None:
    """The loader or pipeline that a job is about: the one for training, else the first."""
    loaders = [it for it in findings if it.kind in ("loader", "pipeline")]
    return min(loaders, key=lambda it: {"training": 0, "": 1}.get(it.text("phase"), 2), default=None)


def epochs(findings: list[Finding]) -> tuple[Finding, Fact] | None:
    """The passes over the data, and where it stands."""
    facts = [(it, it.fact("epochs")) for it in findings if it.kind == "epochs"]
    told = [(it, fact) for it, fact in facts if fact]
    return next((it for it in told if it[1].of(int) is not None), told[0] if told else None)


def order(loader: Finding) -> str:
    """The order of a loader, if it is at least likely."""
    fact = loader.fact("order.shuffle")
    return (fact.of(str) if fact else None) or ""


def seed(findings: list[Finding], loader: Finding) -> Fact | None:
    """The seed of the order that a loader reads in."""
    name, calls = order(loader), tables.GLOBAL_SEEDS
    if loader.fact("generator"):
        calls = ["torch.Generator.manual_seed"]
    seeds = [it for it in findings if it.kind == "seed" and it.what in calls]
    is_exact = len(seeds) == 1 and loader.fact("generator")
    if name == "torch-random" and seeds and not is_exact:
        where = ", ".join(f"{it.file}:{it.line}" for it in seeds)
        why = f"{where}: torch-random repeats it only if nothing draws before the loop, as models do"
        return said("seed", seeds[0].text("seed"), UNKNOWN, why)
    own, calls = {
        "torch-distributed": ("sampler.seed", ["lightning.seed_everything"]),
        "torch-random": ("", calls),
        "grain": ("seed", ["grain.IndexSampler"]),
        "mosaic": ("shuffle_seed", []),
        "tf-shuffle": ("seed", []),
    }.get(name, ("", []))
    first = next((it for it in findings if it.kind == "seed" and it.what in calls), None)
    return loader.fact(own) or (first.fact("seed") if first else None)


def ranks(findings: list[Finding]) -> tuple[Finding, int, int] | None:
    """Ranks on a node, and nodes, where a script says so itself."""
    for it in (it for it in findings if it.kind == "distribution"):
        facts = [it.fact(name) for name in ("nprocs", "devices", "num_nodes")]
        spawned, devices, nodes = (max(fact.of(int) or 0, 0) if fact else 0 for fact in facts)
        if spawned or devices:
            return it, spawned or devices, nodes or 1
    return None


def suggested(script: str, findings: list[Finding]) -> str:
    """Keys that are at least likely, the others as comments."""
    loader = main_loader(findings)
    if loader is None:
        lines = ["# no loader was found: nothing can be suggested"]
        for it in findings:
            if it.kind == "reader":
                format = it.text("format") or "unknown"
                lines.append(f"# {it.file}:{it.line} reads files with {it.what}: format {format}")
    else:
        stem = re.sub(r"(\.py)+$", "", script.rpartition("/")[2])
        name = re.sub(r"[^A-Za-z0-9]", "-", stem).strip("-") or "job"
        lines = [f"# from {loader.file}:{loader.line}, {loader.what}", f"name: {name}"]
        lines += keys(findings, loader)
    return "".join(f"{CONTROL.sub(' ', it)}\n" for it in lines)


def keys(findings: list[Finding], loader: Finding) -> list[str]:
    """The lines of a job file."""
    world, lines, section = ranks(findings), [], ""
    for it in told(findings, loader):
        around, _, name = it.name.rpartition(".")
        if around and around != section:
            lines.append(f"{around}:")
        section = around
        lines.append(key("  " * bool(around) + name, it.fact, it.missing))
    if world:
        return [*lines, f"world: {{ nodes: {world[2]}, ranks_per_node: {world[1]} }}"]
    return [*lines, "# world: the launcher decides how many nodes and ranks there are"]


def told(findings: list[Finding], loader: Finding) -> list[Key]:
    """What a script says of the keys of a job, in the order of a job file."""
    passes = epochs(findings)
    found = [
        Key("dataset.source", loader.fact("source"), "not found in the script"),
        Key("dataset.format", loader.fact("format"), "what is read is not found"),
    ]
    if loader.text("format") == "raw":
        found.append(Key("dataset.record_bytes", loader.fact("record_bytes"), "the size of a record"))
    found.append(Key("order.shuffle", loader.fact("order.shuffle"), "not found"))
    found += [it._replace(name=f"order.{it.name}") for it in told_of_order(findings, loader)]
    found.append(Key("order.epochs", passes and passes[1], "no loop over epochs was found"))
    return [*found, Key("batch_size", loader.fact("batch_size"), "not found")]


def told_of_order(findings: list[Finding], loader: Finding) -> list[Key]:
    """The keys that only the order of a loader has."""
    name, found = order(loader), []

    def add(own: str, argument: str, only_if: bool | None = None) -> None:
        fact = loader.fact(argument)
        if fact and (only_if is None or fact.of(bool) is only_if):
            found.append(Key(own, fact))

    if name not in ("", "sequential", "published"):
        unset = "the script sets no seed"
        found.append(Key("seed", seed(findings, loader), unset))
    if name == "torch-distributed":
        add("drop_last", "sampler.drop_last", True)
    elif name == "torch-random":
        found += [Key("generator", said("generator", "loader"))] if loader.fact("generator") else []
        add("persistent_workers", "persistent_workers", True)
    elif name == "tf-shuffle":
        unknown = "the buffer of `shuffle` is not known"
        found.append(Key("buffer", loader.fact("buffer_size"), unknown))
        global_seed = next((it for it in findings if it.what == "tensorflow.random.set_seed"), None)
        fact = global_seed and global_seed.fact("seed")
        found += [Key("global_seed", fact)] if fact else []
        add("reshuffle", "reshuffle_each_iteration", False)
    elif name == "mosaic":
        found.append(Key("shard_samples", None, "samples in a shard: see index.json"))
        add("algorithm", "shuffle_algo")
        add("canonical_nodes", "num_canonical_nodes")
        add("shuffle_block", "shuffle_block_size")
    return found


def key(name: str, fact: Fact | None, missing: str = "unknown") -> str:
    value = scalar(fact.value) if fact and fact.certainty is not UNKNOWN else None
    if fact and value is not None:
        comment = f"  # {fact.certainty.name.lower()}: {fact.why}"
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
    is_word = re.fullmatch(r"[A-Za-z/][A-Za-z0-9_./-]*", value)
    if is_word and value not in ("true", "false", "null", "yes", "no", "on", "off"):
        return value
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + CONTROL.sub(lambda it: f"\\u{ord(it[0]):04x}", text) + '"'


def contradictions(findings: list[Finding], job: dict[str, Any]) -> list[Contradiction]:
    """Where the script differs from a job; a value that is unknown contradicts nothing."""
    loader, found = main_loader(findings), []
    if loader is None:
        return []
    passes, name = epochs(findings), order(loader)
    is_drawn = name == job["shuffle"] and name not in ("sequential", "published")
    # A published order is the one in which the trainer reads. The job's `drop_last` is that of the
    # sampler, which cuts an epoch to a multiple of the ranks.
    for own, place, fact, kind in (
        ("batch_size", loader, loader.fact("batch_size"), int),
        ("order.epochs", *(passes or (loader, None)), int),
        ("order.seed", loader, seed(findings, loader) if is_drawn else None, int),
        ("order.shuffle", loader, loader.fact("order.shuffle"), str),
        ("dataset.format", loader, loader.fact("format"), str),
        ("order.drop_last", loader, loader.fact("sampler.drop_last"), bool),
    ):
        of_job = job[own.rpartition(".")[2]]
        is_told = fact and fact.of(kind) is not None and (own, of_job) != ("order.shuffle", "published")
        if fact and is_told and fact.value != of_job:
            text = str(of_job).lower() if isinstance(of_job, bool) else str(of_job)
            found.append(Contradiction(own, text, fact.text, place.file, place.line, *fact[3:]))
    world, nodes, per_node = ranks(findings), job["nodes"], job["ranks_per_node"]
    if world and world[1:] != (per_node, nodes):
        place, count, on = world
        both = f"{nodes} nodes of {per_node} ranks", f"{on} nodes of {count} ranks"
        found.append(Contradiction("world", *both, place.file, place.line, LIKELY, place.what))
    return found
