"""Runs the scripts on what is known of their values: every statement once, every branch.

Names are followed to what they are bound to, options to their defaults, functions to what they return,
parameters to what they are called with. What cannot be followed is unknown, and says why.

1. No code of a script is executed: this walks its syntax tree.
2. A function runs once for each call that leads to it; one that is never called runs by itself.
3. Every run ends: loops run once, functions do not call themselves, and each expression costs fuel.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from . import known as tables
from . import operators
from .load import File, module_name
from .operators import apply
from .value import (
    CERTAIN, LIKELY, UNKNOWN, Condition, Definition, Frame, Given, Instance, Known, Loop, Made, Mapping,
    Member, Method, Sequence, Step, Symbol, computed, computed_from, last_name, named_argument, one_of,
    reason, string, truth_of, unknown,
)  # fmt: skip

CALLS_MAX = 12
"""Calls of functions that lead from one to another."""
DEPTH_MAX = 2_500
"""Expressions that lead from one to another."""
FUEL = 400_000
"""Expressions that are looked at in one run."""
BRANCHES_MAX = 16
"""Branches in which a name may be bound before it is used."""
ELSE_IFS_MAX = 40
"""A longer chain of `elif` runs without its tests."""


class Option(NamedTuple):
    """A declared option of the command line."""

    flag: str
    """As it is typed: `--batch-size`."""
    default: Known
    place: str


class Interpreter:
    def __init__(self, files: list[File]) -> None:
        self.files = files
        self.options: dict[str, dict[str, Option]] = {}
        """By the name that a script reads it by, and the place of the declaration."""
        self.attributes: dict[tuple[ast.AST, str], dict[Any, tuple[Known, Made | None]]] = {}
        """What classes assign to `self`, by the class and the name."""
        self.assigned: dict[str, dict[str, str]] = {}
        """Where `base.name` is assigned to, by `name` and the last name of the base."""
        self.called: set[ast.AST] = set()
        """Functions that others call."""
        self.instances: dict[ast.AST, dict[ast.AST, Made]] = {}
        """The calls that make objects of each class."""
        # What a function needs may be said further down: the first run finds it, the second uses it.
        for _ in range(2):
            self.run_all()

    @property
    def is_exhausted(self) -> bool:
        """Whether something is left unknown because the run took as long as it may."""
        return self.fuel <= 0

    def run_all(self) -> None:
        self.fuel, self.depth = FUEL, 0
        self.calls: list[Made] = []
        self.definitions: list[Definition] = []
        self.variables: list[tuple[Step, int, str]] = []
        """Variables of the environment that are read: the statement, the line, the name."""
        self.loops: list[tuple[Step, Loop, Known]] = []
        self.imports: list[tuple[Step, str, str | None]] = []
        self.modules: dict[int, Frame] = {}
        for number in range(len(self.files)):
            self.module(number)
        for definition in self.definitions:
            if not definition.is_class and definition.node not in self.called:
                self.run_alone(definition)

    def module(self, number: int) -> Frame:
        if number not in self.modules:
            frame = self.modules[number] = Frame(self.files[number])
            self.run(frame.file.statements, Step(frame))
        return self.modules[number]

    # Statements

    def run(self, body: Iterable[ast.stmt], around: Step) -> None:
        for node in body:
            line = min(it.lineno for it in (node, *getattr(node, "decorator_list", ())))
            target = getattr(node, "target", None) or [*getattr(node, "targets", ()), None][0]
            name = last_name(target) if target and not isinstance(node, (ast.For, ast.AugAssign)) else ""
            self.statement(node, around._replace(line=line, target=name))

    def statement(self, node: ast.stmt, step: Step) -> None:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            self.assignment(node, step)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.definition(node, step)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.import_(node, step)
        elif isinstance(node, ast.If):
            self.condition(node, step)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
            self.loop(node, step)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            for item in node.items:
                value = self.eval(item.context_expr, step)
                if item.optional_vars:
                    self.bind(item.optional_vars, value, item.context_expr, step)
            self.run(node.body, step)
        elif isinstance(node, ast.Return):
            value = self.eval(node.value, step) if node.value else None
            if value and not step.frame.is_over:
                step.frame.returns.append(value)
                step.frame.is_over = not step.frame.open
        elif hasattr(node, "handlers"):  # `try`, also the one with `except*` of Python 3.11
            self.run(getattr(node, "body", ()), step)
            self.branches([it.body for it in getattr(node, "handlers", ())], step)
            self.run([*getattr(node, "orelse", ()), *getattr(node, "finalbody", ())], step)
        elif hasattr(node, "cases"):  # `match` of Python 3.10
            self.eval(getattr(node, "subject", ast.Constant(None)), step)
            self.branches([it.body for it in getattr(node, "cases", ())], step)
        else:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.eval(child, step)

    def assignment(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, step: Step) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is None:
            step.frame.names.setdefault(step.target, {})
            return
        value = self.eval(node.value, step)
        for target in targets:
            if isinstance(node, ast.AugAssign):
                name = last_name(target)
                value = unknown(f"`{name}` is changed at {step.place()}")
            self.bind(target, value, node.value, step)

    def bind(self, target: ast.expr, value: Known, node: ast.expr, step: Step) -> None:
        place = f"assigned at {step.place()}"
        if isinstance(target, (ast.Tuple, ast.List)):
            for index, inner in enumerate(target.elts):
                self.bind(inner, operators.element(value, node, index, step), node, step)
        elif isinstance(target, ast.Name):
            step.frame.names[target.id] = {step.line: value.likely(place) if value.is_plain else value}
        elif isinstance(target, ast.Attribute):
            self.eval(target.value, step)
            self.bind_attribute(target, value, node, step)
        elif isinstance(target, ast.Subscript):
            self.eval(target, step)

    def bind_attribute(self, target: ast.Attribute, value: Known, node: ast.expr, step: Step) -> None:
        """`self.name = …` in a method is an attribute of the class."""
        base, method = last_name(target.value), step.function
        if method and method.owner and base == next(iter(parameters_of(method)), ("",))[0]:
            made = getattr(step.frame.this, "made", None)
            known = value.likely(f"assigned at {step.place(node)}") if value.is_plain else value
            found = self.attributes.setdefault((method.owner.node, target.attr), {})
            found[target, made and made.node] = known, made
        elif base:
            self.assigned.setdefault(target.attr, {}).setdefault(base, step.place())

    def branches(
        self, bodies: list[list[ast.stmt]], step: Step, test: Condition | None = None, taken: int = -1
    ) -> None:
        """Runs each branch on the names of before. What is certainly not taken changes none of them."""
        frame, before, was_over = step.frame, step.frame.names, step.frame.is_over
        ends, over = ([] if test else [before]), was_over
        for number, body in enumerate(bodies):
            is_taken = taken in (-1, number)
            frame.names, frame.is_over = dict(before), was_over or not is_taken
            frame.open += taken < 0
            held = (*step.conditions, test._replace(holds=number == 0)) if test else step.conditions
            self.run(body, step._replace(conditions=held))
            frame.open -= taken < 0
            if is_taken:
                ends.append(frame.names)
                over = frame.is_over
        frame.is_over = was_over if taken < 0 else over
        frame.names = {}
        for end in ends:
            self.fuel -= len(end) // 64
            for name, bindings in end.items():
                frame.names[name] = {**frame.names.get(name, {}), **bindings}

    def condition(self, node: ast.If, step: Step) -> None:
        chain = [node]
        while len(chain[-1].orelse) == 1 and isinstance(chain[-1].orelse[0], ast.If):
            chain.append(chain[-1].orelse[0])
        if len(chain) > ELSE_IFS_MAX:
            self.branches([*(it.body for it in chain), chain[-1].orelse], step)
            return
        test = self.eval(node.test, step)
        truth = truth_of(test.value) if test.certainty is CERTAIN else None
        remainder = remainder_in(node.test)
        every = self.eval(remainder.right, step) if remainder else None
        taken = -1 if truth is None else int(not truth)
        self.branches([node.body, node.orelse], step, Condition(node.test, True, every), taken)

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, step: Step) -> None:
        target = None if isinstance(node, ast.While) else node.target
        over = node.test if isinstance(node, ast.While) else node.iter
        known = self.eval(over, step)
        loop = Loop(target, over, step.line)
        self.loops.append((step, loop, known))
        for inner in (it for statement in node.body for it in ast.walk(statement)):
            if isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Name):
                name = inner.target.id
                why = f"`{name}` changes in the loop, {step.place(inner)}"
                step.frame.names[name] = {inner.lineno: unknown(why)}
        for inner in ast.walk(target) if target else ():
            if isinstance(inner, ast.Name):
                is_whole = inner is target
                set_ = unknown(f"`{inner.id}` is set at {step.place()}")
                value = operators.looped(inner.id, known, over, step) if is_whole else set_
                step.frame.names[inner.id] = {step.line: value}
        self.run(node.body, step._replace(loops=(*step.loops, loop)))
        self.run(node.orelse, step)

    def import_(self, node: ast.Import | ast.ImportFrom, step: Step) -> None:
        for alias in node.names:
            is_from = isinstance(node, ast.ImportFrom)
            module = module_name(node) if isinstance(node, ast.ImportFrom) else alias.name
            self.imports.append((step, module, alias.name if is_from else None))
            if alias.name == "*":
                step.frame.module.stars.append(module)
                continue
            # `import a.b` binds `a`; the rest is found by its attributes.
            bound = module if is_from or alias.asname else module.split(".")[0]
            name = alias.asname or (alias.name if is_from else bound)
            found = self.imported(bound, alias.name if is_from else None, step)
            step.frame.names[name] = {step.line: found}

    def imported(self, module: str, member: str | None, step: Step) -> Known:
        links = step.frame.file.links
        path = f"{module}{'' if module.endswith('.') else '.'}{member}" if member else module
        # What a package binds itself hides a file of that name.
        own = self.name_in(self.module(links[module]), member) if member and module in links else None
        if own:
            return own
        if path in links:
            return Known(self.module(links[path]))
        if module in links:
            return unknown(f"`{member}` is not bound in {module}")
        return Known(Symbol(tables.canonical(path)))

    def definition(self, node: Any, step: Step) -> None:
        decorators = [self.eval(it, step) for it in node.decorator_list]
        owner = step.frame.definition if step.frame.definition and step.frame.definition.is_class else None
        if isinstance(node, ast.ClassDef):
            frame = Frame(step.frame.file, step.frame)
            found = Definition(node, step, frame, decorators, [self.eval(it, step) for it in node.bases])
            frame.definition = found
            self.run(node.body, Step(frame))
        else:
            arguments = (*node.args.defaults, *node.args.kw_defaults)
            defaults = [self.eval(it, step) for it in arguments if it]
            found = Definition(node, step, step.frame, decorators, defaults, owner)
        self.definitions.append(found)
        step.frame.names[node.name] = {step.line: Known(found)}

    # Expressions

    def eval(self, node: ast.expr, step: Step) -> Known:
        if self.fuel <= 0 or self.depth > DEPTH_MAX:
            return unknown("follows from too much to be followed here")
        self.fuel -= 1
        self.depth += 1
        known = self.value_of(node, step)
        self.depth -= 1
        return known

    def value_of(self, node: ast.expr, step: Step) -> Known:
        if isinstance(node, ast.Name):
            return self.lookup(node.id, step.frame)
        if isinstance(node, ast.Attribute):
            return self.attribute_of(self.eval(node.value, step), node.value, node.attr, step)
        if isinstance(node, ast.Call):
            return self.call(node, step)
        if isinstance(node, ast.Constant):
            is_large = type(node.value) is int and node.value >= 1 << 63
            is_plain = isinstance(node.value, (bool, int, float, str, type(None)))
            return Known(node.value) if is_plain and not is_large else computed(node, step)
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            items = tuple(self.eval(it, step) for it in node.elts)
            return computed_from(Sequence(items), items)
        if isinstance(node, ast.Dict):
            return self.dictionary(node, step)
        if isinstance(node, ast.BinOp):
            sides = self.eval(node.left, step), self.eval(node.right, step)
            return apply(node, step, operators.binary(type(node.op)), *sides)
        if isinstance(node, ast.UnaryOp):
            return apply(node, step, operators.unary(type(node.op)), self.eval(node.operand, step))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = self.eval(node.left, step), self.eval(node.comparators[0], step)
            return apply(node, step, operators.comparison(type(node.ops[0])), *sides)
        if isinstance(node, ast.BoolOp):
            return self.logic(node, step)
        if isinstance(node, ast.IfExp):
            return self.choice(node, step)
        if isinstance(node, ast.Subscript):
            return self.item(node, step)
        if isinstance(node, ast.JoinedStr):
            return self.text(node, step)
        if isinstance(node, (ast.NamedExpr, ast.Await, ast.Starred)):
            return self.eval(node.value, step)
        return self.inner(node, step)

    def inner(self, node: ast.expr, step: Step) -> Known:
        """Runs what is inside an expression for its calls; a lambda or a comprehension binds names."""
        frame, names = step.frame, step.frame.names
        targets = [it.target for it in getattr(node, "generators", ())]
        bound = [it.id for target in targets for it in ast.walk(target) if isinstance(it, ast.Name)]
        if isinstance(node, ast.Lambda):
            bound = [it.arg for it in ast.walk(node.args) if isinstance(it, ast.arg)]
        changes = {name: {node.lineno: unknown("changes from call to call")} for name in bound}
        frame.names = {**names, **changes} if changes else names
        for child in ast.iter_child_nodes(node):
            children = (child,) if isinstance(child, ast.expr) else ast.iter_child_nodes(child)
            for it in children:
                if isinstance(it, ast.expr) and not isinstance(child, ast.arguments):
                    self.eval(it, step)
        frame.names = names if changes else frame.names
        return computed(node, step)

    def dictionary(self, node: ast.Dict, step: Step) -> Known:
        pairs: list[tuple[Known, Known]] = []
        rest = None
        for key, expr in zip(node.keys, node.values):
            name, value = (self.eval(key, step) if key else None), self.eval(expr, step)
            if name:
                pairs.append((name, value))
            elif isinstance(value.value, Mapping):
                pairs += value.value.pairs
            else:
                rest = value
        # A key that is not among these may be among those that are unknown.
        known = Known(Mapping(tuple(pairs)))
        return Known(known.value, UNKNOWN, rest.why) if rest else known

    def logic(self, node: ast.BoolOp, step: Step) -> Known:
        """`left and right`, `left or right`."""
        known, ends = self.eval(node.values[0], step), isinstance(node.op, ast.Or)
        for right in node.values[1:]:
            why, second, results = reason(known, node.values[0], step), self.eval(right, step), []
            for left in known.alternatives:
                truth = truth_of(left.value)
                if truth in (None, ends):
                    results.append(left)
                if truth is None:
                    results.append(second)
                elif truth is not ends:
                    why = reason(second, right, step)
                    worse = left if left.certainty > second.certainty else second
                    results.append(Known(second.value, worse.certainty, worse.why))
            known = one_of(results, why)
        return known

    def choice(self, node: ast.IfExp, step: Step) -> Known:
        decided = self.eval(node.test, step)
        both = [self.eval(node.body, step), self.eval(node.orelse, step)]
        truth = truth_of(decided.value)
        if truth is None or decided.certainty is UNKNOWN:
            return one_of(both, f"depends on `{step.source(node.test)}`")
        taken = both[0] if truth else both[1]
        why = decided.why or f"decided at {step.place(node.test)}"
        return taken if decided.certainty is CERTAIN else taken.likely(why)

    def item(self, node: ast.Subscript, step: Step) -> Known:
        base, index = self.eval(node.value, step), self.eval(node.slice, step)
        if last_name(node.value) == "environ" and index.of(str) in tables.LAUNCHER:
            self.variables.append((step, node.lineno, index.value))
        results = [
            operators.item_of(it, key, node, step)
            for it in base.alternatives
            for key in index.alternatives
        ]
        return one_of(results, reason(base, node, step))

    def text(self, node: ast.JoinedStr, step: Step) -> Known:
        whole = Known("")
        for piece in node.values:
            inner = piece.value if isinstance(piece, ast.FormattedValue) else piece
            part = self.eval(inner, step)
            if isinstance(piece, ast.FormattedValue) and (piece.format_spec or piece.conversion != -1):
                part = computed(inner, step)
            whole = apply(inner, step, operators.concatenated, whole, part)
        return whole

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
        return one_of((it for _, it in bindings), f"assigned in branches: {places}") if bindings else None

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
        is_builtin = name in tables.BUILTINS
        return Known(Symbol(name)) if is_builtin else unknown(f"`{name}` is bound nowhere in these files")

    # Calls

    def call(self, node: ast.Call, step: Step) -> Known:
        func, on = node.func, None
        if isinstance(func, ast.Attribute):
            on = self.eval(func.value, step)
            called = self.attribute_of(on, func.value, func.attr, step)
        else:
            called = self.eval(func, step)
        made = Made("", node, self.given(node, step), step, on)
        value = next((it.value for it in called.alternatives if not it.is_unknown), None)
        pipeline = self.step_of_pipeline(on, func.attr, step) if on and isinstance(func, ast.Attribute) else None
        if isinstance(value, Definition) and not pipeline:
            if value.is_class:
                return self.construct(value, made)
            return self.invoke(value, made, None)
        if isinstance(value, Method) and not pipeline:
            return self.invoke(value.function, made, value.this)
        made.path = pipeline or f"*.{made.method}"
        if isinstance(value, (Symbol, Member)) and not pipeline:
            path = value.path if isinstance(value, Symbol) else f"{value.made.path}.{value.name}"
            made.path = self.initialised(step) if path == "super.__init__" else tables.canonical(path)
        self.calls.append(made)
        self.declare(made)
        if made.path.startswith("*."):
            known = (on and operators.method(on, made)) or computed(node, step)
        else:
            known = self.got_attribute(made) or operators.builtin(made) or Known(made)
        made.value = known
        return known

    def given(self, node: ast.Call, step: Step) -> list[Given]:
        given = []
        for it in (*node.args, *node.keywords):
            is_star, is_keyword = isinstance(it, ast.Starred), isinstance(it, ast.keyword)
            expr: Any = getattr(it, "value", it) if is_star or is_keyword else it
            name = getattr(it, "arg", None) if is_keyword else None
            how = "name" if name else "spread" if is_keyword else "splat" if is_star else "place"
            given.append(Given(how, name or "", expr, self.eval(expr, step)))
        return given

    def step_of_pipeline(self, on: Known, method: str, step: Step) -> str | None:
        """The full name of a method that gives another object of the same kind, as those of tf.data."""
        families = (tables.family(it.made.path) for it in on.alternatives if it.made)
        family = next((it for it in families if it), None)
        if family is None and any(it.is_unknown for it in on.alternatives):
            # Where a pipeline begins may be hidden; its steps cannot be mistaken.
            modules = (module for at, module, _ in self.imports if at.frame.file is step.frame.file)
            is_tensorflow = any(it.startswith("tensorflow") for it in modules)
            family = tables.TF_DATA if is_tensorflow and method in tables.TELLING else None
        return f"{family}.{method}" if family and method in tables.FAMILIES[family][1] else None

    def initialised(self, step: Step) -> str:
        """`super().__init__(…)` is a call of what the class is derived from."""
        bases = self.library_bases(step.class_around) if step.class_around else []
        return next((it for it in bases if tables.is_known(it)), "super.__init__")

    def got_attribute(self, made: Made) -> Known | None:
        """`getattr(args, "name", default)`"""
        name = string(made.given[1].node) if len(made.given) > 1 else None
        if made.path != "getattr" or name is None:
            return None
        found = self.attribute_of(made.given[0].known, made.given[0].node, name, made.step)
        default = made.argument("", 2)
        other = default.likely(f"default of getattr, {made.place}") if default else None
        return other if found.is_unknown else found

    def construct(self, of: Definition, made: Made) -> Known:
        self.instances.setdefault(of.node, {})[made.node] = made
        instance = Instance(of, made)
        start = self.initialiser(of)
        if start:
            self.invoke(start, made, instance)
        return Known(instance)

    def invoke(self, function: Definition, made: Made, this: Any) -> Known:
        """Runs a function for a call."""
        callers = [made.step, *made.step.callers]
        if any(it.function is function for it in callers):
            return unknown(f"`{function.node.name}` calls itself")
        self.called.add(function.node)
        if len(callers) > CALLS_MAX or self.fuel < FUEL // 2:
            return unknown("follows from too much to be followed here")
        frame = Frame(function.frame.file, function.frame, function, made.step, this)
        self.enter(frame, made)
        self.run(function.node.body, Step(frame))
        name = function.node.name
        if not frame.returns:
            return unknown(f"`{name}` returns nothing that is followed")
        return one_of(frame.returns, f"`{name}` returns one of several")

    def run_alone(self, function: Definition) -> None:
        """Runs a function that no call leads to."""
        frame = Frame(function.frame.file, function.frame, function)
        self.enter(frame, None)
        self.run(function.node.body, Step(frame))

    def enter(self, frame: Frame, made: Made | None) -> None:
        function = frame.definition
        assert function
        is_method = function.owner is not None and not is_static(function)
        for index, (name, default, kind) in enumerate(parameters_of(function)):
            if is_method and index == 0:
                known = Known(frame.this or Instance(function.owner))
            elif kind == "rest":
                known = unknown(f"`{name}` holds any number of arguments")
            else:
                place = index - is_method if kind == "plain" else None
                known = self.parameter(function, name, default, made, place)
            frame.names[name] = {function.node.lineno: known}

    def parameter(
        self, function: Definition, name: str, default: Known | None, made: Made | None, place: int | None
    ) -> Known:
        """What a parameter is: what the call gives, else its default."""
        given = made.argument(name, place) if made else None
        option = self.option(name) if is_command(function) and given is None else None
        what = f"parameter `{name}` of {function.node.name}"
        if given or option:
            return given or option or unknown("")
        if made is None:
            alone = unknown(f"{what}, which nothing in these files calls")
            return default.likely(f"default of {what}") if default else alone
        is_open = any(it.how == "splat" for it in made.given)
        return default if default and not is_open else unknown(f"{what}, called at {made.step.place()}")

    # Options of the command line

    def declare(self, made: Made) -> None:
        method, place, call = made.method, made.place, made.node
        if method in ("add_argument", "add", "option"):
            self.declare_argument(made)
        elif method == "set_defaults":
            for it in made.given:
                if it.how == "name":
                    self.options[it.name] = {place: Option(f"--{it.name}", it.known, place)}
        elif method.startswith("DEFINE_"):
            # `flags.DEFINE_integer("batch_size", 256, "help")`
            name = made.argument("name", 0)
            default = made.argument("default", 1) or Known(None)
            if name and name.of(str) and string(call.args[0] if call.args else None):
                self.options.setdefault(name.value, {})[place] = Option(f"--{name.value}", default, place)

    def declare_argument(self, made: Made) -> None:
        """`parser.add_argument("--batch-size", "-b", default=256)`, `@click.option("--batch-size", …)`"""
        call = made.node
        flags = [it for it in map(string, call.args) if it]
        if not flags:
            return
        flag = next((it for it in flags if it.startswith("--")), flags[0])
        # `--shuffle/--no-shuffle` is one option of click.
        name = string(named_argument(call, "dest")) or flag.split("/")[0].lstrip("-").replace("-", "_")
        action = string(named_argument(call, "action"))
        is_flag = action in ("store_true", "store_false") or named_argument(call, "is_flag")
        default = made.argument("default") or Known((action == "store_false") if is_flag else None)
        is_number = last_name(named_argument(call, "type") or call) in ("int", "float")
        if is_number and isinstance(default.value, str) and default.value.strip().isdecimal():
            default = default._replace(value=int(default.value))
        self.options.setdefault(name, {})[made.place] = Option(flag, default, made.place)

    def option(self, name: str) -> Known | None:
        """What an option is if the command line does not give it; None if no such option is declared."""
        known = []
        for flag, default, place in self.options.get(name, {}).values():
            if default.value is None:
                known.append(unknown(f"{flag} has no default, {place}"))
            elif default.certainty is UNKNOWN:
                known.append(default)
            else:
                # That a run can give another one matters more than where the default comes from.
                known.append(Known(default.value).likely(f"default of {flag}, {place}"))
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
        found = one_of(results, known.why or "one of several")
        # What the script assigns over an option or a field is not followed to each use.
        for other, place in self.assigned.get(name, {}).items() if own and found.is_plain else ():
            if other == own or (own in tables.OPTION_NAMES and other in tables.OPTION_NAMES):
                return unknown(f"`{name}` is assigned at {place}")
        return found

    def member(self, base: Known, name: str, step: Step) -> Known:
        value, found = base.value, None
        if base.is_unknown:
            return base
        if isinstance(value, Frame):
            found = self.name_in(value, name)
        elif isinstance(value, Definition) and value.is_class:
            found = self.class_member(value, Instance(value), name)
        elif isinstance(value, Instance) and value.is_settings:
            return self.setting(value, name)
        elif isinstance(value, Instance):
            found = self.class_member(value.of, value, name)
        elif isinstance(value, Symbol):
            return self.symbol_member(value.path, name, step)
        elif isinstance(value, Made):
            return self.made_member(value, name)
        elif isinstance(value, Mapping):
            found = value.get(name)
            found = found and found.likely(operators.from_mapping(base, step.place()))
        return found or unknown(f"`{name}` of an object is not followed")

    def symbol_member(self, path: str, name: str, step: Step) -> Known:
        if path in ("absl.flags.FLAGS", "tensorflow.app.flags.FLAGS"):
            return self.option(name) or unknown(f"option {name}")
        full, links = f"{path}.{name}", step.frame.file.links
        is_own = full in links
        return Known(self.module(links[full]) if is_own else Symbol(tables.canonical(full)))

    def made_member(self, made: Made, name: str) -> Known:
        if made.path.endswith((".parse_args", ".parse_known_args", ".parse_intermixed_args")):
            return self.option(name) or unknown(f"no option `{name}` is declared in these files")
        if made.path in tables.NAMESPACES:
            inner = made.argument("", 0)
            found = inner.value.get(name) if inner and isinstance(inner.value, Mapping) else None
            found = found or made.argument(name)
            if found:
                return found.likely(f"from {made.path} at {made.place}")
        return Known(Member(made, name))

    def class_member(self, of: Definition, this: Instance, name: str) -> Known | None:
        """A name that a class, its objects or its bases have."""
        entries = list(self.attributes.get((of.node, name), {}).values())
        node = this.made.node if this.made else None
        own = [it for it in entries if not node or not it[1] or it[1].node is node]
        if own:
            makers = {it[1].node: it[1] for it in own if it[1]}
            places = ", ".join(it.place for it in makers.values())
            several = f"differs from call to call: {places}"
            why = several if len(makers) > 1 else f"`self.{name}` is set twice"
            return one_of((it for it, _ in own), why)
        if name in of.frame.names:
            return self.class_binding(of, this, name)
        if name == "hparams":
            return Known(Instance(of, this.made, is_settings=True))
        for base in of.inputs:
            if isinstance(base.value, Definition) and base.value.node is not of.node:
                found = self.class_member(base.value, this, name)
                if found:
                    return found
            elif isinstance(base.value, Symbol):
                return Known(Symbol(f"{base.value.path}.{name}"))
        return None

    def class_binding(self, of: Definition, this: Instance, name: str) -> Known:
        known = self.name_in(of.frame, name) or unknown(f"`{name}` is declared only")
        if isinstance(known.value, Definition) and not known.value.is_class:
            return Known(Method(known.value, this))
        # A field of a dataclass may be given when an object is made.
        given = this.made.argument(name) if this.made else None
        if given:
            return given
        why = f"default of {of.node.name}.{name}"
        if known.made and known.made.path.endswith(".field"):
            return (known.made.argument("default") or known).likely(why)
        return known.likely(why)

    def initialiser(self, of: Definition) -> Definition | None:
        known = self.name_in(of.frame, "__init__")
        return known.value if known and isinstance(known.value, Definition) else None

    def setting(self, settings: Instance, name: str) -> Known:
        """`self.hparams.name`: the parameter of `__init__`."""
        function = self.initialiser(settings.of)
        for index, (own, default, kind) in enumerate(parameters_of(function) if function else ()):
            if function and own == name:
                makers = list(self.instances.get(settings.of.node, {}).values())
                calls: list[Any] = [settings.made] if settings.made else makers or [None]
                place = index - 1 if kind == "plain" else None
                known = [self.parameter(function, name, default, it, place) for it in calls]
                places = ", ".join(it.place for it in calls if it)
                return one_of(known, f"differs from call to call: {places}")
        return unknown(f"`{name}` is no parameter of __init__")

    def library_bases(self, of: Definition) -> list[str]:
        """The library classes that a class is derived from, over other classes of these files."""
        open_, seen, found = [of], [], []
        while open_:
            current = open_.pop()
            if current.node not in seen:
                seen.append(current.node)
                found += [it.value.path for it in current.inputs if isinstance(it.value, Symbol)]
                inner = (it.value for it in current.inputs if isinstance(it.value, Definition))
                open_ += [it for it in inner if it.is_class]
        return found


def parameters_of(function: Definition) -> list[tuple[str, Known | None, str]]:
    """Name, default and kind (`plain`, `by name` or `rest`) of each parameter."""
    node: ast.arguments = function.node.args  # type: ignore[union-attr]
    defaults = iter(function.inputs)
    plain, first = [*node.posonlyargs, *node.args], len(node.posonlyargs + node.args) - len(node.defaults)
    found = [
        (it.arg, next(defaults, None) if index >= first else None, "plain")
        for index, it in enumerate(plain)
    ]
    for it, default in zip(node.kwonlyargs, node.kw_defaults):
        found.append((it.arg, next(defaults, None) if default else None, "by name"))
    return found + [(it.arg, None, "rest") for it in (node.vararg, node.kwarg) if it]


def is_static(function: Definition) -> bool:
    return any(last_name(it) == "staticmethod" for it in function.node.decorator_list)


def is_command(function: Definition) -> bool:
    """Whether the command line gives the parameters, by decorators of click."""
    calls = (it for it in function.node.decorator_list if isinstance(it, ast.Call))
    return any(last_name(it.func) == "option" for it in calls)


def remainder_in(test: ast.expr) -> ast.BinOp | None:
    """`n % 5` of `n % 5 == 0` or `not n % 5`, also as a part of `and` and `or`."""
    if isinstance(test, ast.BoolOp):
        return next((it for it in map(remainder_in, test.values) if it), None)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        found: ast.expr = test.operand
    elif isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        found = test.left if isinstance(test.comparators[0], ast.Constant) else test
    else:
        return None
    return found if isinstance(found, ast.BinOp) and isinstance(found.op, ast.Mod) else None
