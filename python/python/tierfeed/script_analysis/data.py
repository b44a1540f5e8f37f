"""What a loader reads, through the objects that are wrapped around it, and what becomes of a sample."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from typing import Any

from . import tables
from .finding import Fact, fact_of, facts_of, merged, said, shown
from .interpreter import Interpreter
from .tables import last
from .values import CERTAIN, LIKELY, UNKNOWN, AnyOf, Call, Definition, Instance, Known, Symbol

DEPTH_MAX = 24  # Wrappers inside one another that are followed.
SOURCES = tables.names("""root urls remote local input_dir data_dir filenames file_pattern directory
paths path file fname filename""")
"""Arguments of libraries that say where the files are."""
OWN_SOURCES = tables.names("""root data_dir data_root data_path path directory file filename root_dir
index_file""")
"""Arguments of classes of these files that say so."""
CARRIED = ("target_transform", "loader", "is_valid_file")
"""Arguments of datasets that change samples or labels."""
HELD = {"synthetic": "made up in memory, nothing is read", "whole": "held in memory as a whole",
        "library": "files that only its library reads"}  # fmt: skip


@dataclass
class Origin:
    """Where samples come from."""

    name: str = ""
    path: str = ""  # The class or function of a library; empty for one of these files.
    format: Fact | None = None
    source: Fact | None = None
    made: Call | None = None
    part: str = ""  # What it is of the files, if it is not all that is in them.
    facts: list[Fact] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    """Arguments that say which part of the data this is: `train=False`, `split="val"`, a path."""

    @property
    def told(self) -> list[Fact]:
        reads = [said("reads", self.name)] if self.name else []
        part = [said("part", self.part)] if self.part else []
        given = [it._replace(name=f"dataset.{it.name}") for it in self.facts if it.name in CARRIED]
        return reads + part + [it for it in (self.format, self.source) if it] + given


class Origins:
    def __init__(self, interpreter: Interpreter, calls: list[list[Call]]) -> None:
        self.interpreter = interpreter
        self.calls = calls  # Of each call, those that lead to it.

    def of(self, known: Known | None, depth: int = DEPTH_MAX) -> Origin:
        value = known.value if known and depth else None
        if isinstance(value, Call):
            return self.of_call(value, depth - 1)
        if isinstance(value, Instance):
            return self.of_class(value.of, value.made)
        several = value.alternatives if isinstance(value, AnyOf) else value
        several = several if isinstance(several, tuple) else ()
        return one_origin([self.of(it, depth - 1) for it in several])

    def of_call(self, call: Call, depth: int) -> Origin:
        if call.on and tables.family(call.path) and not isinstance(call.on.value, Symbol):
            before, opened = self.of(call.on, depth), self.opened_by(call)
            source = before.source or opened.source
            found = replace(opened, source=source, hints=before.hints) if opened.format else before
            return replace(found, part=found.part or tables.PARTS.get(call.method, ""))
        if call.path in tables.WRAPPERS:
            inner = self.of(call.argument("dataset", 0), depth)
            part = tables.PARTS.get(last(call.path)) or inner.part
            return replace(inner, name=f"{last(call.path)} over {inner.name}", part=part)
        spec = tables.spec_of(call.path, "dataset", "reader")
        if not spec:
            held = Fact("format", None, "none", CERTAIN, HELD["library"])
            of_library = held if ".datasets." in call.path else None
            return Origin(last(call.path), call.path, of_library, made=call)
        return of_facts(call.path, facts_of(spec.parameters, call), call)

    def opened_by(self, call: Call) -> Origin:
        """What the function of `interleave` or `flat_map` opens."""
        given = call.find("map_func", 0)
        if not given or not given.node or not call.path.endswith((".interleave", ".flat_map")):
            return Origin()
        value = given.known.value
        body = set(ast.walk(value.node if isinstance(value, Definition) else given.node))
        paths = [value.path] if isinstance(value, Symbol) else []
        paths += [it[0].path for it in self.calls if it[0].node in body]
        path = next((it for it in paths if tables.spec_of(it, "dataset")), None)
        return of_facts(path, [], None) if path else Origin()

    def of_class(self, of: Definition, made: Call | None) -> Origin:
        name, hints = of.node.name, hints_of(made) if made else []
        inside = [it for it in self.calls if it[0].step.class_around == of]
        for base in self.interpreter.library_bases(of):
            starts = [
                it for calls in inside for it in calls if (it.path, it.method) == (base, "__init__")
            ]
            own = [it for it in starts if made and getattr(it.step.frame.this, "made", None) is made]
            call = next(iter(own or starts), made)
            spec = tables.spec_of(base, "dataset")
            if spec and call:
                origin = of_facts(base, facts_of(spec.parameters, call), made)
                return replace(origin, name=f"{name}, a {last(base)}", hints=hints + origin.hints)
        specs = [(tables.spec_of(it[0].path, "reader"), merged(it)) for it in inside]
        read = [(facts_of(spec.parameters, it), it) for spec, it in specs if spec]
        source = source_of(made) if made else None
        if not source and read:
            source = next((it._replace(name="source") for it in read[0][0][:1] if it.of(str)), None)
        format = next((it for it in (format_of(it.path, it) for _, it in read) if it), None)
        by = f"{name}, which calls {read[0][1].path}" if read else name
        return Origin(by, format=format, source=source, made=made, hints=hints)


def of_facts(path: str, facts: list[Fact], made: Call | None) -> Origin:
    named = {it.name: it for it in reversed(facts)}
    train = named["train"].of(bool) if "train" in named else None
    hints = [] if train is None else ["train=True" if train else "validation: train=False"]
    hints += [named[it].value for it in ("split", "name", "subset") if it in named and named[it].of(str)]
    source = next((named[it] for it in SOURCES if it in named), None)
    hints += [source.text] if source else []
    part = "a part of the files, by validation_split" if "validation_split" in named else ""
    if source and tables.format_of(path) == "whole":
        source = None
    is_name = source and source.name == "path" and not (source.of(str) or "").startswith(("/", "."))
    if source and is_name and path == "datasets.load_dataset":
        why = "a name, not a path: its files are in the cache of `datasets`"
        source = source._replace(value=None, certainty=UNKNOWN, why=why)
    if source:
        source = source._replace(name="source", value=directory_of(source.value))
    return Origin(last(path), path, format_of(path), source, made, part, facts, hints)


def directory_of(value: Any) -> Any:
    """Files that are listed one by one are found in their directory, if they have the same."""
    if not isinstance(value, list):
        return value
    directories = {it.rpartition("/")[0] if isinstance(it, str) else "" for it in value}
    return (directories.pop() or None) if len(directories) == 1 else None


def format_of(path: str, reader: Call | None = None) -> Fact | None:
    """The format that holds what a dataset, or a function that reads, gets its samples from."""
    name = tables.format_of(path)
    if name in HELD:
        return None if reader else Fact("format", None, "none", CERTAIN, HELD[name])
    if name == "by name" and reader:
        named = [it for it in ("npy", "npz") if f".{it}" in reader.step.frame.file.text]
        if len(named) != 1:
            return said("format", "npy or npz", UNKNOWN, "nothing here says which")
        return said("format", named[0], LIKELY, f"the file speaks of .{named[0]}")
    if name in tables.FOREIGN and not reader:
        return said("format", name, UNKNOWN, "tierfeed has no such format")
    if name in ("", "by name", *tables.FOREIGN):
        return None
    if reader:
        return said("format", name, LIKELY, f"read by {path}")
    if path.startswith(("datasets.", "tensorflow_d")):
        return said("format", name, LIKELY, "the format of its cache, unless it streams")
    return said("format", name, CERTAIN, f"as {last(path)} reads")


def source_of(made: Call) -> Fact | None:
    """The first argument that is a path, by its name or its look."""
    named = next((it for key, it in made.given.items() if key in OWN_SOURCES), None)
    given = named or next(iter(made.given.values()), None)
    if not given:
        return None
    fact = fact_of("source", given.known, made.step.source(given.node) if given.node else "?")
    text = given.known.of(str)
    if text is not None and (named or "/" in text or "." in text):
        why = fact.why or "an argument of the class"
        return fact._replace(certainty=max(fact.certainty, LIKELY), why=why)
    return fact if given.known.value is ... else None


def hints_of(made: Call) -> list[str]:
    hints = []
    for key, (node, known) in made.given.items():
        if "train" in str(key) and known.of(bool) is not None:
            hints.append("train=True" if known.value else "validation: train=False")
        else:
            hints.append(known.of(str) or (made.step.source(node) if node else ""))
    return hints


def one_origin(origins: list[Origin]) -> Origin:
    # Made-up data is for trying things out; a job is about the files.
    made_up = [it for it in origins if tables.format_of(it.path) == "synthetic"]
    real = [it for it in origins if it.name and it not in made_up]
    for it in real if made_up else ():
        why = f"unless it is {made_up[0].name}"
        for name, fact in (("format", it.format), ("source", it.source)):
            if fact and fact.certainty is CERTAIN:
                setattr(it, name, fact._replace(certainty=LIKELY, why=why))
    origins = real or [it for it in origins if it.name]
    if not origins:
        return Origin()
    first, name = origins[0], " or ".join(dict.fromkeys(it.name for it in origins))
    if len({it.format and it.format.text for it in origins}) > 1:
        first = replace(first, format=None)
    if len({it.source and it.source.text for it in origins}) > 1:
        first = replace(first, source=None)
    return replace(first, name=name, hints=first.hints if len(origins) == 1 else [])


class Sample:
    """What transforms make of a sample: its bytes are the product of its sides and those of an element
    (DeepMemoryDL, 3.3.2).
    """

    def __init__(self, calls: list[Call]) -> None:
        self.sides: list[Known] | None = None
        self.channels: int | None = None
        self.element: Any = None
        self.is_whole = self.is_sure = self.is_channels_first = False
        specs = [(tables.spec_of(it.path, "transform"), it) for it in calls]
        self.steps = [last(spec.path) for spec, _ in specs if spec]
        for spec, call in specs:
            if spec:
                self.apply(spec.says, [call.argument(it.name, it.place) for it in spec.parameters])

    def apply(self, effect: str, given: list[Known | None]) -> None:
        known = given[0] if given else None
        if effect in ("sides", "shape", "resize"):
            is_kept = effect == "resize" and known and known.of(int) is not None
            sides = [] if is_kept or None in given else [it for it in given if it]
            if len(sides) == 1:
                sides = list(sides[0].of(tuple) or sides)
                sides = sides * 2 if len(sides) == 1 else sides
            self.sides = sides or None
            self.is_whole = effect == "shape"
        elif effect == "channels":
            self.channels = (known.of(int) if known else None) or None
            self.is_sure, self.element = self.channels is not None, self.element or "uint8"
        elif effect == "gray":
            self.channels, self.is_sure = 1, True
        elif effect == "type":
            value = known.value if known else None
            self.element = last(value.path) if isinstance(value, Symbol) else known and known.of(str)
        else:
            self.element, self.is_channels_first = effect, True
            # Image folders are read as RGB.
            self.channels = self.channels or 3

    @property
    def is_sized(self) -> bool:
        return self.sides is not None or self.channels is not None

    @property
    def facts(self) -> list[Fact]:
        """The shape, and the bytes of a sample if all of it is known."""
        if self.sides is None:
            return [said("shape", "?", UNKNOWN, "no step fixes the size")]
        hidden = next((it for it in self.sides if (it.of(int) or -1) < 0), None)
        if hidden:
            return [said("shape", "?", UNKNOWN, hidden.why or "a side is computed")]
        worst = max(self.sides, key=lambda it: it.certainty)
        dimensions = [it.value for it in self.sides]
        certainty, why = worst.certainty, worst.why if worst.certainty else None
        if not self.is_whole and self.channels:
            dimensions.insert(0 if self.is_channels_first else len(dimensions), self.channels)
            if not self.is_sure:
                certainty = max(certainty, LIKELY)
                why = why or "3 channels, as image folders are read"
        text = f"{' x '.join(map(str, dimensions))} {self.element or 'elements of an unknown type'}"
        facts = [said("shape", text, certainty, why)]
        size = int(tables.ELEMENT_BYTES.get(self.element or "", 0))
        for dimension in dimensions:
            size *= dimension
        if 0 < size < 1 << 63 and (self.is_whole or self.channels):
            facts.append(Fact("sample_bytes", size, f"{size} B", certainty, why))
        return facts


def transforms_of(call: Call) -> tuple[list[str], Sample]:
    """The names of the transforms in a list, and what they make of a sample."""
    items = call.first.value
    if not isinstance(items, tuple):
        items = [it.known for it in call.given.values()]
    names = [last(it.value.path) if isinstance(it.value, Call) else shown(it) for it in items]
    return names, Sample([it.value for it in items if isinstance(it.value, Call)])
