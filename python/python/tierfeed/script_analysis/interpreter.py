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
from typing import Any

from . import operators
from .expressions import FUEL, TOO_MUCH, Expressions
from .load import File, module_name
from .members import is_method, parameters_of
from .value import (
    CERTAIN,
    Condition,
    Definition,
    Frame,
    Instance,
    Known,
    Loop,
    Made,
    Step,
    last_name,
    one_of,
    truth_of,
    unknown,
)  # fmt: skip

CALLS_MAX = 12  # Calls of functions that lead from one to another.
ELSE_IFS_MAX = 40  # A longer chain of `elif` runs without its tests.


class Interpreter(Expressions):
    def __init__(self, files: list[File]) -> None:
        super().__init__(files)
        self.called: set[ast.AST] = set()  # Functions that others call.
        # What a function needs may be said further down: the first run finds it, the second uses it.
        for _ in range(2):
            self.run_all()

    @property
    def is_exhausted(self) -> bool:
        """Whether something is left unknown because the run took as long as it may."""
        return self.fuel <= 0

    def run_all(self) -> None:
        self.start()
        self.definitions: list[Definition] = []
        self.loops: list[tuple[Step, Loop, Known]] = []  # With what they go through.
        self.modules: dict[int, Frame] = {}
        for number in range(len(self.files)):
            self.module(number)
        for function in self.definitions:
            if not function.is_class and function.node not in self.called:
                frame = Frame(function.frame.file, function.frame, function)
                self.run_function(frame, function, None)

    def module(self, number: int) -> Frame:
        if number not in self.modules:
            frame = self.modules[number] = Frame(self.files[number])
            self.run(frame.file.statements, Step(frame))
        return self.modules[number]

    def invoke(self, function: Definition, made: Made, this: Any) -> Known:
        callers, name = [made.step, *made.step.callers], function.node.name
        if any(it.function is function for it in callers):
            return unknown(f"`{name}` calls itself")
        self.called.add(function.node)
        if len(callers) > CALLS_MAX or self.fuel < FUEL // 2:
            return unknown(TOO_MUCH)
        frame = Frame(function.frame.file, function.frame, function, made.step, this)
        self.run_function(frame, function, made)
        if not frame.returns:
            return unknown(f"`{name}` returns nothing that is followed")
        return one_of(frame.returns, f"`{name}` returns one of several")

    def run_function(self, frame: Frame, function: Definition, made: Made | None) -> None:
        for index, (name, _, _) in enumerate(parameters_of(function)):
            is_this = index == 0 and is_method(function)
            this = frame.this or (Instance(function.owner) if function.owner else None)
            known = Known(this) if is_this else self.parameter(function, index, made)
            frame.names[name] = {function.node.lineno: known}
        self.run(function.node.body, Step(frame))

    def run(self, body: Iterable[ast.stmt], around: Step) -> None:
        for node in body:
            if self.fuel <= 0:
                return
            line = min(it.lineno for it in (node, *getattr(node, "decorator_list", ())))
            targets = [*getattr(node, "targets", ())] or [getattr(node, "target", None)]
            is_bound = isinstance(node, (ast.Assign, ast.AnnAssign))
            target = last_name(targets[0]) if is_bound else ""
            self.statement(node, around._replace(line=line, target=target))

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
            returned = self.eval(node.value, step) if node.value else None
            if returned and not step.frame.is_over:
                step.frame.returns.append(returned)
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
        if node.value is None:
            step.frame.names.setdefault(step.target, {})
            return
        value = self.eval(node.value, step)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            changed = unknown(f"`{last_name(target)}` is changed at {step.place()}")
            is_change = isinstance(node, ast.AugAssign)
            self.bind(target, changed if is_change else value, node.value, step)

    def bind(self, target: ast.expr, value: Known, node: ast.expr, step: Step) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for index, inner in enumerate(target.elts):
                self.bind(inner, operators.element(value, node, index, step), node, step)
        elif isinstance(target, ast.Name):
            likely = value.likely(f"assigned at {step.place()}") if value.is_plain else value
            step.frame.names[target.id] = {step.line: likely}
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
            ends += [frame.names] if is_taken else []
            over = frame.is_over if is_taken else over
        frame.is_over = was_over if taken < 0 else over
        frame.names = {}
        self.fuel -= sum(len(end) for end in ends) // 16
        for end in ends:
            for name, bindings in end.items():
                frame.names[name] = {**frame.names.get(name, {}), **bindings}

    def condition(self, node: ast.If, step: Step) -> None:
        chain = [node]
        while len(chain[-1].orelse) == 1 and isinstance(chain[-1].orelse[0], ast.If):
            chain.append(chain[-1].orelse[0])
        if len(chain) > ELSE_IFS_MAX:
            self.branches([*(it.body for it in chain), chain[-1].orelse], step)
            return
        test, remainder = self.eval(node.test, step), remainder_in(node.test)
        truth = truth_of(test.value) if test.certainty is CERTAIN else None
        every = self.eval(remainder.right, step) if remainder else None
        taken = -1 if truth is None else int(not truth)
        self.branches([node.body, node.orelse], step, Condition(node.test, True, every), taken)

    def loop(self, node: ast.For | ast.AsyncFor | ast.While, step: Step) -> None:
        target = None if isinstance(node, ast.While) else node.target
        over = node.test if isinstance(node, ast.While) else node.iter
        known, loop = self.eval(over, step), Loop(target, over, step.line)
        self.loops.append((step, loop, known))
        for inner in (it for statement in node.body for it in ast.walk(statement)):
            if isinstance(inner, ast.AugAssign) and isinstance(inner.target, ast.Name):
                name = inner.target.id
                why = f"`{name}` changes in the loop, {step.place(inner)}"
                step.frame.names[name] = {inner.lineno: unknown(why)}
        for inner in ast.walk(target) if target else ():
            if isinstance(inner, ast.Name):
                part = unknown(f"`{inner.id}` is set at {step.place()}")
                whole = operators.looped(inner.id, known, over, step)
                step.frame.names[inner.id] = {step.line: whole if inner is target else part}
        self.run(node.body, step._replace(loops=(*step.loops, loop)))
        self.run(node.orelse, step)

    def import_(self, node: ast.Import | ast.ImportFrom, step: Step) -> None:
        for alias in node.names:
            module, member = alias.name, None
            if isinstance(node, ast.ImportFrom):
                module, member = module_name(node), alias.name
            self.imports.append((step, module, member))
            # `import a.b` binds `a`; the rest is found by its attributes.
            bound = module if member or alias.asname else module.split(".")[0]
            if member == "*":
                step.frame.module.stars.append(module)
            else:
                name = alias.asname or member or bound
                step.frame.names[name] = {step.line: self.imported(bound, member, step)}

    def definition(self, node: Any, step: Step) -> None:
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


def remainder_in(test: ast.expr) -> ast.BinOp | None:
    """`n % 5` of `n % 5 == 0` or `not n % 5`, also as a part of `and` and `or`."""
    found = test
    if isinstance(test, ast.BoolOp):
        return next((it for it in map(remainder_in, test.values) if it), None)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        found = test.operand
    elif isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
        found = test.left if isinstance(test.comparators[0], ast.Constant) else test
    is_remainder = found is not test and isinstance(found, ast.BinOp) and isinstance(found.op, ast.Mod)
    return found if isinstance(found, ast.BinOp) and is_remainder else None
