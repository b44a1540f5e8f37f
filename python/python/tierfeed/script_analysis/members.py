"""Looks up names, attributes and options: of files, of classes and their objects, of commands."""

from __future__ import annotations

import ast
from typing import Any, NamedTuple

from . import known as tables
from .load import File
from .operators import from_mapping
from .value import (
    UNKNOWN,
    Definition,
    Frame,
    Instance,
    Known,
    Made,
    Mapping,
    Member,
    Method,
    Step,
    Symbol,
    last_name,
    named_argument,
    one_of,
    string,
    unknown,
)  # fmt: skip

BRANCHES_MAX = 16  # Branches in which a name may be bound before it is used.


class Option(NamedTuple):
    """A declared option of the command line."""

    flag: str  # As it is typed: `--batch-size`.
    default: Known
    place: str


class Members:
    """What the scripts bind and declare, as far as they ran."""

    def __init__(self, files: list[File]) -> None:
        self.files = files
        # Options, by the name that a script reads them by, and the place of the declaration.
        self.options: dict[str, dict[str, Option]] = {}
        # What classes assign to `self`, by the class and the name, then by statement and object.
        self.attributes: dict[tuple[ast.AST, str], dict[Any, tuple[Known, Made | None]]] = {}
        # Where `base.name` is assigned to, by `name` and the last name of the base.
        self.assigned: dict[str, dict[str, str]] = {}
        # The calls that make objects of each class.
        self.instances: dict[ast.AST, dict[ast.AST, Made]] = {}

    def module(self, number: int) -> Frame:
        """The names of a file."""
        raise NotImplementedError

    # Names

    def lookup(self, name: str, frame: Frame) -> Known:
        current: Frame | None = frame
        while current:
            is_class = current.definition and current.definition.is_class
            found = self.name_in(current, name) if current is frame or not is_class else None
            if found:
                return found
            current = current.parent
        return self.bound_elsewhere(name, frame.module)

    def name_in(self, frame: Frame, name: str) -> Known | None:
        bindings = sorted(frame.names.get(name, {}).items())
        if len(bindings) > BRANCHES_MAX:
            return unknown(f"`{name}` is bound too often")
        places = ", ".join(f"{frame.file.name}:{line}" for line, _ in bindings)
        known = one_of((it for _, it in bindings), f"assigned in branches: {places}")
        return known if bindings else None

    def bound_elsewhere(self, name: str, module: Frame) -> Known:
        """A name that no statement binds: from `import *`, or Python's own."""
        links = module.file.links
        foreign = [it for it in module.stars if it not in links]
        for star in reversed(module.stars):
            path = tables.canonical(f"{star}.{name}")
            is_only = name not in tables.BUILTINS and len(foreign) == 1
            found = self.name_in(self.module(links[star]), name) if star in links else None
            if found:
                return found
            if star in foreign and (is_only or tables.is_known(path)):
                return Known(Symbol(path)).likely(f"from {star} import *")
        missing = unknown(f"`{name}` is bound nowhere in these files")
        return Known(Symbol(name)) if name in tables.BUILTINS else missing

    def imported(self, module: str, member: str | None, step: Step) -> Known:
        links = step.frame.file.links
        path = f"{module}{'' if module.endswith('.') else '.'}{member}" if member else module
        # What a package binds itself hides a file of that name.
        own = self.name_in(self.module(links[module]), member) if member and module in links else None
        if own:
            return own
        if path in links:
            return Known(self.module(links[path]))
        is_missing = module in links
        missing = unknown(f"`{member}` is not bound in {module}")
        return missing if is_missing else Known(Symbol(tables.canonical(path)))

    # Options of the command line

    def declare(self, made: Made) -> None:
        """Notes the option that a call declares, if it does."""
        call, place = made.node, made.place
        if made.method in ("add_argument", "add", "option"):
            self.declare_argument(made)
        elif made.method == "set_defaults":
            for it in made.given:
                if it.how == "name":
                    self.options[it.name] = {place: Option(f"--{it.name}", it.known, place)}
        elif made.method.startswith("DEFINE_"):
            # `flags.DEFINE_integer("batch_size", 256, "help")`
            name = string(call.args[0] if call.args else named_argument(call, "name"))
            option = Option(f"--{name}", made.argument("default", 1) or Known(None), place)
            self.options.setdefault(name or "", {})[place] = option

    def declare_argument(self, made: Made) -> None:
        """`parser.add_argument("--batch-size", default=256)`, `@click.option("--batch-size", …)`"""
        call = made.node
        flags = [it for it in map(string, call.args) if it]
        flag = next((it for it in flags if it.startswith("--")), flags[0] if flags else "")
        # `--shuffle/--no-shuffle` is one option of click.
        name = string(named_argument(call, "dest")) or flag.split("/")[0].lstrip("-").replace("-", "_")
        action = string(named_argument(call, "action"))
        is_flag = action in ("store_true", "store_false") or named_argument(call, "is_flag")
        default = made.argument("default") or Known((action == "store_false") if is_flag else None)
        is_number = last_name(named_argument(call, "type")) in ("int", "float")
        if is_number and isinstance(default.value, str) and default.value.strip().isdecimal():
            default = default._replace(value=int(default.value))
        if flag:
            self.options.setdefault(name, {})[made.place] = Option(flag, default, made.place)

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
            if found.is_unknown and it.is_unknown and own in tables.OPTION_NAMES:
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
        if base.is_unknown:
            return base
        if isinstance(value, Frame):
            found = self.name_in(value, name)
        elif isinstance(value, Definition) and value.is_class:
            found = self.class_member(value, Instance(value), name)
        elif isinstance(value, Instance):
            is_own = not value.is_settings
            found = self.class_member(value.of, value, name) if is_own else self.setting(value, name)
        elif isinstance(value, Symbol):
            found = self.symbol_member(value.path, name, step)
        elif isinstance(value, Made):
            found = self.made_member(value, name)
        elif isinstance(value, Mapping):
            found = value.get(name)
            found = found and found.likely(from_mapping(base, step.place()))
        return found or unknown(f"`{name}` of an object is not followed")

    def symbol_member(self, path: str, name: str, step: Step) -> Known:
        full, links = f"{path}.{name}", step.frame.file.links
        if path in ("absl.flags.FLAGS", "tensorflow.app.flags.FLAGS"):
            return self.option(name) or unknown(f"option {name}")
        return Known(self.module(links[full]) if full in links else Symbol(tables.canonical(full)))

    def made_member(self, made: Made, name: str) -> Known:
        if made.path.endswith((".parse_args", ".parse_known_args", ".parse_intermixed_args")):
            return self.option(name) or unknown(f"no option `{name}` is declared in these files")
        inner = made.argument("", 0)
        found = inner.value.get(name) if inner and isinstance(inner.value, Mapping) else None
        found = (found or made.argument(name)) if made.path in tables.NAMESPACES else None
        return found.likely(f"from {made.path} at {made.place}") if found else Known(Member(made, name))

    def class_member(self, of: Definition, this: Instance, name: str) -> Known | None:
        """A name that a class, its objects or its bases have."""
        entries = self.attributes.get((of.node, name), {}).values()
        node = this.made.node if this.made else None
        own = [it for it in entries if not node or not it[1] or it[1].node is node]
        if own:
            makers = {it[1].node: it[1].place for it in own if it[1]}
            several = f"differs from call to call: {', '.join(makers.values())}"
            why = several if len(makers) > 1 else f"`self.{name}` is set twice"
            return one_of((it for it, _ in own), why)
        if name in of.frame.names:
            return self.class_binding(of, this, name)
        if name == "hparams":
            return Known(Instance(of, this.made, is_settings=True))
        for base in of.inputs:
            if isinstance(base.value, Symbol):
                return Known(Symbol(f"{base.value.path}.{name}"))
            is_class = isinstance(base.value, Definition) and base.value.node is not of.node
            found = self.class_member(base.value, this, name) if is_class else None
            if found:
                return found
        return None

    def class_binding(self, of: Definition, this: Instance, name: str) -> Known:
        known = self.name_in(of.frame, name) or unknown(f"`{name}` is declared only")
        if isinstance(known.value, Definition) and not known.value.is_class:
            return Known(Method(known.value, this))
        # A field of a dataclass may be given when an object is made.
        given = this.made.argument(name) if this.made else None
        is_field = known.made and known.made.path.endswith(".field")
        default = known.made.argument("default") if known.made and is_field else None
        return given or (default or known).likely(f"default of {of.node.name}.{name}")

    def initialiser(self, of: Definition) -> Definition | None:
        known = self.name_in(of.frame, "__init__")
        return known.value if known and isinstance(known.value, Definition) else None

    def setting(self, settings: Instance, name: str) -> Known:
        """`self.hparams.name`: the parameter of `__init__`."""
        function = self.initialiser(settings.of)
        names = [it[0] for it in parameters_of(function)] if function else []
        if not function or name not in names:
            return unknown(f"`{name}` is no parameter of __init__")
        makers = list(self.instances.get(settings.of.node, {}).values())
        calls: list[Any] = [settings.made] if settings.made else makers or [None]
        known = [self.parameter(function, names.index(name), it) for it in calls]
        return one_of(known, f"differs from call to call: {', '.join(it.place for it in calls if it)}")

    def parameter(self, function: Definition, index: int, made: Made | None) -> Known:
        """What a parameter is: what the call gives, else its default."""
        name, default, kind = parameters_of(function)[index]
        if kind == "rest":
            return unknown(f"`{name}` holds any number of arguments")
        place = index - is_method(function) if kind == "plain" else None
        given = made.argument(name, place) if made else None
        option = self.option(name) if is_command(function) else None
        what = f"parameter `{name}` of {function.node.name}"
        if given or option:
            return given or option or unknown("")
        if made is None:
            alone = unknown(f"{what}, which nothing in these files calls")
            return default.likely(f"default of {what}") if default else alone
        is_open = any(it.how == "splat" for it in made.given)
        return default if default and not is_open else unknown(f"{what}, called at {made.step.place()}")

    def library_bases(self, of: Definition | None) -> list[str]:
        """The library classes that a class is derived from, over other classes of these files."""
        waiting, seen, found = ([of] if of else []), [], []
        for current in waiting:
            if current.node not in seen:
                seen.append(current.node)
                found += [it.value.path for it in current.inputs if isinstance(it.value, Symbol)]
                waiting += [it.value for it in current.inputs if isinstance(it.value, Definition)]
        return found


def parameters_of(function: Definition) -> list[tuple[str, Known | None, str]]:
    """Name, default and kind (`plain`, `by name` or `rest`) of each parameter."""
    node: ast.arguments = getattr(function.node, "args", ast.arguments([], [], None, [], [], None, []))
    plain, defaults = [*node.posonlyargs, *node.args], iter(function.inputs)
    missing = len(plain) - len(node.defaults)
    found = [(it.arg, None if i < missing else next(defaults), "plain") for i, it in enumerate(plain)]
    for it, default in zip(node.kwonlyargs, node.kw_defaults):
        found.append((it.arg, next(defaults) if default else None, "by name"))
    return found + [(it.arg, None, "rest") for it in (node.vararg, node.kwarg) if it]


def is_method(function: Definition) -> bool:
    """Whether the first parameter is the object."""
    is_static = any(last_name(it) == "staticmethod" for it in function.node.decorator_list)
    return function.owner is not None and not is_static


def is_command(function: Definition) -> bool:
    """Whether the command line gives the parameters, by decorators of click."""
    calls = (it for it in function.node.decorator_list if isinstance(it, ast.Call))
    return any(last_name(it.func) == "option" for it in calls)
