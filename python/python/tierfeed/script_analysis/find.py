"""Looks for everything that the tables know in the calls of the scripts."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from . import tables
from .data import Origins, Sample, format_of, transforms_of
from .finding import CONTEXTS_MAX, KINDS, Fact, Finding, fact_of, facts_of, finding, merged, said
from .interpreter import Interpreter, remainder_in
from .loader import SAMPLER, Loaders, chain, phase_around
from .tables import TF_DATA, last
from .values import (
    CERTAIN,
    LIKELY,
    Call,
    Definition,
    Known,
    Step,
    Symbol,
    computed_from,
    last_name,
    string,
)  # fmt: skip

FINDINGS_MAX = 2_000  # Findings of one analysis; the rest is left out.
DEALERS = {SAMPLER, "accelerate.Accelerator", "lightning.Trainer", "deepspeed.initialize"}
RANKS = {"torch.nn.parallel.DistributedDataParallel", "torch.distributed.init_process_group"}
DRAWS = {"torch.randint", "numpy.random.randint", "numpy.random.choice"}
ANY = {"torch.load", "pickle.load", "safetensors.torch.load_file"}
"""Readers that outside of datasets read a model or a state rather than samples."""


class Finder:
    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter
        self.numbers = {file.name: number for number, file in enumerate(interpreter.files)}
        by_node: dict[ast.AST, list[Call]] = {}
        for call in sorted(interpreter.calls, key=self.position):
            by_node.setdefault(call.node, []).append(call)
        self.calls = list(by_node.values())
        """Of each call, those that lead to it; as they stand in the source."""
        self.functions: dict[object, list[Call]] = {}
        for calls in self.calls:
            function = calls[0].step.function
            self.functions.setdefault(function and function.node, []).append(merged(calls))
        self.paths = {it[0].path for it in self.calls}
        self.loaders = Loaders(Origins(interpreter, self.calls), self.functions, self.paths)

    def position(self, call: Call) -> tuple[int, int, int]:
        number = self.numbers[call.step.frame.file.name]
        return number, call.node.end_lineno or 0, call.node.end_col_offset or 0

    def all(self) -> list[Finding]:
        """By kind and place."""
        findings = [*self.imports(), *self.of_calls(), *self.of_definitions(), *self.phases()]
        findings += self.loops_over_epochs()
        findings += list(self.advice(findings))
        findings.sort(key=lambda it: (KINDS.index(it.kind), self.numbers[it.file], it.line))
        pairs = zip([None, *findings], findings)
        return [it for before, it in pairs if it != before][:FINDINGS_MAX]

    def in_each_context(self, calls: list[Call], to: Callable[[Call], Finding | None]) -> list[Finding]:
        """The same call as each that leads to it sees it, and once if all see the same."""
        findings: list[tuple[Finding, list[str]]] = []
        for call in calls if len(calls) <= CONTEXTS_MAX else [merged(calls)]:
            found, caller = to(call), call.step.frame.caller
            places = [caller.place()] if caller else []
            alike = next((it for it in findings if it[0] == found), None)
            if alike:
                alike[1].extend(places)
            elif found:
                findings.append((found, places))
        for found, places in findings if len(findings) > 1 else ():
            found.facts.insert(0, said("called from", ", ".join(places)))
        return [found for found, _ in findings]

    def imports(self) -> Iterable[Finding]:
        """Frameworks, by what is imported."""
        told: set[str] = set()
        imports = self.interpreter.imports
        imports = sorted(imports, key=lambda it: (self.numbers[it[0].frame.file.name], it[0].line))
        for step, module, member in imports:
            package = tables.canonical(module).split(".")[0]
            is_new = package in tables.FRAMEWORKS and package not in told
            if is_new and module not in step.frame.file.links:
                told.add(package)
                why = f"from {module} import {member}" if member else f"import {module}"
                yield finding("framework", package, step, why=why)

    def of_calls(self) -> Iterable[Finding]:
        steps = (it.on for calls in self.calls for it in calls if it.on and tables.family(it.path))
        consumed = {call.node for on in steps for call in on.calls}
        special = {"loader": self.loaders.loader, "checkpoint": checkpoint, "epochs": of_epochs,
                   "reader": self.reader, "preprocessing": list_of_transforms}  # fmt: skip
        for calls in self.calls:
            call, whole = calls[0], merged(calls)
            kinds: set[str] = set()
            for spec in tables.specs_of(call.path):
                if spec.kind not in (*kinds, "transform"):
                    kinds.add(spec.kind)
                    to: Any = special.get(spec.kind, of_table)
                    several = [whole] if spec.kind == "reader" else calls
                    yield from self.in_each_context(several, partial(to, spec))
            if call.path in ("transformers.Trainer", "transformers.Seq2SeqTrainer"):
                yield from self.in_each_context([whole], self.loaders.trainer)
            if tables.is_step(call.path) and call.node not in consumed:
                yield from self.in_each_context(calls, self.loaders.pipeline)
            name = string(call.given[0].node) if 0 in call.given else None
            if call.path in ("os.environ.get", "os.getenv") and name in tables.LAUNCHER:
                yield finding("distribution", f"{name} of the environment", call)
            # Of many things that have a `save`, those called a model or a checkpoint.
            on = getattr(call.node.func, "value", None)
            name = call.step.source(on).lower() if on and call.method == "save" else ""
            is_model = re.search("model|net|checkpoint|ckpt|manager", name) and "image" not in name
            if is_model and "checkpoint" not in kinds:
                facts = conditions(whole.step)
                sure: Any = {"certainty": LIKELY, "why": "by its name"}
                yield finding("checkpoint", f"{name}.save", whole, *facts, **sure)
        for step, line, name in self.interpreter.variables:
            yield finding("distribution", f"{name} of the environment", step._replace(line=line))

    def of_definitions(self) -> Iterable[Finding]:
        for it in self.interpreter.definitions:
            if it.is_class and self.is_dataset(it):
                bases = [said("is a", base) for base in self.interpreter.library_bases(it)]
                yield finding("dataset", f"class {it.node.name}", it.step, *bases)
            if it.owner and it.node.name in tables.HOOKS and it.node.name.endswith("_step"):
                what = f"{tables.phase_of_name(it.node.name)}: {it.node.name}"
                yield finding("phase", what, it.step, why="a hook of Lightning")
            for known, node in zip(it.decorators, it.node.decorator_list):
                path = known.value.path if isinstance(known.value, Symbol) else ""
                spec = tables.spec_of(path, "cache")
                if spec and not it.is_class:
                    what = f"{path} of `{it.node.name}`: {spec.says}"
                    yield finding("cache", what, it.step._replace(line=node.lineno))
        for function, calls in self.functions.items():
            sample = Sample(calls)
            steps = [it for it in calls if tables.spec_of(it.path, "transform")]
            steps = [it for it in steps if it.path.startswith("tensorflow.")]
            if function and steps and sample.is_sized:
                names = said("steps", ", ".join(sample.steps))
                what = f"`{getattr(function, 'name', '')}`"
                yield finding("preprocessing", what, steps[0], names, *sample.facts)

    def reader(self, spec: tables.Spec, call: Call) -> Finding | None:
        around = call.step.class_around
        found = of_table(spec, call)
        if not found or (call.path in ANY and not (around and self.is_dataset(around))):
            return None
        format = format_of(call.path, call)
        found.facts += [said("in", call.step.around)] if call.step.around else []
        found.facts += [format] if format else []
        return found

    def is_dataset(self, of: Definition) -> bool:
        """Whether a loader can read from objects of this class."""
        bases = self.interpreter.library_bases(of)
        return "__getitem__" in of.frame.names or any(
            it.endswith("Dataset") or tables.spec_of(it, "dataset") for it in bases
        )

    def phases(self) -> Iterable[Finding]:
        """Which functions train, validate or evaluate."""
        functions = [it for it in self.interpreter.definitions if not it.is_class]
        decorated = {node: it for it in functions for node in it.node.decorator_list}
        telling: dict[Definition | None, list[Call]] = {}
        for call, *_ in self.calls:
            # `model.train(False)` evaluates, and `evaluate(model)` without a dot is any function.
            is_false = call.method == "train" and call.first.value is False
            is_plain = call.path.startswith("*.") and isinstance(call.node.func, ast.Name)
            if call.method in tables.PHASE_OF_METHOD and not is_plain and not is_false:
                telling.setdefault(decorated.get(call.node) or call.step.function, []).append(call)
        for function, calls in telling.items():
            trains = [it for it in calls if tables.PHASE_OF_METHOD[it.method] == "training"]
            rests = [it for it in calls if it not in trains]
            # What evaluates puts the model back to training at the end.
            if rests and function and all(it.method == "train" for it in trains):
                trains = []
            name = function.node.name if function else "the file"
            named = tables.phase_of_name(name)
            for part in filter(None, (trains, rests)):
                phases = [tables.PHASE_OF_METHOD[it.method] for it in part]
                phase = min(phases, key=tables.PHASES.index)
                phase = phase if part is trains or named in (None, "training") else named
                line = function.step.line if function else part[0].node.lineno
                why = f"calls {', '.join(f'{it.method} ({it.node.lineno})' for it in part)}"
                step, reads = part[0].step._replace(line=line), self.loops_of(function, part)
                yield finding("phase", f"{phase}: {name}", step, *reads, certainty=LIKELY, why=why)

    def loops_of(self, function: Definition | None, calls: list[Call]) -> list[Fact]:
        """What the loops around these calls go through."""
        around = {it for call in calls for it in call.step.loops}
        facts: dict[Any, Fact] = {}
        for step, loop, known in self.interpreter.loops:
            # `model.eval()` stands before the loop that it is about.
            is_own = not around and function and step.function == function
            is_about = (loop in around or is_own) and hasattr(loop, "iter") and loop not in facts
            loader = loader_of(known) if is_about else None
            if loader:
                text = f"{step.source(loop.iter)}: {last(loader.path)} at {loader.place}"
                facts[loop] = said("reads", text, LIKELY, step.place())
        return [facts[it] for it in sorted(facts, key=lambda it: it.lineno)]

    def loops_over_epochs(self) -> Iterable[Finding]:
        """How many times the data is gone through."""
        calls_of: dict[ast.AST, Call] = {it[0].node: merged(it) for it in self.calls}
        steps = {loop: step for step, loop, _ in reversed(self.interpreter.loops)}
        over = [step for step, _, known in self.interpreter.loops if loader_of(known)]
        around = {it for step in over for at in (step, *step.callers) for it in at.loops[-1:]}
        is_told = any(it[0].method == "set_epoch" for it in self.calls)
        for loop, step in steps.items():
            name = getattr(getattr(loop, "target", None), "id", "")
            is_named = "epoch" in name.lower() or name == "ep" or loop in around
            facts = passes(loop.iter, calls_of, is_told) if is_named else []
            if facts:
                yield finding("epochs", f"for {name} in {step.source(loop.iter)}", step, *facts)

    def advice(self, findings: list[Finding]) -> Iterable[Finding]:
        """What the author may not have meant, or what tierfeed cannot follow."""
        for calls in self.calls:
            for to in (self.forgotten_epoch, self.random_windows):
                yield from self.in_each_context([merged(calls)], to)
            yield from self.in_each_context(calls, order_of_steps)
        loaders = [it for it in findings if it.kind == "loader"]
        is_seeded = any(it.kind == "seed" and it.what in tables.GLOBAL_SEEDS for it in findings)
        is_dealt = self.paths.isdisjoint(RANKS) or not self.paths.isdisjoint(DEALERS)
        for it in loaders:
            if it.text("order.shuffle") == "torch-random" and not it.fact("generator") and not is_seeded:
                why = "no run is like another; call torch.manual_seed first, or publish the order"
                yield Finding("advice", "the shuffle has no seed", it.file, it.line, LIKELY, why)
            is_plain = it.text("sampler") == "None" and not it.fact("batch_sampler")
            if is_plain and it.text("phase") in ("", "training") and not is_dealt:
                what = "several ranks, but no sampler that deals samples to them"
                why = "every rank reads the whole dataset; use DistributedSampler"
                yield Finding("advice", what, it.file, it.line, LIKELY, why)

    def forgotten_epoch(self, call: Call) -> Finding | None:
        """`DistributedSampler` without `set_epoch` permutes every epoch alike."""
        shuffle = call.argument("shuffle", 3) or Known(True)
        if call.path != SAMPLER or shuffle.of(bool) is False or self.loaders.is_lightning:
            return None
        if any(it[0].method == "set_epoch" for it in self.calls):
            return None
        why = "every epoch has the same order; call sampler.set_epoch(epoch) before each"
        return finding("advice", "set_epoch is never called", call, certainty=LIKELY, why=why)

    def random_windows(self, call: Call) -> Finding | None:
        """Windows at random places of a file of tokens are no permutation of samples."""
        function = call.step.function
        if not function or call.path not in DRAWS:
            return None
        maps = [it[0] for it in self.calls if it[0].path in ("numpy.memmap", "numpy.fromfile")]
        is_token = any(it.step.frame.file is call.step.frame.file for it in maps)
        # The bound of the draw is the length of what is read.
        is_bound = any(last_name(getattr(it, "func", None)) == "len" for it in ast.walk(call.node))
        if not is_token or not is_bound:
            return None
        why = "windows overlap and repeat: no order of a job file is this one"
        what, name = "samples are windows at random places", said("in", function.node.name)
        return finding("advice", what, call, name, certainty=LIKELY, why=why)


def of_table(spec: tables.Spec, call: Call) -> Finding | None:
    """A finding that is a call and its arguments."""
    facts = facts_of(spec.parameters, call)
    if any(it.is_needed and not any(fact.name == it.name for fact in facts) for it in spec.parameters):
        return None
    what = f"{call.path}: {spec.says}" if spec.says else call.path
    if not spec.path.startswith("*"):
        return finding(spec.kind, what, call, *facts)
    why = "by its name; what it is called on is not followed"
    return finding(spec.kind, what, call, *facts, certainty=LIKELY, why=why)


def list_of_transforms(_: tables.Spec, call: Call) -> Finding | None:
    (names, sample), (phase, words) = transforms_of(call), phase_around(call)
    if not sample.steps and "ransforms" not in call.path:
        return None
    facts = [said("steps", ", ".join(names))] + ([said("phase", phase, LIKELY, words)] if phase else [])
    return finding("preprocessing", call.path, call, *facts, *sample.facts)


def checkpoint(spec: tables.Spec, call: Call) -> Finding:
    sure: Any = {"certainty": LIKELY, "why": "by its name"} if spec.path.startswith("*") else {}
    facts = facts_of(spec.parameters, call)
    # A saving object says itself when it saves; a call saves when it is reached.
    if not call.path.endswith(("Checkpoint", "Arguments")):
        facts += [it for step in (call.step, *call.step.callers) for it in conditions(step)]
    return finding("checkpoint", call.path.replace("*.", ""), call, *facts, **sure)


def conditions(step: Step) -> list[Fact]:
    """The loops and conditions around a statement."""
    facts = []
    for loop in step.loops:
        words = f"for {step.source(loop.target)} in" if hasattr(loop, "iter") else "while"
        text = f"{words} {step.source(loop.iter if hasattr(loop, 'iter') else loop.test)}"
        facts.append(said("in the loop", text, CERTAIN, step.place(loop)))
    for test, holds, every in step.conditions:
        words, remainder = step.source(test), remainder_in(test)
        if every and remainder and holds:
            # The source of the left side, with the brackets around it.
            of = step.source(remainder).rpartition("%")[0].strip()
            fact = fact_of("every", every, step.source(remainder.right))
            facts.append(fact._replace(text=f"{fact.text} of `{of}`"))
        if not words.startswith("__name__"):
            facts.append(said("if", words if holds else f"not ({words})"))
    return facts


def loader_of(known: Known) -> Call | None:
    """The loader or pipeline that a loop goes through, inside `enumerate`, `tqdm` and the like."""
    for _ in range(4):
        call = next(iter(known.calls), None)
        if call is None or tables.spec_of(call.path, "loader") or tables.family(call.path):
            return call
        known = call.first
    return None


def of_epochs(spec: tables.Spec, call: Call) -> Finding | None:
    facts = []
    for fact in facts_of(spec.parameters, call):
        value, words = fact.value, fact.of(str) or ""
        if fact.name in ("max_epochs", "num_train_epochs", "num_epochs"):
            is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e9
            facts.append(fact._replace(name="epochs", value=int(value) if is_whole else value))
            continue
        facts.append(fact._replace(name="repeat" if fact.name == "count" else fact.name))
        if fact.name == "max_duration" and words.endswith("ep") and words[:-2].isdecimal():
            facts.append(fact._replace(name="epochs", value=int(words[:-2]), text=words[:-2]))
    return finding("epochs", call.path.replace("*.", ""), call, *facts) if facts else None


def passes(over: ast.expr, calls: dict[ast.AST, Call], is_told: bool) -> list[Fact]:
    """The bounds of a `range`, also inside `tqdm` and the like.

    Where `set_epoch` is told the number of an epoch, those before the first count as epochs too.
    """
    call = calls.get(over)
    if call and 0 in call.given and call.method in ("tqdm", "track", "master_bar"):
        return passes(call.given[0].node, calls, is_told)
    if not call or 0 not in call.given or call.method not in ("range", "trange"):
        return []
    bounds = [it.known for it in call.given.values()]
    start, end = ([Known(0), *bounds] if len(bounds) == 1 else bounds)[:2]
    known = end
    if start.of(int) is not None and end.of(int) is not None and not is_told:
        known = computed_from(end.value - start.value, [start, end])
    elif end.of(int) is not None and start.of(int) != 0:
        # A run that is resumed starts later, and ends at the same epoch.
        known = end.likely("from the first epoch")
    facts = [fact_of("epochs", known, call.step.source(over))]
    return facts if start.of(int) == 0 else [*facts, fact_of("start", start)]


def order_of_steps(call: Call) -> Finding | None:
    """Steps of a pipeline that stand in an order that is seldom meant."""
    steps = [(it.path, is_always) for it, is_always in chain(call)[1:]]
    for name, before, why in (
        ("cache", "shuffle", "the first epoch's order is kept for all epochs; cache before the shuffle"),
        ("shuffle", "batch", "batches are shuffled, not samples; shuffle before the batch"),
        ("shuffle", "repeat",
         "samples of one epoch mix with those of the next; shuffle before the repeat"),
    ):  # fmt: skip
        if call.path == f"{TF_DATA}.{name}" and (f"{TF_DATA}.{before}", True) in steps:
            return finding("advice", f"{name} behind {before}", call, why=why)
    return None
