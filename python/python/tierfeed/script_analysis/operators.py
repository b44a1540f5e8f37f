"""What operators, and functions of Python and its library, make of values that are known."""

from __future__ import annotations

import ast
import operator
import posixpath
from collections.abc import Callable
from functools import partial
from itertools import islice, product
from typing import Any

from .values import (
    PLAIN,
    UNKNOWN,
    AnyOf,
    Call,
    Definition,
    Instance,
    Known,
    Step,
    Symbol,
    computed,
    computed_from,
    is_same,
    one_of,
    reason,
    truth_of,
    unknown,
)  # fmt: skip

COMBINATIONS_MAX = 16  # Combinations of what the parts of an expression may be that are looked at.
BITS_MAX = 64  # Of the whole numbers that are computed, as a job file holds them.
SIZE_MAX = 4096  # Letters of a text, or values in a sequence or mapping, that are followed.

NUMERIC: dict[type, Callable[..., Any]] = {
    ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift, ast.Div: operator.truediv,
    ast.Add: operator.add, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def apply(node: ast.AST, step: Step, function: Callable[..., Any], *parts: Known) -> Known:
    """What a function makes of each that the parts may be; `...` is what it does not know."""
    every = product(*(it.alternatives for it in parts))
    combinations = list(islice(every, COMBINATIONS_MAX + 1))
    if len(combinations) > COMBINATIONS_MAX:
        return computed(node, step)
    results = []
    for combination in combinations:
        missing = next((it for it in combination if it.value is ...), None)
        is_long = sum(len(it.of(str) or "") for it in combination) > SIZE_MAX
        try:
            value = ... if missing or is_long else function(*(it.value for it in combination))
        except (TypeError, ValueError, ArithmeticError):
            value = ...
        if value is ... or is_large(value):
            results.append(unknown(reason(missing or Known(None), node, step)))
        else:
            results.append(computed_from(value, combination))
    several = next((it for it in parts if len(it.alternatives) > 1), parts[-1])
    return one_of(results, reason(several, node, step))


def is_large(value: Any) -> bool:
    """Whether a value is larger than what is followed."""
    if type(value) is int:
        return not -(1 << BITS_MAX - 1) <= value < 1 << BITS_MAX - 1
    return len(value) > SIZE_MAX if isinstance(value, str) else size_of(value) > SIZE_MAX


def size_of(value: Any) -> int:
    """The values in one another, counted a little beyond the limit."""
    waiting, size = [value], 0
    while waiting and size <= SIZE_MAX:
        it = waiting.pop()
        inner = it.alternatives if isinstance(it, AnyOf) else it.values() if isinstance(it, dict) else it
        is_plain = isinstance(it, (AnyOf, dict, tuple))
        size += 1 + (len(inner) if is_plain else 0)
        waiting += [known.value for known in inner] if is_plain else []
    return size


def operated(kind: type, *values: Any) -> Any:
    """What an operator makes of values."""
    a, b = values[0], values[-1]
    if kind in (ast.Is, ast.IsNot):
        is_told = not isinstance(a, Symbol) if b is None else isinstance(a, bool) and isinstance(b, bool)
        return (a is b) is (kind is ast.Is) if is_told else ...
    if kind is ast.Not:
        return ... if truth_of(a) is ... else not truth_of(a)
    if kind in (ast.Eq, ast.NotEq):
        is_told = isinstance(a, PLAIN) and isinstance(b, PLAIN)
        return is_equal(a, b) is (kind is ast.Eq) if is_told else ...
    if kind in (ast.In, ast.NotIn) and isinstance(a, PLAIN) and isinstance(b, tuple):
        is_in = any(is_equal(it.value, a) for it in b)
        is_told = is_in or all(it.is_plain for it in b)
        return is_in is (kind is ast.In) if is_told else ...
    if type(a) is type(b) and type(a) in (str, tuple) and kind is ast.Add:
        return a + b
    if isinstance(a, str) and isinstance(b, str) and kind is ast.Div:
        return joined(a, b)
    is_huge = kind in (ast.Pow, ast.LShift) and is_number(b) and abs(b) > BITS_MAX
    if kind not in NUMERIC or is_huge or not all(map(is_number, values)):
        return ...
    result = NUMERIC[kind](*values)
    return ... if isinstance(result, complex) else result


def is_number(value: Any) -> bool:
    return type(value) in (int, float)


def is_equal(a: Any, b: Any) -> bool:
    return bool(a == b) if is_number(a) and is_number(b) else is_same(a, b)


def joined(*values: Any) -> Any:
    return posixpath.join(*values) if all(isinstance(it, str) for it in values) else ...


def formatted(*values: Any) -> Any:
    """What an f-string puts together."""
    return "".join(map(str, values)) if all(type(it) in (str, int) for it in values) else ...


def called(function: Callable[..., Any], *values: Any) -> Any:
    is_scalar = all(isinstance(it, (bool, int, float, str)) for it in values)
    return function(*values) if is_scalar or function in (len, truth_of, joined) else ...


PURE: dict[str, Callable[..., Any]] = {
    "int": int, "float": float, "str": str, "bool": truth_of, "abs": abs, "len": len, "min": min,
    "max": max, "os.path.join": joined, "pathlib.Path": joined, "pathlib.PurePath": joined,
}  # fmt: skip
"""Functions whose result depends on their arguments alone."""
SAME = {"list", "tuple", "sorted", "copy.deepcopy", "copy.copy", "os.fspath"}
SAME |= {f"os.path.{it}" for it in ("expanduser", "abspath", "realpath", "normpath", "expandvars")}
"""Functions whose result is taken for their argument."""


def builtin(call: Call) -> Known | None:
    """What a function of Python's library returns; None if it is not followed."""
    path, step, given = call.path, call.step, [it.known for it in call.given.values()]
    if path in PURE:
        is_plain = given and all(isinstance(it, int) for it in call.given)
        function = partial(called, PURE[path])
        return apply(call.node, step, function, *given) if is_plain else computed(call.node, step)
    if path in SAME:
        return given[0] if given else Known(())
    if path == "dict":
        own = {key: it.known for key, it in call.given.items() if key != 0}
        base = call.given[0].known.value if 0 in call.given else {}
        return Known({**base, **own}) if isinstance(base, dict) else computed(call.node, step)
    if path in ("os.environ.get", "os.getenv"):
        default = call.argument("default", 1) or Known(None)
        name = (call.argument("key", 0) or Known(None)).of(str) or "a variable"
        missing = unknown(f"from the environment: {name}")
        is_missing = default.value is None or default.value is ...
        return missing if is_missing else default.likely(f"unless the environment has {name}")
    return None


def method(on: Known, call: Call) -> Known | None:
    """Methods of texts and mappings."""
    if isinstance(on.value, str):
        given = [it.known for it in call.given.values()]
        is_same = call.method in ("expanduser", "resolve", "absolute", "as_posix", "strip")
        is_path = call.method == "joinpath"
        return apply(call.node, call.step, joined, on, *given) if is_path else on if is_same else None
    if isinstance(on.value, dict) and call.method == "get" and call.given:
        default = call.argument("default", 1) or Known(None)
        return (value_in(on, call.first.value) or default).likely(from_mapping(on, call.place))
    return None


def value_in(mapping: Known, key: Any) -> Known | None:
    return mapping.value.get(key) if isinstance(key, (str, int)) else None


def item_of(base: Known, index: Known, node: ast.Subscript, step: Step) -> Known:
    value, key = base.value, index.value
    if isinstance(value, tuple) and type(key) is int and -len(value) <= key < len(value):
        return value[key]  # type: ignore[no-any-return]
    if isinstance(value, dict):
        found = value_in(base, key)
        missing = unknown(f"no such key: {step.source(node)}")
        return found.plainly(from_mapping(base, step.place(node))) if found else missing
    # A split of a dataset is that dataset as far as its files go.
    if value is ... or any(it.path.startswith("datasets.") for it in base.calls):
        return base
    if value == Symbol("os.environ") and isinstance(key, str):
        return unknown(f"from the environment: {key}")
    return computed(node, step)


def from_mapping(base: Known, place: str) -> str:
    """Where a mapping that holds a value comes from."""
    return base.why if base.why and 0 < base.certainty < UNKNOWN else f"from a mapping, {place}"


def element(known: Known, node: ast.expr, index: int, step: Step) -> Known:
    """An element of what a value is unpacked to."""

    def of(it: Known) -> Known:
        if isinstance(it.value, tuple):
            return it.value[index] if index < len(it.value) else computed(node, step)
        if not it.calls:
            return unknown(reason(it, node, step))
        if it.value.path.endswith(".prepare"):
            # `accelerator.prepare(model, loader)` returns what it gets.
            return it.value.argument("", index) or computed(node, step)
        if it.value.path.endswith(".parse_args_into_dataclasses") and it.value.on:
            # `HfArgumentParser((ModelArguments, TrainingArguments))`
            parsers = it.value.on.calls
            classes = parsers[0].argument("dataclass_types", 0) if parsers else None
            items = (classes.of(tuple) or (classes,)) if classes else ()
            given = items[index].value if index < len(items) else None
            # A dataclass of a library has defaults of its own.
            alone = unknown("given on the command line")
            return Known(Instance(given)) if isinstance(given, Definition) else alone
        # Options beside what is left of the command line; the parts of a dataset that is split.
        return it

    return one_of([of(it) for it in known.alternatives], known.why or "one of several")
