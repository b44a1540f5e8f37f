"""What expressions are, from what is known of their parts. Every part is looked at, for its calls."""

from __future__ import annotations

import ast
from typing import Any

from . import known as tables
from . import operators
from .members import Members
from .operators import apply
from .value import (
    CERTAIN,
    UNKNOWN,
    Definition,
    Given,
    Instance,
    Known,
    Made,
    Mapping,
    Member,
    Method,
    Sequence,
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
TOO_MUCH = "follows from too much to be followed here"


class Expressions(Members):
    fuel = depth = 0

    def start(self) -> None:
        """Forgets what only one run is about."""
        self.fuel, self.depth = FUEL, 0
        self.calls: list[Made] = []
        # Variables of the environment that are read: the statement, the line, the name.
        self.variables: list[tuple[Step, int, str]] = []
        # Modules that are imported, and their members.
        self.imports: list[tuple[Step, str, str | None]] = []

    def construct(self, of: Definition, made: Made) -> Known:
        """Makes an object of a class."""
        self.instances.setdefault(of.node, {})[made.node] = made
        instance, start = Instance(of, made), self.initialiser(of)
        if start:
            self.invoke(start, made, instance)
        return Known(instance)

    def invoke(self, function: Definition, made: Made, this: Any) -> Known:
        """Runs a function for a call."""
        raise NotImplementedError

    def eval(self, node: ast.expr, step: Step) -> Known:
        if self.fuel <= 0 or self.depth > DEPTH_MAX:
            return unknown(TOO_MUCH)
        self.fuel -= 1
        self.depth += 1
        kind = getattr(self, f"eval_{type(node).__name__}", self.eval_other)
        known: Known = kind(node, step)
        self.depth -= 1
        return known

    def eval_Name(self, node: ast.Name, step: Step) -> Known:
        return self.lookup(node.id, step.frame)

    def eval_Attribute(self, node: ast.Attribute, step: Step) -> Known:
        return self.attribute_of(self.eval(node.value, step), node.value, node.attr, step)

    def eval_Constant(self, node: ast.Constant, step: Step) -> Known:
        is_large = type(node.value) is int and node.value >= 1 << operators.BITS_MAX - 1
        is_plain = isinstance(node.value, (bool, int, float, str, type(None))) and not is_large
        return Known(node.value) if is_plain else computed(node, step)

    def eval_List(self, node: ast.List | ast.Tuple | ast.Set, step: Step) -> Known:
        items = tuple(self.eval(it, step) for it in node.elts)
        return computed_from(Sequence(items), items)

    eval_Tuple = eval_Set = eval_List

    def eval_Await(self, node: ast.Await | ast.NamedExpr | ast.Starred, step: Step) -> Known:
        return self.eval(node.value, step)

    eval_NamedExpr = eval_Starred = eval_Await

    def eval_Dict(self, node: ast.Dict, step: Step) -> Known:
        pairs: list[tuple[Known, Known]] = []
        rest = None
        for key, expr in zip(node.keys, node.values):
            name, value = (self.eval(key, step) if key else None), self.eval(expr, step)
            if name or not isinstance(value.value, Mapping):
                pairs += [(name, value)] if name else []
                rest = rest if name else value
            else:
                pairs += value.value.pairs
        # A key that is not among these may be among those that are unknown.
        known = Known(Mapping(tuple(pairs)))
        return known._replace(certainty=UNKNOWN, why=rest.why) if rest else known

    def eval_BinOp(self, node: ast.BinOp, step: Step) -> Known:
        function = operators.binary(type(node.op))
        return apply(node, step, function, self.eval(node.left, step), self.eval(node.right, step))

    def eval_UnaryOp(self, node: ast.UnaryOp, step: Step) -> Known:
        return apply(node, step, operators.unary(type(node.op)), self.eval(node.operand, step))

    def eval_Compare(self, node: ast.Compare, step: Step) -> Known:
        sides = [self.eval(it, step) for it in (node.left, *node.comparators)]
        is_chain = len(sides) > 2
        function = operators.comparison(type(node.ops[0]))
        return computed(node, step) if is_chain else apply(node, step, function, *sides)

    def eval_BoolOp(self, node: ast.BoolOp, step: Step) -> Known:
        """`left and right`, `left or right`."""
        known, ends = self.eval(node.values[0], step), isinstance(node.op, ast.Or)
        for right in node.values[1:]:
            why, second, results = reason(known, node.values[0], step), self.eval(right, step), []
            for left in known.alternatives:
                truth = truth_of(left.value)
                results += [left] if truth in (None, ends) else []
                results += [second] if truth is None else []
                if truth is not None and truth is not ends:
                    why = reason(second, right, step)
                    worse = left if left.certainty > second.certainty else second
                    results.append(worse._replace(value=second.value))
            known = one_of(results, why)
        return known

    def eval_IfExp(self, node: ast.IfExp, step: Step) -> Known:
        decided = self.eval(node.test, step)
        both = [self.eval(node.body, step), self.eval(node.orelse, step)]
        truth = truth_of(decided.value)
        if truth is None or decided.certainty is UNKNOWN:
            return one_of(both, f"depends on `{step.source(node.test)}`")
        taken, why = both[0 if truth else 1], decided.why or f"decided at {step.place(node.test)}"
        return taken if decided.certainty is CERTAIN else taken.likely(why)

    def eval_Subscript(self, node: ast.Subscript, step: Step) -> Known:
        base, index = self.eval(node.value, step), self.eval(node.slice, step)
        if last_name(node.value) == "environ" and index.of(str) in tables.LAUNCHER:
            self.variables.append((step, node.lineno, index.value))
        pairs = ((it, key) for it in base.alternatives for key in index.alternatives)
        results = [operators.item_of(it, key, node, step) for it, key in pairs]
        return one_of(results, reason(base, node, step))

    def eval_JoinedStr(self, node: ast.JoinedStr, step: Step) -> Known:
        whole = Known("")
        for piece in node.values:
            inner = piece.value if isinstance(piece, ast.FormattedValue) else piece
            part = self.eval(inner, step)
            if getattr(piece, "format_spec", None) or getattr(piece, "conversion", -1) != -1:
                part = computed(inner, step)
            whole = apply(inner, step, operators.concatenated, whole, part)
        return whole

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
        made = Made("", node, self.given(node, step), step, on)
        value = next((it.value for it in called.alternatives if not it.is_unknown), None)
        if isinstance(value, Definition) and not pipeline:
            return self.construct(value, made) if value.is_class else self.invoke(value, made, None)
        if isinstance(value, Method) and not pipeline:
            return self.invoke(value.function, made, value.this)
        made.path = pipeline or f"*.{made.method}"
        if isinstance(value, (Symbol, Member)) and not pipeline:
            path = value.path if isinstance(value, Symbol) else f"{value.made.path}.{value.name}"
            # `super().__init__(…)` is a call of what the class is derived from.
            bases = self.library_bases(step.class_around) if path == "super.__init__" else []
            made.path = next((it for it in bases if tables.is_known(it)), tables.canonical(path))
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
        for it in node.args:
            is_star = isinstance(it, ast.Starred)
            expr = it.value if isinstance(it, ast.Starred) else it
            given.append(Given("splat" if is_star else "place", "", expr, self.eval(expr, step)))
        for keyword in node.keywords:
            known = self.eval(keyword.value, step)
            how = "name" if keyword.arg else "spread"
            given.append(Given(how, keyword.arg or "", keyword.value, known))
        return given

    def step_of_pipeline(self, on: Known, method: str, step: Step) -> str | None:
        """The full name of a method that gives another object of the same kind, as those of tf.data."""
        families = (tables.family(it.path) for it in on.all_made)
        family = next((it for it in families if it), None)
        if family is None and any(it.is_unknown for it in on.alternatives):
            # Where a pipeline begins may be hidden; its steps cannot be mistaken.
            modules = (module for at, module, _ in self.imports if at.frame.file is step.frame.file)
            is_tensorflow = any(it.startswith("tensorflow") for it in modules)
            family = tables.TF_DATA if is_tensorflow and method in tables.TELLING else None
        return f"{family}.{method}" if family and method in tables.FAMILIES[family][1] else None

    def got_attribute(self, made: Made) -> Known | None:
        """`getattr(args, "name", default)`"""
        name = string(made.given[1].node) if len(made.given) > 1 else None
        if made.path != "getattr" or name is None:
            return None
        found = self.attribute_of(made.given[0].known, made.given[0].node, name, made.step)
        default = made.argument("", 2)
        other = default.likely(f"default of getattr, {made.place}") if default else None
        return other if found.is_unknown else found


