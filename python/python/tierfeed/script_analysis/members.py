"""Looks up names, attributes and options: of files, of classes and their objects, of commands."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any, NamedTuple

from . import tables
from .load import File
from .operators import from_mapping
from .values import (
    UNKNOWN,
    Call,
    Definition,
    Frame,
    Instance,
    Known,
    Step,
    Symbol,
    last_name,
    one_of,
    string,
    unknown,
)  # fmt: skip

BRANCHES_MAX = 16  # Branches in which a name may be bound before it is used.
BASES_MAX = 64  # Classes of these files that a class is derived from and that are looked at.


class Option(NamedTuple):
    """A declared option of the command line."""

    flag: str  # As it is typed: `--batch-size`.
    default: Known
    place: str


class Members:
    """What the scripts bind and declare, as far as they ran."""

    def __init__(self, files: list[File]) -> None:
        self.files = files
        self.modules: dict[int, Frame] = {}
        # Options, by the name that a script reads them by, and the place of the declaration.
        self.options: dict[str, dict[str, Option]] = {}
        # What classes assign to `self`, by the class and the name, then by statement and object.
        self.attributes: dict[tuple[ast.AST, str], dict[Any, tuple[Known, Call | None]]] = {}
        # Where `base.name` is assigned to, by `name` and the last name of the base.
        self.assigned: dict[str, dict[str, str]] = {}
        # The calls that make objects of each class.
        self.instances: dict[ast.AST, dict[ast.AST, Call]] = {}

    # Names

    def lookup(self, name: str, frame: Frame) -> Known:
        current: Frame | None = frame
        while current:
            is_class = current.definition and current.definition.is_class
            found = self.name_in(current, name) if current is frame or not is_class else None
            if found:
                return found
            current = current.parent
        if name in tables.BUILTINS:
            return Known(Symbol(name))
        # A name that no statement binds is of the only library of which everything is imported.
        stars = [it for it in frame.file.stars if it not in frame.file.links]
        paths = {star: tables.canonical(f"{star}.{name}") for star in reversed(stars)}
        star = next((it for it in paths if len(paths) == 1 or tables.is_known(paths[it])), None)
        missing = unknown(f"`{name}` is bound nowhere in these files")
        return Known(Symbol(paths[star])).likely(f"from {star} import *") if star else missing

    def name_in(self, frame: Frame, name: str) -> Known | None:
        bindings = sorted(frame.names.get(name, {}).items())
        if len(bindings) > BRANCHES_MAX:
            return unknown(f"`{name}` is bound too often")
        places = ", ".join(f"{frame.file.name}:{line}" for line, _ in bindings)
        known = one_of((it for _, it in bindings), f"assigned in branches: {places}")
        return known if bindings else None

    # Options of the command line

    def declare(self, call: Call) -> None:
        """Notes the options that a call declares, if it does."""
        if call.method in ("add_argument", "add", "option"):
            self.declare_argument(call)
        elif call.method == "set_defaults":
            for name, it in call.given.items():
                if isinstance(name, str):
                    self.options[name] = {call.place: Option(f"--{name}", it.known, call.place)}
        elif call.method.startswith("DEFINE_"):
            # `flags.DEFINE_integer("batch_size", 256, "help")`
            name = text_of(call, "name", 0)
            default = call.argument("default", 1) or Known(None)
            self.options.setdefault(name, {})[call.place] = Option(f"--{name}", default, call.place)

    def declare_argument(self, call: Call) -> None:
        """`parser.add_argument("--batch-size", default=256)`, `@click.option("--batch-size", …)`"""
        flags = [it for it in map(string, call.node.args) if it]
        flag = next((it for it in flags if it.startswith("--")), flags[0] if flags else "")
        # `--shuffle/--no-shuffle` is one option of click.
        name = text_of(call, "dest") or flag.split("/")[0].lstrip("-").replace("-", "_")
        action, kind = text_of(call, "action"), call.find("type")
        is_flag = action in ("store_true", "store_false") or call.find("is_flag")
        default = call.argument("default") or Known((action == "store_false") if is_flag else None)
        digits = (default.of(str) or "").strip()
        if kind and last_name(kind.node) in ("int", "float") and digits.isdecimal():
            default = Known(int(digits), default.certainty, default.why)
        if flag:
            self.options.setdefault(name, {})[call.place] = Option(flag, default, call.place)

    def option(self, name: str) -> Known | None:
        """What an option is if the command line does not give it; None if no such option is declared."""
        known = []
        for flag, default, place in self.options.get(name, {}).values():
            # That a run can give another one matters more than where the default comes from.
            likely = Known(default.value).likely(f"default of {flag}, {place}")
            told = default if default.certainty is UNKNOWN else likely
            known.append(unknown(f"{flag} has no default, {place}") if default.value is None else told)
        places = ", ".join(self.options.get(name, {}))
        return one_of(known, f"declared more than once: {places}") if known else None

    # Attributes

    def attribute_of(self, known: Known, base: ast.expr, name: str, step: Step) -> Known:
        """An attribute of what `base` is known to be."""
        own, results = last_name(base), []
        for it in known.alternatives:
            found = self.member(it, name, step)
            if found.value is ... and it.value is ... and own in tables.OPTION_NAMES:
                found = self.option(name) or found
            results.append(found)
        whole = one_of(results, known.why or "one of several")
        # What the script assigns over an option or a field is not followed to each use.
        for other, place in self.assigned.get(name, {}).items() if own and whole.is_plain else ():
            if other == own or (own in tables.OPTION_NAMES and other in tables.OPTION_NAMES):
                return unknown(f"`{name}` is assigned at {place}")
        return whole

    def member(self, base: Known, name: str, step: Step) -> Known:
        value, found = base.value, None
        if value is ...:
            return base
        if isinstance(value, Frame):
            found = self.name_in(value, name)
        elif isinstance(value, Definition) and value.is_class:
            found = self.class_member(value, Instance(value), name)
        elif isinstance(value, Instance):
            found = self.class_member(value.of, value, name)
        elif isinstance(value, Symbol) and not value.of:
            path, links = f"{value.path}.{name}", step.frame.file.links
            if path.startswith(("absl.flags.FLAGS.", "tensorflow.app.flags.FLAGS.")):
                return self.option(name) or unknown(f"option {name}")
            found = Known(self.modules.get(links.get(path, -1)) or Symbol(tables.canonical(path)))
        elif isinstance(value, Call):
            found = self.member_of_call(value, name)
        elif isinstance(value, dict) and name in value:
            found = value[name].likely(from_mapping(base, step.place()))
        return found or unknown(f"`{name}` of an object is not followed")

    def member_of_call(self, call: Call, name: str) -> Known:
        if call.path.endswith((".parse_args", ".parse_known_args", ".parse_intermixed_args")):
            return self.option(name) or unknown(f"no option `{name}` is declared in these files")
        found = None
        if call.path in tables.NAMESPACES:
            inner = call.first.value
            found = inner.get(name) if isinstance(inner, dict) else call.argument(name)
        symbol = Known(Symbol(f"{call.path}.{name}", call))
        return found.likely(f"from {call.path} at {call.place}") if found else symbol

    def class_member(self, of: Definition, this: Instance, name: str, depth: int = 0) -> Known | None:
        """A name that a class, its objects or its bases have."""
        entries = self.attributes.get((of.node, name), {}).values()
        own = [it for it in entries if not this.made or it[1] in (None, this.made)]
        if own:
            makers = {it[1].node: it[1].place for it in own if it[1]}
            several = f"differs from call to call: {', '.join(makers.values())}"
            why = several if len(makers) > 1 else f"`self.{name}` is set twice"
            return one_of((it for it, _ in own), why)
        found = self.name_in(of.frame, name)
        if found or name in of.frame.names:
            return self.class_binding(of, this, name, found)
        if name == "hparams":
            return self.hparams(of, this)
        for base in of.inputs:
            if isinstance(base.value, Symbol):
                return Known(Symbol(f"{base.value.path}.{name}"))
            if isinstance(base.value, Definition) and base.value != of and depth < BASES_MAX:
                found = found or self.class_member(base.value, this, name, depth + 1)
        return found

    def class_binding(self, of: Definition, this: Instance, name: str, known: Known | None) -> Known:
        value = known.value if known else None
        if isinstance(value, Definition) and not value.is_class:
            return Known(replace(value, this=this))
        # A field of a dataclass may be given when an object is made.
        given = this.made.argument(name) if this.made else None
        if isinstance(value, Call) and value.path.endswith(".field"):
            known = value.argument("default") or known
        missing = unknown(f"`{name}` is declared only")
        return given or (known or missing).likely(f"default of {of.node.name}.{name}")

    def hparams(self, of: Definition, this: Instance) -> Known:
        """`self.hparams` of Lightning: the parameters of `__init__`."""
        start = self.initialiser(of)
        calls = [this.made] if this.made else [*self.instances.get(of.node, {}).values()]
        if not start:
            return unknown("`__init__` is not followed")
        frames = [self.parameters(start, it, this) for it in (calls or (None,))]
        why = f"differs from call to call: {', '.join(it.place for it in calls)}"
        names = {
            name: {line: one_of((it[name][line] for it in frames), why) for line in frames[0][name]}
            for name in frames[0]
        }
        return Known(Frame(of.frame.file, names=names))

    def initialiser(self, of: Definition) -> Definition | None:
        known = self.name_in(of.frame, "__init__")
        return known.of(Definition) if known else None

    def parameters(self, function: Definition, call: Call | None, this: Any) -> Any:
        """The names of the parameters: what the call gives, else their defaults."""
        node, defaults = function.node.args, iter(function.inputs)
        plain = [*node.posonlyargs, *node.args]
        default_of = {it.arg: next(defaults) for it in plain[len(plain) - len(node.defaults) :]}
        keywords = zip(node.kwonlyargs, node.kw_defaults)
        default_of.update({it.arg: next(defaults) for it, default in keywords if default})
        known = {}
        for place, it in enumerate([*plain, *node.kwonlyargs], -is_method(function)):
            given = call.argument(it.arg, place if it in plain else None) if call else None
            known[it.arg] = given or self.default(function, it.arg, default_of.get(it.arg), call)
        for it in filter(None, (node.vararg, node.kwarg)):
            known[it.arg] = unknown(f"`{it.arg}` holds any number of arguments")
        if plain and function.owner and is_method(function):
            known[plain[0].arg] = Known(this or Instance(function.owner))
        return {name: {function.node.lineno: it} for name, it in known.items()}

    def default(self, function: Definition, name: str, own: Known | None, call: Call | None) -> Known:
        """What a parameter is that no call gives."""
        what = f"parameter `{name}` of {function.node.name}"
        # By a decorator of click, the command line gives the parameters.
        decorators = [it for it in function.node.decorator_list if isinstance(it, ast.Call)]
        is_command = any(last_name(it.func) == "option" for it in decorators)
        option = self.option(name) if is_command else None
        if option or (own and call):
            return option or own or unknown("")
        missing = f"called at {call.step.place()}" if call else "which nothing in these files calls"
        return own.likely(f"default of {what}") if own else unknown(f"{what}, {missing}")


def is_method(function: Definition) -> bool:
    """Whether the first parameter is the object."""
    is_static = any(last_name(it) == "staticmethod" for it in function.node.decorator_list)
    return function.owner is not None and not is_static


def text_of(call: Call, name: str, place: int | None = None) -> str:
    found = call.find(name, place)
    return (string(found.node) if found else None) or ""
