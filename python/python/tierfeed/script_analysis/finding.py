"""What an analysis says: findings with their places, and what is known of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from . import known as tables
from .recover import shortened
from .value import (
    CERTAIN,
    UNKNOWN,
    AnyOf,
    Certainty,
    Definition,
    Instance,
    Known,
    Made,
    Method,
    Sequence,
    Step,
    Symbol,
    one_of,
)  # fmt: skip

CONTEXTS_MAX = 8  # Calls that lead to a statement and are told one by one.
KINDS = tables.names("""framework distribution dataset reader loader pipeline preprocessing cache
checkpoint phase epochs seed advice""")
"""What a finding is about, in the order of reports."""


class Fact(NamedTuple):
    """Something known of a finding."""

    name: str
    value: Any  # A value that JSON can hold; None if there is none.
    text: str  # For people: the value, or the source of what computes it.
    certainty: Certainty = CERTAIN
    why: str | None = None

    def of(self, kind: type) -> Any:
        """The value if it is of this type and not unknown, else None."""
        return self.value if type(self.value) is kind and self.certainty is not UNKNOWN else None


@dataclass
class Finding:
    kind: str
    what: str  # The full name of what is called, or a sentence.
    file: str
    line: int
    certainty: Certainty = CERTAIN
    why: str | None = None
    facts: list[Fact] = field(default_factory=list)

    def fact(self, name: str) -> Fact | None:
        return next((it for it in self.facts if it.name == name), None)


def said(name: str, text: str, certainty: Certainty = CERTAIN, why: str | None = None) -> Fact:
    """A fact that is not read off an argument."""
    return Fact(name, text, text, certainty, why)


def not_said(name: str, text: str, why: str) -> Fact:
    return Fact(name, None, text, UNKNOWN, why)


def finding(kind: str, what: str, made: Made, *facts: Fact, **rest: Any) -> Finding:
    return Finding(kind, what, made.step.frame.file.name, made.node.lineno, facts=list(facts), **rest)


def at_step(kind: str, what: str, step: Step, *facts: Fact, **rest: Any) -> Finding:
    return Finding(kind, what, step.frame.file.name, step.line, facts=list(facts), **rest)


def literal(value: Any) -> Any:
    if isinstance(value, Sequence):
        return [literal(it.value) for it in value.items]
    return value if isinstance(value, (bool, int, float, str)) else None


def fact_of(name: str, known: Known, source: str) -> Fact:
    return Fact(name, literal(known.value), shown(known, source), known.certainty, known.why)


def facts_of(parameters: list[tables.Parameter], made: Made) -> list[Fact]:
    found = (fact_of_parameter(it, made) for it in parameters)
    return [it for it in found if it]


def fact_of_parameter(parameter: tables.Parameter, made: Made) -> Fact | None:
    name, place, default = parameter
    known = made.argument(name, place)
    if known is None:
        told = fact_of(name, Known(default, CERTAIN, "default of the library"), "")
        return None if default is ... else told
    node = made.node_of(name, place)
    fact = fact_of(name, known, made.step.source(node) if node else "?")
    last = known.made.path.rpartition(".")[2] if known.made else ""
    # A library computes a value, rather than making an object that a table knows.
    is_computed = last[:1].islower() and known.made and not tables.is_known(known.made.path)
    return fact._replace(certainty=UNKNOWN, why="computed") if is_computed else fact


def shown(known: Known, source: str) -> str:
    """A value for people; what is unknown is shown as it stands in the source."""
    value = known.value
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else str(value)
    if value is None or isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, Sequence) and all(it.is_plain for it in value.items):
        return shortened(f"[{', '.join(shown(it, '?') for it in value.items)}]")
    if isinstance(value, Symbol):
        return value.path
    if isinstance(value, (Definition, Method)):
        return (value.function if isinstance(value, Method) else value).node.name
    made = value.made if isinstance(value, Instance) else value
    if isinstance(made, Made):
        return made.step.source(made.node)
    if isinstance(value, AnyOf):
        return " or ".join(shown(it, source) for it in value.alternatives)
    return source


def merged(calls: list[Made]) -> Made:
    """A call as all that lead to it see it."""
    if len(calls) == 1:
        return calls[0]
    callers = [it.step.frame.caller for it in calls]
    places = ", ".join(dict.fromkeys(it.place() for it in callers if it))
    why = f"differs from call to call: {places}"
    given = []
    for same in zip(*(it.given for it in calls)):
        # What one of them may be already can be all of it, for a reason of its own.
        widest = max((it.known for it in same), key=lambda it: len(it.alternatives))
        known = one_of((it.known for it in same), why)
        is_all = 1 < len(known.alternatives) == len(widest.alternatives)
        given.append(same[0]._replace(known=widest if is_all else known))
    step = calls[0].step._replace(frame=replace(calls[0].step.frame, caller=None))
    return replace(calls[0], given=given, step=step)
