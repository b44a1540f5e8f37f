"""What an expression of a script may be when it runs, and how certain that is."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from .load import File
from .recover import shortened

ALTERNATIVES_MAX = 64  # Values that one expression may have and that are told apart.


class Certainty(IntEnum):
    """How certain a statement about a script is."""

    CERTAIN = 0  # It is in the source literally, or is the default that the library documents.
    LIKELY = 1  # A run can change it: the default of an option, a name that is assigned once.
    UNKNOWN = 2  # It is computed, or depends on what only a run knows.


CERTAIN, LIKELY, UNKNOWN = Certainty
PLAIN = (type(None), bool, int, float, str, tuple, dict)


@dataclass(frozen=True)
class Known:
    """A value, and how it is known; equal to another if the values are.

    Plain values stand for themselves; tuples and dicts hold `Known`; `...` is not known.
    """

    value: Any
    certainty: Certainty = field(default=CERTAIN, compare=False)
    why: str | None = field(default=None, compare=False)  # Where it comes from, or why it is unknown.

    def likely(self, why: str) -> Known:
        """At most likely, for this reason unless there is one already."""
        return self if self.certainty else Known(self.value, LIKELY, self.why or why)

    def plainly(self, why: str) -> Known:
        """At most likely if it is a plain value; an object is what it is, under any name."""
        return self.likely(why) if self.is_plain else self

    @property
    def is_plain(self) -> bool:
        return isinstance(self.value, PLAIN)

    @property
    def alternatives(self) -> tuple[Known, ...]:
        return self.value.alternatives if isinstance(self.value, AnyOf) else (self,)

    @property
    def calls(self) -> list[Call]:
        """The calls of libraries that make what this may be."""
        return [it.value for it in self.alternatives if isinstance(it.value, Call)]

    def of(self, kind: type) -> Any:
        """The value if it is of this type, else None; `True` is no `int`."""
        return self.value if type(self.value) is kind else None


@dataclass(frozen=True)
class AnyOf:
    alternatives: tuple[Known, ...]


@dataclass(frozen=True)
class Symbol:
    """Something of a library, by its full name; or of what a call of a library returns."""

    path: str
    of: Call | None = None


@dataclass(frozen=True)
class Definition:
    """A function or a class of these files; equal to another if it stands at the same place."""

    node: Any
    step: Step = field(compare=False)
    frame: Frame = field(compare=False)  # A class: its own names. A function: where it is defined.
    decorators: list[Known] = field(compare=False)
    inputs: list[Known] = field(compare=False)  # The bases of a class, or defaults of parameters.
    owner: Definition | None = field(compare=False, default=None)  # The class of a method.
    this: Any = field(compare=False, default=None)  # The object that a method is taken from.

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)


@dataclass(frozen=True)
class Instance:
    """An object of a class of these files; `made` is None if its construction is not seen."""

    of: Definition
    made: Call | None = None


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


class Step(NamedTuple):
    """A statement while it runs."""

    frame: Frame
    line: int = 0
    target: str = ""  # The name that it assigns to.
    loops: tuple[Any, ...] = ()  # The statements `for` and `while` around it.
    # The tests of `if` around it, whether they hold, and N of a test such as `n % N == 0`.
    conditions: tuple[tuple[ast.expr, bool, Known | None], ...] = ()

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
    """An argument of a call; its node is None if it comes out of `*it` or `**it`."""

    node: Any
    known: Known


@dataclass(unsafe_hash=True)
class Call:
    """A call, and what it returns; equal to another if it stands at the same place."""

    node: ast.Call
    path: str = field(compare=False)  # The full name; `*.name` if only the last is known.
    # By name or place; `*` and `**` stand for what is not known.
    given: dict[str | int, Given] = field(compare=False)
    step: Step = field(compare=False)
    on: Known | None = field(compare=False, default=None)  # What a method is called on.
    value: Known | None = field(compare=False, default=None)

    @property
    def place(self) -> str:
        return self.step.place(self.node)

    @property
    def method(self) -> str:
        """The last name of what is called."""
        return last_name(self.node.func)

    def find(self, name: str, place: int | None = None) -> Given | None:
        """What is given under this name, or at this place."""
        keys = (name, place, "*", "**") if place is not None else (name, "**")
        return next((self.given[it] for it in keys if it in self.given), None)

    def argument(self, name: str, place: int | None = None) -> Known | None:
        found = self.find(name, place)
        return found and found.known

    @property
    def first(self) -> Known:
        return self.argument("", 0) or Known(None)


def unknown(why: str) -> Known:
    return Known(..., UNKNOWN, why)


def reason(known: Known, node: ast.AST, step: Step) -> str:
    """Why `known` is unknown."""
    return known.why or f"computed: {step.source(node)}"


def computed(node: ast.AST, step: Step) -> Known:
    return unknown(f"computed: {step.source(node)}")


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
    for it in (one for known in given for one in known.alternatives):
        alike = next((i for i, other in enumerate(different) if is_same(it.value, other.value)), None)
        if alike is None:
            different.append(it)
        elif it.certainty > different[alike].certainty:
            different[alike] = it
        if len(different) > ALTERNATIVES_MAX:
            return unknown(why)
    if len(different) > 1:
        return Known(AnyOf(tuple(different)), UNKNOWN, why)
    return different[0] if different else unknown(why)


def is_same(a: Any, b: Any) -> bool:
    """Whether two values are known to be the same; what a call makes is the same as itself."""
    return type(a) is type(b) and bool(a == b)


def truth_of(value: Any) -> Any:
    """Whether Python takes a value for true."""
    # Other objects may have a length: an empty dataset is false.
    return bool(value) if isinstance(value, PLAIN) else isinstance(value, (Frame, Definition)) or ...


def last_name(node: ast.AST | None) -> str:
    """`shuffle` of `dataset.shuffle`."""
    return getattr(node, "attr", "") or getattr(node, "id", "")


def string(node: ast.AST | None) -> str | None:
    """A literal text."""
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else None
