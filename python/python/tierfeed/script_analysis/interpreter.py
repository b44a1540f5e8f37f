"""Runs the scripts on what is known of their values: every statement once, every branch.

Names are followed to what they are bound to, options to their defaults, functions to what they return,
parameters to what they are called with. What cannot be followed is unknown, and says why.

1. No code of a script is executed: this walks its syntax tree.
2. A function runs once for each call that leads to it; one that is never called runs by itself.
3. Every run ends: loops run once, functions do not call themselves, and each expression costs fuel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import partial
from typing import Any

from . import operators, tables
from .load import File, member_name, module_name
from .members import BASES_MAX, Members
from .operators import SIZE_MAX, apply, is_large, operated, size_of
from .values import (
    CERTAIN,
    UNKNOWN,
    Call,
    Definition,
    Frame,
    Given,
    Instance,
    Known,
    Step,
    Symbol,
    computed,
    computed_from,
    last_name,
    one_of,
    reason,
    string,
    truth_of,
    unknown,
)  # fmt: skip

FUEL = 400_000  # Expressions that are looked at in one run.
DEPTH_MAX = 2_500  # Expressions that lead from one to another.
CALLS_MAX = 12  # Calls of functions that lead from one to another.
LOOPED_MAX = 8  # Elements of a literal sequence that a loop variable is taken to be one of.
TOO_MUCH = "follows from too much to be followed here"


class Interpreter(Members):
    def __init__(self, files: list[File]) -> None:
        super().__init__(files)
        self.called: set[ast.AST] = set()  # Functions that others call.
        # What a function needs may be said further down: the first run finds it, the second uses it.
        for _ in range(2):
            self.fuel, self.depth = FUEL, 0
            self.modules = {}
            self.calls: list[Call] = []
            self.definitions: list[Definition] = []
            self.loops: list[tuple[Step, Any, Known]] = []  # With what they go through.
            # Variables of the environment that are read: the statement, the line, the name.
            self.variables: list[tuple[Step, int, str]] = []
            # Modules that are imported, and their members.
            self.imports: list[tuple[Step, str, str | None]] = []
            for number in range(len(files)):
                self.module(number)
            for function in self.definitions:
                if not function.is_class and function.node not in self.called:
                    self.run_function(function, None, None, None)

    def module(self, number: int) -> Frame:
        if number not in self.modules:
            frame = self.modules[number] = Frame(self.files[number])
            self.run(frame.file.statements, Step(frame))
        return self.modules[number]

    def construct(self, of: Definition, call: Call) -> Known:
        """Makes an object of a class."""
        self.instances.setdefault(of.node, {})[call.node] = call
        start = self.initialiser(of)
        if start:
            self.invoke(start, call, Instance(of, call))
        return Known(Instance(of, call))

    def invoke(self, function: Definition, call: Call, this: Any) -> Known:
        """Runs a function for a call."""
        callers, name = [call.step, *call.step.callers], function.node.name
        if any(it.function == function for it in callers):
            return unknown(f"`{name}` calls itself")
        self.called.add(function.node)
        if len(callers) > CALLS_MAX or self.fuel < FUEL // 2:
            return unknown(TOO_MUCH)
        returns = self.run_function(function, call, call.step, this)
        missing = unknown(f"`{name}` returns nothing that is followed")
        return one_of(returns, f"`{name}` returns one of several") if returns else missing

    def run_function(
        self, function: Definition, call: Call | None, caller: Step | None, this: Any
    ) -> list[Known]:
        frame = Frame(function.frame.file, function.frame, function, caller, this)
        frame.names = self.parameters(function, call, this)
        self.run(function.node.body, Step(frame))
        return frame.returns

    def run(self, body: Iterable[ast.stmt], around: Step) -> None:
        for node in body:
            if self.fuel <= 0:
                return
            line = min(it.lineno for it in (node, *getattr(node, "decorator_list", ())))
            target = getattr(node, "targets", [getattr(node, "target", None)])[0]
            is_bound = isinstance(node, (ast.Assign, ast.AnnAssign))
            step = around._replace(line=line, target=last_name(target) if is_bound else "")
            kind = getattr(self, f"run_{type(node).__name__}", self.run_other)
            kind(node, step)

    def run_other(self, node: Any, step: Step) -> None:
        """Looks at the expressions; of `with`, `try` and `match`, at the branches too."""
        for child in (it for it in ast.iter_child_nodes(node) if isinstance(it, ast.expr)):
            self.eval(child, step)
        for item in getattr(node, "items", ()):
            value = self.eval(item.context_expr, step)
            if item.optional_vars:
                self.bind(item.optional_vars, value, item.context_expr, step)
        self.run(getattr(node, "body", ()), step)
        branches = [it.body for it in getattr(node, "handlers", getattr(node, "cases", ()))]
        if branches:
            self.branches(branches, step)
        self.run([*getattr(node, "orelse", ()), *getattr(node, "finalbody", ())], step)

    def run_Return(self, node: ast.Return, step: Step) -> None:
        returned = self.eval(node.value, step) if node.value else None
        if returned and not step.frame.is_over:
            step.frame.returns.append(returned)
            step.frame.is_over = not step.frame.open

    def run_Assign(self, node: Any, step: Step) -> None:
        if node.value is None:
            step.frame.names.setdefault(step.target, {})
            return
        value = self.eval(node.value, step)
        for target in getattr(node, "targets", None) or [node.target]:
            self.bind(target, value, node.value, step)

    run_AnnAssign = run_Assign

    def run_AugAssign(self, node: ast.AugAssign, step: Step) -> None:
        self.eval(node.value, step)
        changed = unknown(f"`{last_name(node.target)}` is changed at {step.place()}")
        self.bind(node.target, changed, node.value, step)

    def bind(self, target: ast.expr, value: Known, node: ast.expr, step: Step) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for index, inner in enumerate(target.elts):
                self.bind(inner, operators.element(value, node, index, step), node, step)
        elif isinstance(target, ast.Name):
            step.frame.names[target.id] = {step.line: value.plainly(f"assigned at {step.place()}")}
        elif isinstance(target, ast.Attribute):
            self.eval(target.value, step)
            self.bind_attribute(target, value.plainly(f"assigned at {step.place(node)}"), step)
        elif isinstance(target, ast.Subscript):
            self.eval(target, step)

    def bind_attribute(self, target: ast.Attribute, value: Known, step: Step) -> None:
        """`self.name = …` in a method is an attribute of the class."""
        base, method = last_name(target.value), step.function
        owner, arguments = step.class_around, method.node.args if method else None
        plain = [*arguments.posonlyargs, *arguments.args] if arguments else []
        if owner and plain and base == plain[0].arg:
            made = getattr(step.frame.this, "made", None)
            found = self.attributes.setdefault((owner.node, target.attr), {})
            found[target, made and made.node] = value, made
        elif base:
            self.assigned.setdefault(target.attr, {}).setdefault(base, step.place())

    def branches(self, bodies: list[Any], step: Step, test: Any = None, taken: int = -1) -> None:
        """Runs each branch on the names of before. What is certainly not taken changes none of them."""
        frame, before, was_over = step.frame, step.frame.names, step.frame.is_over
        ends, over = ([] if test else [before]), was_over
        for number, body in enumerate(bodies):
            is_taken = taken in (-1, number)
            frame.names, frame.is_over = dict(before), was_over or not is_taken
            frame.open += taken < 0
            held = (*step.conditions, (test[0], number == 0, test[1])) if test else step.conditions
            self.run(body, step._replace(conditions=held))
            frame.open -= taken < 0
            if is_taken:
                ends.append(frame.names)
                over = frame.is_over
        frame.is_over = was_over if taken < 0 else over
        frame.names = {}
        self.fuel -= sum(len(end) for end in ends) // 16
        for end in ends:
            for name, bindings in end.items():
                frame.names[name] = {**frame.names.get(name, {}), **bindings}

    def run_If(self, node: ast.If, step: Step) -> None:
        test, remainder = self.eval(node.test, step), remainder_in(node.test)
        truth = truth_of(test.value) if test.certainty is CERTAIN else ...
        every = self.eval(remainder.right, step) if remainder else None
        taken = -1 if truth is ... else int(not truth)
        self.branches([node.body, node.orelse], step, (node.test, every), taken)

    def run_For(self, node: Any, step: Step) -> None:
        target = getattr(node, "target", None)
        over = node.iter if target else node.test
        known = self.eval(over, step)
        self.loops.append((step, node, known))
        for inner in (it for statement in node.body for it in ast.walk(statement)):
            if isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Name):
                name = inner.target.id
                why = f"`{name}` changes in the loop, {step.place(inner)}"
                step.frame.names[name] = {inner.lineno: unknown(why)}
        for inner in ast.walk(target) if target else ():
            if isinstance(inner, ast.Name):
                part = unknown(f"`{inner.id}` is set at {step.place()}")
                whole = looped(inner.id, known, over, step)
                step.frame.names[inner.id] = {step.line: whole if inner is target else part}
        self.run(node.body, step._replace(loops=(*step.loops, node)))
        self.run(node.orelse, step)

    run_AsyncFor = run_While = run_For

    def run_Import(self, node: Any, step: Step) -> None:
        for alias in node.names:
            module, member = alias.name, None
            if isinstance(node, ast.ImportFrom):
                module, member = module_name(node), alias.name
            self.imports.append((step, module, member))
            # `import a.b` binds `a`; the rest is found by its attributes.
            bound = module if member or alias.asname else module.split(".")[0]
            links = step.frame.file.links
            own = self.module(links[module]).names if module in links else {}
            if member == "*":
                step.frame.names.update(own)
                step.frame.file.stars.setdefault(module, module)
            else:
                name = alias.asname or member or bound
                step.frame.names[name] = {step.line: self.imported(bound, member, step)}

    run_ImportFrom = run_Import

    def imported(self, module: str, member: str | None, step: Step) -> Known:
        links = step.frame.file.links
        path = member_name(module, member) if member else module
        # What a package binds itself hides a file of that name.
        own = self.name_in(self.module(links[module]), member) if member and module in links else None
        if own or path in links:
            return own or Known(self.module(links[path]))
        missing = unknown(f"`{member}` is not bound in {module}")
        return missing if module in links else Known(Symbol(tables.canonical(path)))

    def run_FunctionDef(self, node: Any, step: Step) -> None:
        decorators, around = [self.eval(it, step) for it in node.decorator_list], step.frame.definition
        is_class = isinstance(node, ast.ClassDef)
        inputs = node.bases if is_class else (*node.args.defaults, *node.args.kw_defaults)
        known = [self.eval(it, step) for it in inputs if it]
        frame = Frame(step.frame.file, step.frame) if is_class else step.frame
        owner = around if around and around.is_class else None
        found = Definition(node, step, frame, decorators, known, owner)
        if is_class:
            frame.definition = found
            self.run(node.body, Step(frame))
        self.definitions.append(found)
        step.frame.names[node.name] = {step.line: Known(found)}

    run_AsyncFunctionDef = run_ClassDef = run_FunctionDef

    # Expressions. Every part is looked at, for its calls.

    def eval(self, node: ast.expr, step: Step) -> Known:
        if self.fuel <= 0 or self.depth > DEPTH_MAX:
            return unknown(TOO_MUCH)
        self.depth += 1
        kind = getattr(self, f"eval_{type(node).__name__}", self.eval_other)
        known: Known = kind(node, step)
        self.depth -= 1
        size = size_of(known.value)
        self.fuel -= 1 + size // 16
        return known if size <= SIZE_MAX else computed(node, step)

    def eval_Name(self, node: ast.Name, step: Step) -> Known:
        return self.lookup(node.id, step.frame)

    def eval_Attribute(self, node: ast.Attribute, step: Step) -> Known:
        return self.attribute_of(self.eval(node.value, step), node.value, node.attr, step)

    def eval_Constant(self, node: ast.Constant, step: Step) -> Known:
        is_plain = isinstance(node.value, (bool, int, float, str, type(None)))
        return Known(node.value) if is_plain and not is_large(node.value) else computed(node, step)

    def eval_List(self, node: Any, step: Step) -> Known:
        items = tuple(self.eval(it, step) for it in node.elts)
        return computed_from(items, items)

    eval_Tuple = eval_Set = eval_List

    def eval_Await(self, node: Any, step: Step) -> Known:
        return self.eval(node.value, step)

    eval_NamedExpr = eval_Starred = eval_Await

    def eval_Dict(self, node: ast.Dict, step: Step) -> Known:
        pairs: dict[Any, Known] = {}
        certain = Known(pairs)
        for key, expr in zip(node.keys, node.values):
            name, value = (self.eval(key, step) if key else None), self.eval(expr, step)
            if name and isinstance(name.value, (str, int)):
                pairs[name.value] = value
            elif not name and isinstance(value.value, dict):
                pairs.update(value.value)
            elif not name:
                # A key that is not among these may be among those that are unknown.
                certain = Known(pairs, UNKNOWN, value.why)
        return certain

    def eval_BinOp(self, node: Any, step: Step) -> Known:
        sides = [self.eval(it, step) for it in ast.iter_child_nodes(node) if isinstance(it, ast.expr)]
        operator = node.ops[0] if isinstance(node, ast.Compare) else node.op
        function = partial(operated, type(operator))
        return computed(node, step) if len(sides) > 2 else apply(node, step, function, *sides)

    eval_UnaryOp = eval_Compare = eval_BinOp

    def eval_BoolOp(self, node: ast.BoolOp, step: Step) -> Known:
        """`left and right`, `left or right`."""
        known, ends = self.eval(node.values[0], step), isinstance(node.op, ast.Or)
        for right in node.values[1:]:
            why, second, results = reason(known, node.values[0], step), self.eval(right, step), []
            for left in known.alternatives:
                truth = truth_of(left.value)
                if truth in (..., ends):
                    results.append(left)
                if truth is ...:
                    results.append(second)
                elif truth is not ends:
                    why = reason(second, right, step)
                    results.append(computed_from(second.value, [left, second]))
            known = one_of(results, why)
        return known

    def eval_IfExp(self, node: ast.IfExp, step: Step) -> Known:
        test = self.eval(node.test, step)
        both = [self.eval(node.body, step), self.eval(node.orelse, step)]
        truth = truth_of(test.value)
        if truth is ... or test.certainty is UNKNOWN:
            return one_of(both, f"depends on `{step.source(node.test)}`")
        taken = both[0 if truth else 1]
        why = test.why or f"decided at {step.place(node.test)}"
        return taken if test.certainty is CERTAIN else taken.likely(why)

    def eval_Subscript(self, node: ast.Subscript, step: Step) -> Known:
        base, index = self.eval(node.value, step), self.eval(node.slice, step)
        if last_name(node.value) == "environ" and index.of(str) in tables.LAUNCHER:
            self.variables.append((step, node.lineno, index.value))
        pairs = ((it, key) for it in base.alternatives for key in index.alternatives)
        results = [operators.item_of(it, key, node, step) for it, key in pairs]
        return one_of(results, reason(base, node, step))

    def eval_JoinedStr(self, node: ast.JoinedStr, step: Step) -> Known:
        parts = [Known("")]
        for it in node.values:
            inner = it.value if isinstance(it, ast.FormattedValue) else it
            part = self.eval(inner, step)
            is_plain = getattr(it, "format_spec", None) is None and getattr(it, "conversion", -1) == -1
            parts.append(part if is_plain else computed(inner, step))
        return apply(node, step, operators.formatted, *parts)

    def eval_other(self, node: ast.expr, step: Step) -> Known:
        """Looks at the parts for their calls; a lambda or a comprehension binds names."""
        frame, names = step.frame, step.frame.names
        targets = [it.target for it in getattr(node, "generators", ())]
        bound = [it.id for target in targets for it in ast.walk(target) if isinstance(it, ast.Name)]
        if isinstance(node, ast.Lambda):
            bound = [it.arg for it in ast.walk(node.args) if isinstance(it, ast.arg)]
        changes = {name: {node.lineno: unknown("changes from call to call")} for name in bound}
        frame.names = {**names, **changes} if changes else names
        for child in ast.iter_child_nodes(node):
            inner = (child,) if isinstance(child, ast.expr) else ast.iter_child_nodes(child)
            for it in inner:
                if isinstance(it, ast.expr):
                    self.eval(it, step)
        frame.names = names if changes else frame.names
        return computed(node, step)

    def eval_Call(self, node: ast.Call, step: Step) -> Known:
        func, on, pipeline = node.func, None, None
        if isinstance(func, ast.Attribute):
            on = self.eval(func.value, step)
            called = self.attribute_of(on, func.value, func.attr, step)
            pipeline = self.step_of_pipeline(on, func.attr, step)
        else:
            called = self.eval(func, step)
        call = Call(node, f"*.{last_name(func)}", self.given(node, step), step, on)
        value = next((it.value for it in called.alternatives if it.value is not ...), None)
        if isinstance(value, Definition) and not pipeline:
            this = value.this
            return self.construct(value, call) if value.is_class else self.invoke(value, call, this)
        if isinstance(value, Symbol):
            # `super().__init__(…)` is a call of what the class is derived from.
            bases = self.library_bases(step.class_around) if value.path == "super.__init__" else []
            call.path = next((it for it in bases if tables.is_known(it)), tables.canonical(value.path))
        call.path = pipeline or call.path
        self.calls.append(call)
        self.declare(call)
        if call.path.startswith("*."):
            known = (on and operators.method(on, call)) or computed(node, step)
        else:
            known = self.got_attribute(call) or operators.builtin(call) or Known(call)
        call.value = known
        return known

    def given(self, node: ast.Call, step: Step) -> dict[str | int, Given]:
        given: dict[str | int, Given] = {}
        for place, it in enumerate(node.args):
            known = self.eval(it, step)
            if isinstance(it, ast.Starred):
                given["*"] = Given(None, unknown(reason(known, it.value, step)))
            elif "*" not in given:
                given[place] = Given(it, known)
        for keyword in node.keywords:
            known = self.eval(keyword.value, step)
            if keyword.arg:
                given[keyword.arg] = Given(keyword.value, known)
                continue
            text, mappings = step.source(keyword.value), [it.of(dict) for it in known.alternatives]
            # A mapping that stands in the call is as good as arguments.
            is_exact, why = isinstance(keyword.value, ast.Dict), f"one of several `{text}`"
            for name in {name: None for it in mappings for name in it or ()}:
                value = one_of((it[name] for it in mappings if it and name in it), why)
                told = value.likely(f"from `**{text}`, {step.place(keyword.value)}")
                given.setdefault(str(name), Given(None, value if is_exact else told))
            if None in mappings or UNKNOWN in [it.certainty for it in known.alternatives]:
                given["**"] = Given(None, unknown(reason(known, keyword.value, step)))
        return given

    def step_of_pipeline(self, on: Known, method: str, step: Step) -> str | None:
        """The full name of a method that gives another object of the same kind, as those of tf.data."""
        family = next(filter(None, (tables.family(it.path) for it in on.calls)), None)
        if family is None and any(it.value is ... for it in on.alternatives):
            # Where a pipeline begins may be hidden; its steps cannot be mistaken.
            modules = (module for at, module, _ in self.imports if at.frame.file is step.frame.file)
            is_tensorflow = any(it.startswith("tensorflow") for it in modules)
            family = tables.TF_DATA if is_tensorflow and method in tables.TELLING else None
        return f"{family}.{method}" if family and tables.is_step(f"{family}.{method}") else None

    def got_attribute(self, call: Call) -> Known | None:
        """`getattr(args, "name", default)`"""
        on, attribute = call.given.get(0), call.given.get(1)
        name = string(attribute.node) if attribute else None
        if call.path != "getattr" or name is None or on is None:
            return None
        found = self.attribute_of(on.known, on.node, name, call.step)
        default = call.argument("", 2) if found.value is ... else None
        return default.likely(f"default of getattr, {call.place}") if default else found

    def library_bases(self, of: Definition | None) -> list[str]:
        """The library classes that a class is derived from, over other classes of these files."""
        waiting, found = ([of] if of else []), []
        for current in waiting:
            found += [it.value.path for it in current.inputs if isinstance(it.value, Symbol)]
            bases = [it.value for it in current.inputs if isinstance(it.value, Definition)]
            waiting += [it for it in bases if it not in waiting and len(waiting) < BASES_MAX]
        return found


def looped(name: str, over: Known, node: ast.expr, step: Step) -> Known:
    """What a name is while `for name in over` runs."""
    if isinstance(over.value, tuple) and len(over.value) <= LOOPED_MAX:
        return one_of(over.value, f"each of those at {step.place(node)}")
    return unknown(f"`{name}` changes in the loop, {step.place(node)}")


def remainder_in(test: ast.expr) -> ast.BinOp | None:
    """`n % 5` of `n % 5 == 0` or `not n % 5`, also as a part of `and` and `or`."""
    found: ast.expr | None = None
    if isinstance(test, ast.BoolOp):
        return next((it for it in map(remainder_in, test.values) if it), None)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        found = test.operand
    elif isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        found = test.left if isinstance(test.comparators[0], ast.Constant) else None
    return found if isinstance(found, ast.BinOp) and isinstance(found.op, ast.Mod) else None
