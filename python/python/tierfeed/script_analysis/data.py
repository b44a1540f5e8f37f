"""What a loader reads, through the objects that are wrapped around it, and what becomes of a sample."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from . import known as tables
from .finding import Fact, fact_of, facts_of, merged, said, shown
from .interpreter import Interpreter
from .value import (
    CERTAIN,
    LIKELY,
    UNKNOWN,
    AnyOf,
    Definition,
    Instance,
    Known,
    Made,
    Sequence,
    Symbol,
)

DEPTH_MAX = 24  # Wrappers inside one another that are followed.
SOURCES = tables.names("""root urls remote local input_dir data_dir filenames file_pattern directory
paths path file fname filename""")
"""Arguments of libraries that say where the files are."""
OWN_SOURCES = tables.names("""root data_dir data_root data_path path directory file filename root_dir
index_file""")
"""Arguments of classes of these files that say so."""


@dataclass
class Origin:
    """Where samples come from."""

    name: str = ""
    path: str = ""  # The class or function of a library; empty for one of these files.
    format: Fact | None = None
    source: Fact | None = None
    made: Made | None = None
    is_part: bool = False  # It is a part of what the files hold.
    facts: list[Fact] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)
    """Arguments that say which part of the data this is: `train=False`, `split="val"`, a path."""

    @property
    def told(self) -> list[Fact]:
        reads = [said("reads", self.name)] if self.name else []
        return reads + [it for it in (self.format, self.source) if it]


def last(path: str) -> str:
    return path.rpartition(".")[2]


class Origins:
    def __init__(self, interpreter: Interpreter, calls: list[list[Made]]) -> None:
        self.interpreter = interpreter
        self.calls = calls  # Of each call, those that lead to it.

    def of(self, known: Known | None, depth: int = DEPTH_MAX) -> Origin:
        value = known.value if known and depth else None
        if isinstance(value, Made):
            return self.of_made(value, depth - 1)
        if isinstance(value, Instance):
            return self.of_class(value.of, value.made)
        several = value[0] if isinstance(value, (AnyOf, Sequence)) else ()
        return one_origin([self.of(it, depth - 1) for it in several])

    def of_made(self, made: Made, depth: int) -> Origin:
        if made.on and tables.family(made.path) and not isinstance(made.on.value, Symbol):
            before, opened = self.of(made.on, depth), self.opened_by(made)
            source = before.source or opened.source
            return replace(opened, source=source, hints=before.hints) if opened.format else before
        if made.path in tables.WRAPPERS:
            inner = self.of(made.argument("dataset", 0), depth)
            name = f"{last(made.path)} over {inner.name}"
            return replace(inner, name=name, is_part=inner.is_part or made.path in tables.PARTS)
        spec = tables.spec_of(tables.DATASETS, made.path) or tables.spec_of(tables.READERS, made.path)
        if not spec:
            return Origin(last(made.path), made.path, made=made)
        return of_facts(made.path, facts_of(spec.parameters, made), made)

    def opened_by(self, made: Made) -> Origin:
        """What the function of `interleave` or `flat_map` opens."""
        node = made.node_of("map_func", 0)
        known = made.argument("map_func", 0)
        if node is None or known is None or not made.path.endswith((".interleave", ".flat_map")):
            return Origin()
        paths = [known.value.path] if isinstance(known.value, Symbol) else []
        body = known.value.node if isinstance(known.value, Definition) else node
        inside = set(ast.walk(body))
        paths += [it[0].path for it in self.calls if it[0].node in inside]
        path = next((it for it in paths if tables.spec_of(tables.DATASETS, it)), None)
        return of_facts(path, [], None) if path else Origin()

    def of_class(self, of: Definition, made: Made | None) -> Origin:
        name, hints = of.node.name, hints_of(made) if made else []
        around = [(it, it[0].step.class_around) for it in self.calls]
        inside = [it for it, found in around if found and found.node is of.node]
        for base in self.interpreter.library_bases(of):
            spec = tables.spec_of(tables.DATASETS, base)
            starts = [it for calls in inside for it in calls if it.path == base]
            starts = [it for it in starts if it.method == "__init__"]
            own = [it for it in starts if made and getattr(it.step.frame.this, "made", None) is made]
            call = next(iter(own or starts), made)
            if spec and call:
                origin = of_facts(base, facts_of(spec.parameters, call), made)
                return replace(origin, name=f"{name}, a {last(base)}", hints=hints + origin.hints)
        read = [merged(it) for it in inside if tables.spec_of(tables.READERS, it[0].path)]
        source = source_of(made) if made else None
        if not source and read:
            spec = tables.spec_of(tables.READERS, read[0].path)
            first = facts_of(spec.parameters, read[0])[:1] if spec else []
            source = next((it._replace(name="source") for it in first if it.of(str)), None)
        format = next((it for it in map(format_read, read) if it), None)
        by = f"{name}, which calls {read[0].path}" if read else name
        return Origin(by, format=format, source=source, made=made, hints=hints)


def of_facts(path: str, facts: list[Fact], made: Made | None) -> Origin:
    named = {it.name: it for it in reversed(facts)}
    hints = []
    if "train" in named and named["train"].of(bool) is not None:
        hints.append("train=True" if named["train"].value else "validation: train=False")
    hints += [named[it].value for it in ("split", "name", "subset") if it in named and named[it].of(str)]
    source = next((named[it] for it in SOURCES if it in named), None)
    hints += [source.text] if source else []
    if source and tables.FORMAT_OF.get(path) == "whole":
        source = None
    is_name = source and source.name == "path" and not (source.of(str) or "").startswith(("/", "."))
    if source and is_name and path == "datasets.load_dataset":
        why = "a name, not a path: its files are in the cache of `datasets`"
        source = source._replace(value=None, certainty=UNKNOWN, why=why)
    if source:
        source = source._replace(name="source", value=directory_of(source.value))
    return Origin(last(path), path, format_of(path, source), source, made, facts=facts, hints=hints)


def directory_of(value: object) -> object:
    """Files that are listed one by one are found in their directory, if they have the same."""
    if not isinstance(value, list):
        return value
    directories = {it.rpartition("/")[0] if isinstance(it, str) else "" for it in value}
    return (directories.pop() or None) if len(directories) == 1 else None


def format_of(path: str, source: Fact | None) -> Fact | None:
    """The format that holds what a dataset reads."""
    name = tables.FORMAT_OF.get(path)
    if name == "by name":
        ending = ((source.of(str) if source else None) or "").rpartition(".")[2]
        is_known = ending in ("npy", "npz")
        return said("format", ending, CERTAIN, "as the file is named") if is_known else None
    if name in ("synthetic", "whole"):
        made_up = "made up in memory, nothing is read"
        why = made_up if name == "synthetic" else "held in memory as a whole"
        return Fact("format", None, "none", CERTAIN, why)
    if name in tables.FOREIGN:
        return Fact("format", None, name, UNKNOWN, "tierfeed has no such format")
    if name and path.startswith(("datasets.", "tensorflow_d")):
        return said("format", name, LIKELY, "the format of its cache, unless it streams")
    return said("format", name, CERTAIN, f"as {last(path)} reads") if name else None


def format_read(made: Made) -> Fact | None:
    """The format that holds what a function reads."""
    name = tables.FORMAT_OF.get(made.path)
    if name == "by name":
        named = [it for it in ("npy", "npz") if f".{it}" in made.step.frame.file.text]
        if len(named) == 1:
            return said("format", named[0], LIKELY, f"the file speaks of .{named[0]}")
        return Fact("format", None, "npy or npz", UNKNOWN, "nothing here says which")
    is_named = name and name not in ("synthetic", "whole", *tables.FOREIGN)
    return said("format", str(name), LIKELY, f"read by {made.path}") if is_named else None


def source_of(made: Made) -> Fact | None:
    """The first argument that is a path, by its name or its look."""
    named = next((it for it in made.given if it.name in OWN_SOURCES), None)
    given = named or next(iter(made.given), None)
    if not given:
        return None
    fact = fact_of("source", given.known, made.step.source(given.node))
    text = given.known.of(str)
    if text is not None and (named or "/" in text or "." in text):
        why = fact.why or "an argument of the class"
        return fact._replace(certainty=max(fact.certainty, LIKELY), why=why)
    return fact if given.known.is_unknown else None


def hints_of(made: Made) -> list[str]:
    hints = []
    for _, name, node, known in made.given:
        flag = known.of(bool) if "train" in name else None
        told = {True: "train=True", False: "validation: train=False"}.get(flag or False)
        text = known.of(str)
        hints.append(text if text is not None else made.step.source(node) if flag is None else str(told))
    return hints


def one_origin(origins: list[Origin]) -> Origin:
    # Made-up data is for trying things out; a job is about the files.
    made_up = [it for it in origins if tables.FORMAT_OF.get(it.path) == "synthetic"]
    if any(it.name and it not in made_up for it in origins) and made_up:
        origins = [it for it in origins if it not in made_up]
        for it in origins:
            for name in ("format", "source"):
                fact = getattr(it, name)
                if fact and fact.certainty is CERTAIN:
                    why = f"unless it is {made_up[0].name}"
                    setattr(it, name, fact._replace(certainty=LIKELY, why=why))
    origins = [it for it in origins if it.name]
    if not origins:
        return Origin()
    first, name = origins[0], " or ".join(dict.fromkeys(it.name for it in origins))
    formats = {it.format and it.format.text for it in origins}
    sources = {it.source and it.source.text for it in origins}
    return replace(
        first,
        name=name,
        format=first.format if len(formats) == 1 else None,
        source=first.source if len(sources) == 1 else None,
        hints=first.hints if len(origins) == 1 else [],
    )


class Sample:
    """What transforms make of a sample: its bytes are the product of its sides and those of an element
    (DeepMemoryDL, 3.3.2).
    """

    def __init__(self, calls: list[Made]) -> None:
        self.sides: list[Known] | None = None
        self.is_whole = self.is_sure = self.is_channels_first = False
        self.channels: int | None = None
        self.element: str | None = None
        self.steps: list[str] = []
        for made in calls:
            if made.path in tables.TRANSFORMS:
                self.steps.append(last(made.path))
                self.apply(made, *tables.TRANSFORMS[made.path])

    def apply(self, made: Made, effect: str, argument: str) -> None:
        name, _, place = argument.partition("@")
        known = made.argument(name, int(place)) if place and name else None
        if effect in ("sides", "shape", "resize"):
            is_kept = effect == "resize" and known and known.of(int) is not None
            self.sides = sides_of(known) if known and not is_kept else None
            self.is_whole = effect == "shape"
        elif effect == "size":
            height = made.argument("height", int(place)) or made.argument("target_height")
            width = made.argument("width", int(place) + 1) or made.argument("target_width")
            self.sides, self.is_whole = ([height, width] if height and width else None), False
        elif effect == "channels":
            self.channels = (known.of(int) if known else None) or None
            self.is_sure = self.channels is not None
            self.element = self.element or "uint8"
        elif effect == "gray":
            self.channels, self.is_sure = 1, True
        elif effect == "type":
            value = known.value if known else None
            self.element = last(value.path) if isinstance(value, Symbol) else known and known.of(str)
        else:
            self.element, self.is_channels_first = ("float32" if effect == "floats" else "uint8"), True
            # Image folders are read as RGB.
            self.channels = self.channels or 3

    @property
    def is_sized(self) -> bool:
        return self.sides is not None or self.channels is not None

    @property
    def facts(self) -> list[Fact]:
        """The shape, and the bytes of a sample if all of it is known."""
        if self.sides is None:
            return [Fact("shape", None, "?", UNKNOWN, "no step fixes the size")]
        worst = Known(None)
        for side in self.sides:
            if (side.of(int) or -1) < 0:
                return [Fact("shape", None, "?", UNKNOWN, side.why or "a side is computed")]
            worst = side if side.certainty > worst.certainty else worst
        dimensions = [it.value for it in self.sides]
        certainty, why = worst.certainty, worst.why if worst.certainty else None
        if not self.is_whole and self.channels:
            dimensions.insert(0 if self.is_channels_first else len(dimensions), self.channels)
            if not self.is_sure:
                certainty = max(certainty, LIKELY)
                why = why or "3 channels, as image folders are read"
        text = f"{' x '.join(map(str, dimensions))} {self.element or 'elements of an unknown type'}"
        facts = [said("shape", text, certainty, why)]
        size = tables.ELEMENT_BYTES.get(self.element or "", 0)
        for dimension in dimensions:
            size *= dimension
        if 0 < size < 1 << 63 and (self.is_whole or self.channels):
            facts.append(Fact("sample_bytes", size, f"{size} B", certainty, why))
        return facts


def sides_of(known: Known) -> list[Known]:
    """One number stands for height and width."""
    items = list(known.value.items) if isinstance(known.value, Sequence) else [known]
    return items * 2 if len(items) == 1 else items


def shape_of_list(made: Made | None) -> list[Fact]:
    """What comes out of a list of transforms."""
    sample = Sample(transforms_of(made)[1]) if made and made.path in tables.LISTS else Sample([])
    return sample.facts if sample.steps else []


def transforms_of(made: Made) -> tuple[list[str], list[Made]]:
    """The names of the transforms in a list, and those that libraries make."""
    first = made.given[0].known.value if made.given else None
    items = first.items if isinstance(first, Sequence) else [it.known for it in made.given]
    names = [last(it.made.path) if it.made else shown(it, "?") for it in items]
    return names, [it.made for it in items if it.made]
