"""What an expression of a script may be when it runs, and how certain that is.

A plain value of Python stands for itself; the other values are the classes below.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from .load import File
from .recover import shortened


class Certainty(IntEnum):
    """How certain a statement about a script is."""

    CERTAIN = 0  # It is in the source literally, or is the default that the library documents.
    LIKELY = 1  # A run can change it: the default of an option, a name that is assigned once.
    UNKNOWN = 2  # It is computed, or depends on what only a run knows.


CERTAIN, LIKELY, UNKNOWN = Certainty


class Sequence(NamedTuple):
    items: tuple[Known, ...]


class Mapping(NamedTuple):
    pairs: tuple[tuple[Known, Known], ...]

    def get(self, key: Any) -> Known | None:
        return next((value for it, value in reversed(self.pairs) if same(it.value, key)), None)


class Symbol(NamedTuple):
    """Something of a library, by its full name."""

    path: str


class Method(NamedTuple):
    function: Definition
    this: Any


class Instance(NamedTuple):
    """An object of a class of these files; `made` is None if its construction is not seen."""

    of: Definition
    made: Made | None = None
    is_settings: bool = False  # Only the parameters of `__init__`: `self.hparams` of Lightning.


class Member(NamedTuple):
    """An attribute of what a call of a library returns."""

    made: Made
    name: str


class AnyOf(NamedTuple):
    alternatives: tuple[Known, ...]


class Nothing(NamedTuple):
    """The value of what is not known."""


PLAIN = (type(None), bool, int, float, str, Sequence, Mapping)


@dataclass(eq=False)
class Frame:
    """The names of a file, of a class, or of one call of a function."""

    file: File
    parent: Frame | None = None
    definition: Definition | None = None
    caller: Step | None = None  # The statement that calls the function, if a call is followed.
    this: Any = None
    names: dict[str, dict[int, Known]] = field(default_factory=dict)  # By the line that binds a name.
    returns: list[Known] = field(default_factory=list)
    is_over: bool = False  # A `return` is certainly reached.
    open: int = 0  # Branches around the current statement that may be taken or not.
    stars: list[str] = field(default_factory=list)  # Modules that a file imports everything of.

    @property
    def module(self) -> Frame:
        return self.parent.module if self.parent else self


@dataclass(eq=False)
class Definition:
    """A function or a class of these files."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    step: Step
    frame: Frame  # Of a class: its own names. Of a function: where it is defined.
    decorators: list[Known]
    inputs: list[Known]  # Of a class: its bases. Of a function: the defaults of its parameters.
    owner: Definition | None = None

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)


class Condition(NamedTuple):
    test: ast.expr
    holds: bool
    every: Known | None  # N of a test such as `n % N == 0`.


class Loop(NamedTuple):
    target: ast.expr | None  # None for `while`.
    over: ast.expr
    line: int


class Step(NamedTuple):
    """A statement while it runs."""

    frame: Frame
    line: int = 0
    target: str = ""  # The name that it assigns to.
    loops: tuple[Loop, ...] = ()
    conditions: tuple[Condition, ...] = ()

    def place(self, node: ast.AST | None = None) -> str:
        """`file:line`, of an expression of it if one is given."""
        return f"{self.frame.file.name}:{getattr(node, 'lineno', self.line)}"

    def source(self, node: Any) -> str:
        """The source of an expression, on one line."""
        lines = self.frame.file.lines[node.lineno - 1 : node.end_lineno] or [b""]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return shortened(b"\n".join(lines).decode(errors="replace"))

    @property
    def function(self) -> Definition | None:
        found = self.frame.definition
        return None if found and found.is_class else found

    @property
    def class_around(self) -> Definition | None:
        found = self.frame.definition
        return found if found is None or found.is_class else found.owner

    @property
    def around(self) -> str:
        """`Class.method`, `function`, or nothing at the level of the module."""
        return ".".join(it.node.name for it in (self.class_around, self.function) if it)

    @property
    def callers(self) -> list[Step]:
        """The statements that call the functions around it, from the innermost."""
        caller = self.frame.caller
        return [caller, *caller.callers] if caller else []


class Given(NamedTuple):
    """An argument of a call; `how` is `place`, `name`, `splat` for `*it`, or `spread` for `**it`."""

    how: str
    name: str
    node: ast.expr
    known: Known


@dataclass(eq=False)
class Made:
    """A call of a library, and what it returns; or how an object of a class of these files is made."""

    path: str  # The full name; `*.name` if only the last is known; empty for own classes.
    node: ast.Call
    given: list[Given]
    step: Step
    on: Known | None = None  # What a method is called on.
    value: Known | None = None

    @property
    def place(self) -> str:
        return self.step.place(self.node)

    @property
    def method(self) -> str:
        """The last name of what is called."""
        return last_name(self.node.func)

    def argument(self, name: str, place: int | None = None) -> Known | None:
        """The argument with this name, or at this place; None if the call has no such."""
        places, hidden = 0, None
        for how, own, node, known in self.given:
            if how == "name" and own == name:
                return known
            if how == "place":
                if hidden is None and place == places:
                    return known
                places += 1
            elif how == "splat" and place is not None:
                hidden = unknown(reason(known, node, self.step))
            elif how == "spread":
                found = spread(known, node, name, self.step)
                if found and not found.is_unknown:
                    return found
                hidden = found or hidden
        return hidden

    def node_of(self, name: str, place: int | None = None) -> ast.expr | None:
        """The expression that is given for a parameter."""
        places = [it.node for it in self.given if it.how == "place"]
        by_place = places[place] if place is not None and place < len(places) else None
        return next((it.node for it in self.given if it.how == "name" and it.name == name), by_place)


class Known(NamedTuple):
    """A value, and how it is known."""

    value: Any
    certainty: Certainty = CERTAIN
    why: str | None = None  # Where a likely value comes from, or why a value is unknown.

    def likely(self, why: str) -> Known:
        """At most likely, for this reason unless there is one already."""
        return self if self.certainty else Known(self.value, LIKELY, self.why or why)

    @property
    def alternatives(self) -> tuple[Known, ...]:
        return self.value.alternatives if isinstance(self.value, AnyOf) else (self,)

    @property
    def is_unknown(self) -> bool:
        return isinstance(self.value, Nothing)

    @property
    def is_plain(self) -> bool:
        return isinstance(self.value, PLAIN)

    def of(self, kind: type) -> Any:
        """The value if it is of this type, else None; `True` is no `int`."""
        return self.value if type(self.value) is kind else None

    @property
    def made(self) -> Made | None:
        return self.value if isinstance(self.value, Made) else None

    @property
    def all_made(self) -> list[Made]:
        """What libraries make of what this may be."""
        return [it.value for it in self.alternatives if isinstance(it.value, Made)]


def unknown(why: str) -> Known:
    return Known(Nothing(), UNKNOWN, why)


def reason(known: Known, node: ast.AST, step: Step) -> str:
    """Why `known` is unknown."""
    return known.why or f"computed: {step.source(node)}"


def computed(node: ast.AST, step: Step) -> Known:
    return unknown(f"computed: {step.source(node)}")


def spread(values: Known, node: ast.expr, name: str, step: Step) -> Known | None:
    """What `**values` gives for a name; None if it has no such."""
    results, text = [], step.source(node)
    for it in values.alternatives:
        own = it.value.get(name) if isinstance(it.value, Mapping) else None
        if own is None and (it.certainty is UNKNOWN or not isinstance(it.value, Mapping)):
            return unknown(reason(it, node, step))
        results += [own] if own else []
    found = one_of(results, f"one of several `{text}`") if results else None
    # A mapping that stands in the call is as good as arguments.
    is_exact = found is None or isinstance(node, ast.Dict)
    return found if is_exact or not found else found.likely(f"from `**{text}`, {step.place(node)}")


def computed_from(value: Any, parts: Iterable[Known]) -> Known:
    """`value`, as certain as the least certain of the parts."""
    worst = max(reversed([Known(None), *parts]), key=lambda it: it.certainty)
    return Known(value, worst.certainty, worst.why)


def one_of(alternatives: Iterable[Known], why: str) -> Known:
    """One of several, or that one if they are all the same."""
    given = list(alternatives)
    if len(given) == 1:
        return given[0]
    different: list[Known] = []
    for alternative in (it for known in given for it in known.alternatives):
        alike = [index for index, it in enumerate(different) if same(it.value, alternative.value)]
        if not alike:
            different.append(alternative)
        elif alternative.certainty > different[alike[0]].certainty:
            different[alike[0]] = alternative
    if len(different) > 1 and not all(it.is_unknown for it in different):
        return Known(AnyOf(tuple(different)), UNKNOWN, why)
    return different[0] if different else unknown(why)


def same(a: Any, b: Any) -> bool:
    """Whether two values are known to be the same; what a call makes is the same as itself."""
    if type(a) is not type(b) or isinstance(a, (Mapping, Method, AnyOf)):
        return False
    if isinstance(a, Sequence):
        pairs = zip(a.items, b.items)
        return len(a.items) == len(b.items) and all(same(x.value, y.value) for x, y in pairs)
    if isinstance(a, (Made, Definition)):
        return a.node is b.node
    if isinstance(a, (Instance, Member)):
        return all(x is y or same(x, y) for x, y in zip(a, b))
    return bool(a == b)


def truth_of(value: Any) -> bool | None:
    """Whether Python takes a value for true; None if that is not known."""
    if isinstance(value, PLAIN):
        return bool(value[0] if isinstance(value, (Sequence, Mapping)) else value)
    # Other objects may have a length: an empty dataset is false.
    return True if isinstance(value, (Frame, Definition, Method)) else None


def is_none(value: Any) -> bool | None:
    """Whether a value is `None`; None if that is not known."""
    return None if isinstance(value, (AnyOf, Nothing, Member, Symbol)) else value is None


def last_name(node: ast.AST | None) -> str:
    """`shuffle` of `dataset.shuffle`."""
    return getattr(node, "attr", "") or getattr(node, "id", "")


def string(node: ast.AST | None) -> str | None:
    """A literal text."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None


def named_argument(call: ast.Call, name: str) -> ast.expr | None:
    return next((it.value for it in call.keywords if it.arg == name), None)
