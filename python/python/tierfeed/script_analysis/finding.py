"""What an analysis says: findings with their places, and what is known of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from . import tables
from .recover import shortened
from .values import (
    CERTAIN,
    UNKNOWN,
    AnyOf,
    Call,
    Certainty,
    Definition,
    Instance,
    Known,
    Step,
    Symbol,
    one_of,
)

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

    def text(self, name: str) -> str:
        fact = self.fact(name)
        return fact.text if fact else ""


def said(name: str, text: str, certainty: Certainty = CERTAIN, why: str | None = None) -> Fact:
    """A fact that is not read off an argument; what is unknown has no value."""
    return Fact(name, None if certainty is UNKNOWN else text, text, certainty, why)


def finding(kind: str, what: str, at: Call | Step, *facts: Fact, **rest: Any) -> Finding:
    step, line = (at.step, at.node.lineno) if isinstance(at, Call) else (at, at.line)
    return Finding(kind, what, step.frame.file.name, line, facts=list(facts), **rest)


def literal(value: Any) -> Any:
    if isinstance(value, tuple):
        return [literal(it.value) for it in value]
    return value if isinstance(value, (bool, int, float, str)) else None


def fact_of(name: str, known: Known, source: str = "?") -> Fact:
    return Fact(name, literal(known.value), shown(known, source), known.certainty, known.why)


def facts_of(parameters: list[tables.Parameter], call: Call) -> list[Fact]:
    """What is given for parameters, or the defaults of the library."""
    facts = []
    for name, place, default, _ in parameters:
        given = call.find(name, place)
        if given:
            fact = fact_of(name, given.known, call.step.source(given.node) if given.node else "?")
            path = given.known.value.path if isinstance(given.known.value, Call) else ""
            # A library computes a value, rather than making an object that a table knows.
            is_computed = tables.last(path)[:1].islower() and not tables.is_known(path)
            facts.append(fact._replace(certainty=UNKNOWN, why="computed") if is_computed else fact)
        elif default is not ...:
            facts.append(fact_of(name, Known(default, CERTAIN, "default of the library")))
    return facts


def shown(known: Known, source: str = "?") -> str:
    """A value for people; what is unknown is shown as it stands in the source."""
    value = known.value
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if value is None or isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, tuple) and all(it.is_plain for it in value):
        return shortened(f"[{', '.join(shown(it) for it in value)}]")
    if isinstance(value, Symbol) and not value.of:
        return value.path
    if isinstance(value, Definition):
        return str(value.node.name)
    made = value.made if isinstance(value, Instance) else value
    if isinstance(made, Call):
        return made.step.source(made.node)
    if isinstance(value, AnyOf):
        return " or ".join(shown(it, source) for it in value.alternatives)
    return source


def merged(calls: list[Call]) -> Call:
    """A call as all that lead to it see it."""
    first, callers = calls[0], [it.step.frame.caller for it in calls]
    if len(calls) == 1:
        return first
    why = f"differs from call to call: {', '.join(dict.fromkeys(it.place() for it in callers if it))}"
    given = {}
    for key, it in first.given.items():
        known = [call.given[key].known for call in calls if key in call.given]
        # What one of them may be already can be all of it, for a reason of its own.
        widest, whole = max(known, key=lambda it: len(it.alternatives)), one_of(known, why)
        is_all = 1 < len(whole.alternatives) == len(widest.alternatives)
        given[key] = it._replace(known=widest if is_all else whole)
    step = first.step._replace(frame=replace(first.step.frame, caller=None))
    return replace(first, given=given, step=step)
