"""What operators, and functions of Python and its library, make of values that are known."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable
from typing import Any

from .value import (
    PLAIN,
    UNKNOWN,
    Definition,
    Instance,
    Known,
    Made,
    Mapping,
    Sequence,
    Step,
    Symbol,
    computed,
    computed_from,
    is_none,
    one_of,
    reason,
    same,
    truth_of,
    unknown,
)  # fmt: skip

COMBINATIONS_MAX = 16  # Combinations of what the parts of an expression may be that are looked at.
LOOPED_MAX = 8  # Elements of a literal sequence that a loop variable is taken to be one of.
BITS_MAX = 64  # Of the whole numbers that are computed, as a job file holds them.

ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}  # fmt: skip
ORDERS = {ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}


def apply(node: ast.AST, step: Step, function: Callable[..., Any], *parts: Known) -> Known:
    """What a function makes of each that the parts may be; `...` is what it does not know."""
    combinations = list(itertools.product(*(it.alternatives for it in parts)))
    results = []
    for combination in combinations[:COMBINATIONS_MAX]:
        try:
            value = function(*(it.value for it in combination))
        except (TypeError, ValueError, ArithmeticError):
            value = ...
        is_large = type(value) is int and not -(1 << BITS_MAX - 1) <= value < 1 << BITS_MAX - 1
        if value is ... or is_large:
            missing = next((it for it in combination if it.is_unknown), Known(None))
            results.append(unknown(reason(missing, node, step)))
        else:
            results.append(computed_from(value, combination))
    several = next((it for it in parts if len(it.alternatives) > 1), parts[-1])
    is_cut = len(combinations) > COMBINATIONS_MAX
    return computed(node, step) if is_cut else one_of(results, reason(several, node, step))


def is_number(value: Any) -> bool:
    return type(value) in (int, float)


def joined(left: Any, right: Any) -> Any:
    """As `os.path.join` does."""
    if not isinstance(left, str) or not isinstance(right, str):
        return ...
    return right if right.startswith("/") or not left else f"{left.rstrip('/')}/{right}"


def concatenated(left: Any, right: Any) -> Any:
    is_text = type(left) is str and type(right) in (str, int)
    return f"{left}{right}" if is_text else ...


def binary(kind: type) -> Callable[[Any, Any], Any]:
    def function(a: Any, b: Any) -> Any:
        if isinstance(a, Sequence) and isinstance(b, Sequence) and kind is ast.Add:
            return Sequence(a.items + b.items)
        if isinstance(a, str) and isinstance(b, str):
            # Strings do not divide: one of them is a path.
            return a + b if kind is ast.Add else joined(a, b) if kind is ast.Div else ...
        if kind not in ARITHMETIC or not is_number(a) or not is_number(b):
            return ...
        is_large = kind in (ast.Pow, ast.LShift) and abs(b) > BITS_MAX
        result = ... if is_large else ARITHMETIC[kind](a, b)
        return result if is_number(result) else ...

    return function


def unary(kind: type) -> Callable[[Any], Any]:
    def function(value: Any) -> Any:
        if kind is ast.Not:
            return ... if truth_of(value) is None else not truth_of(value)
        is_known = is_number(value) and kind in (ast.USub, ast.UAdd)
        return (-value if kind is ast.USub else value) if is_known else ...

    return function


def comparison(kind: type) -> Callable[[Any, Any], Any]:
    def function(a: Any, b: Any) -> Any:
        found: bool | None = None
        if kind in ORDERS:
            return ORDERS[kind](a, b) if is_number(a) and is_number(b) else ...
        if kind in (ast.Is, ast.IsNot):
            both = isinstance(a, bool) and isinstance(b, bool)
            found = is_none(a) if b is None else a is b if both else None
        elif kind in (ast.Eq, ast.NotEq):
            found = equal(a, b) if isinstance(a, PLAIN) and isinstance(b, PLAIN) else None
        elif isinstance(a, PLAIN) and isinstance(b, Sequence):
            found = any(equal(it.value, a) for it in b.items)
            found = found if found or all(it.is_plain for it in b.items) else None
        return ... if found is None else found is (kind in (ast.Is, ast.Eq, ast.In))

    return function


def equal(a: Any, b: Any) -> bool:
    return bool(a == b) if is_number(a) and is_number(b) else same(a, b)


def item_of(base: Known, index: Known, node: ast.Subscript, step: Step) -> Known:
    if isinstance(base.value, Sequence) and type(index.value) is int:
        items = base.value.items
        return items[index.value] if -len(items) <= index.value < len(items) else computed(node, step)
    if isinstance(base.value, Mapping):
        found = base.value.get(index.value)
        if found is None:
            return unknown(f"no such key: {step.source(node)}")
        return found.likely(from_mapping(base, step.place(node))) if found.is_plain else found
    # A split of a dataset is that dataset as far as its files go.
    if base.is_unknown or (base.made and base.made.path.startswith("datasets.")):
        return base
    if base.value == Symbol("os.environ") and isinstance(index.value, str):
        return unknown(f"from the environment: {index.value}")
    return computed(node, step)


def from_mapping(base: Known, place: str) -> str:
    """Where a mapping that holds a value comes from."""
    is_told = base.why and 0 < base.certainty < UNKNOWN
    return str(base.why) if is_told else f"from a mapping, {place}"


def converted(kind: Callable[[Any], Any], *types: type) -> Callable[[Any], Any]:
    return lambda it: kind(it) if type(it) in types else ...


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "int": converted(int, int, bool, str, float),
    "float": converted(float, int, str, float),
    "str": converted(str, str, int),
    "os.fspath": converted(str, str),
    "bool": lambda it: ... if truth_of(it) is None else truth_of(it),
    "abs": converted(abs, int, float),
    "len": lambda it: len(it[0]) if isinstance(it, (Sequence, Mapping)) else converted(len, str)(it),
}
# Functions whose result is taken for their argument.
SAME = {"list", "tuple", "sorted", "copy.deepcopy", "copy.copy"}
SAME |= {f"os.path.{it}" for it in ("expanduser", "abspath", "realpath", "normpath", "expandvars")}
PATHS = {"pathlib.Path", "os.path.join", "pathlib.PurePath", "pathlib.PosixPath"}


def builtin(call: Made) -> Known | None:
    """What a function of Python's library returns; None if it is not followed."""
    path, step, first = call.path, call.step, call.argument("", 0)
    if path in CONVERSIONS:
        result = apply(call.given[0].node, step, CONVERSIONS[path], first) if first else unknown("")
        is_own = first is None or (result.is_unknown and not first.is_unknown)
        return computed_call(call) if is_own else result
    if path in ("min", "max"):
        known = [it.known for it in call.given]
        if len(known) > 1 and all(type(it.value) is int for it in known):
            return computed_from((min if path == "min" else max)(it.value for it in known), known)
        return computed_call(call)
    if path in SAME:
        return first or Known(Sequence(()))
    if path in PATHS:
        return path_of(call)
    if path == "dict":
        return mapping_of(call)
    if path in ("os.environ.get", "os.getenv"):
        default = call.argument("default", 1)
        name = (call.argument("key", 0) or Known(None)).of(str) or "a variable"
        if default and not default.is_unknown and default.value is not None:
            return default.likely(f"unless the environment has {name}")
        return unknown(f"from the environment: {name}")
    return None


def mapping_of(call: Made) -> Known:
    pairs: list[tuple[Known, Known]] = []
    for how, name, _, known in call.given:
        if how != "name" and not isinstance(known.value, Mapping):
            return computed_call(call)
        pairs += [(Known(name), known)] if how == "name" else known.value.pairs
    return Known(Mapping(tuple(pairs)))


def computed_call(call: Made) -> Known:
    inner = "".join(call.step.source(it.node) for it in call.given[:1])
    return unknown(f"computed: {call.step.source(call.node.func)}({inner})")


def path_of(call: Made) -> Known:
    whole = Known("")
    for given in call.given:
        whole = apply(given.node, call.step, joined, whole, given.known)
    return whole


def method(on: Known, call: Made) -> Known | None:
    """Methods of texts and mappings."""
    if isinstance(on.value, str):
        if call.method == "joinpath":
            return apply(call.node, call.step, joined, on, path_of(call))
        is_same = call.method in ("expanduser", "resolve", "absolute", "as_posix", "strip")
        return on if is_same else None
    key = call.argument("", 0)
    if key is None or not isinstance(on.value, Mapping) or call.method != "get":
        return None
    found = on.value.get(key.value) or call.argument("default", 1) or Known(None)
    return found.likely(from_mapping(on, call.place))


def element(known: Known, node: ast.expr, index: int, step: Step) -> Known:
    """An element of what a value is unpacked to."""

    def of(it: Known) -> Known:
        if isinstance(it.value, Sequence):
            items = it.value.items
            return items[index] if index < len(items) else computed(node, step)
        if it.made and it.made.path.endswith(".prepare"):
            # `accelerator.prepare(model, loader)` returns what it gets.
            return it.made.argument("", index) or computed(node, step)
        if it.made and it.made.path.endswith(".parse_args_into_dataclasses"):
            return of_dataclasses(it.made, index) or computed(node, step)
        # Options beside what is left of the command line; the parts of a dataset that is split.
        return it if it.made else unknown(reason(it, node, step))

    return one_of([of(it) for it in known.alternatives], known.why or "one of several")


def of_dataclasses(made: Made, index: int) -> Known | None:
    """`HfArgumentParser((ModelArguments, TrainingArguments)).parse_args_into_dataclasses()`"""
    parser = made.on and made.on.made
    classes = parser and parser.argument("dataclass_types", 0)
    if not classes:
        return None
    items = classes.value.items if isinstance(classes.value, Sequence) else (classes,)
    given = items[index].value if index < len(items) else None
    # A dataclass of a library has defaults of its own.
    alone = unknown("given on the command line")
    return Known(Instance(given)) if isinstance(given, Definition) else alone


def looped(name: str, over: Known, node: ast.expr, step: Step) -> Known:
    """What a name is while `for name in over` runs."""
    if isinstance(over.value, Sequence) and len(over.value.items) <= LOOPED_MAX:
        return one_of(over.value.items, f"each of those at {step.place(node)}")
    return unknown(f"`{name}` changes in the loop, {step.place(node)}")
