"""Looks for everything that the tables know in the calls of the scripts."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from functools import partial

from . import known as tables
from .data import Origins, Sample, format_read, last, transforms_of
from .finding import (
    CONTEXTS_MAX,
    KINDS,
    Fact,
    Finding,
    at_step,
    fact_of,
    facts_of,
    finding,
    merged,
    said,
)  # fmt: skip
from .interpreter import Interpreter, remainder_in
from .loader import SAMPLER, Loaders, phase_around
from .value import (
    CERTAIN,
    LIKELY,
    Definition,
    Known,
    Loop,
    Made,
    Step,
    computed_from,
    last_name,
    string,
)  # fmt: skip

FINDINGS_MAX = 2_000  # Findings of one analysis; the rest is left out.


class Finder:
    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter
        self.numbers = {file.name: number for number, file in enumerate(interpreter.files)}
        by_node: dict[ast.AST, list[Made]] = {}
        for made in sorted(interpreter.calls, key=self.position):
            by_node.setdefault(made.node, []).append(made)
        self.calls = list(by_node.values())
        """Of each call, those that lead to it; as they stand in the source."""
        self.functions: dict[object, list[Made]] = {}
        for calls in self.calls:
            function = calls[0].step.function
            self.functions.setdefault(function.node if function else None, []).append(merged(calls))
        self.loaders = Loaders(Origins(interpreter, self.calls), self.functions)
        self.paths = {it[0].path for it in self.calls}

    def position(self, made: Made) -> tuple[int, int, int]:
        number = self.numbers[made.step.frame.file.name]
        return number, made.node.end_lineno or 0, made.node.end_col_offset or 0

    def all(self) -> list[Finding]:
        """By kind and place."""
        findings = [*self.imports(), *self.of_tables(), *self.all_loaders(), *self.samples()]
        findings += [*self.checkpoints(), *self.phases(), *self.epochs()]
        findings += self.advice(findings)
        findings.sort(key=lambda it: (KINDS.index(it.kind), self.numbers[it.file], it.line))
        pairs = zip([None, *findings], findings)
        return [it for before, it in pairs if it != before][:FINDINGS_MAX]

    def in_each_context(
        self, calls: list[Made], to: Callable[[Made], Finding | None]
    ) -> list[Finding]:
        """The same call as each that leads to it sees it, and once if all see the same."""
        findings: list[tuple[Finding, list[str]]] = []
        for made in calls if len(calls) <= CONTEXTS_MAX else [merged(calls)]:
            found, caller = to(made), made.step.frame.caller
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
        found = self.interpreter.imports
        places = [(self.numbers[step.frame.file.name], step.line) for step, _, _ in found]
        for _, (step, module, member) in sorted(zip(places, found), key=lambda it: it[0]):
            package = tables.canonical(module).split(".")[0]
            is_local = module in step.frame.file.links
            if package in tables.FRAMEWORKS and not is_local and package not in told:
                told.add(package)
                why = f"from {module} import {member}" if member else f"import {module}"
                yield at_step("framework", package, step, why=why)

    def of_tables(self) -> Iterable[Finding]:
        """Findings that are a call and its arguments: processes, datasets, caches, seeds."""
        kinds = {"distribution": tables.DISTRIBUTION, "dataset": tables.DATASETS, "cache": tables.CACHES,
                 "seed": tables.SEEDS}  # fmt: skip
        for calls in self.calls:
            for kind, table in kinds.items():
                spec = tables.spec_of(table, calls[0].path)
                if spec:
                    yield from self.in_each_context(calls, partial(of_table, kind, spec))
            yield from self.reader(merged(calls))
            made = calls[0]
            name = string(made.given[0].node) if made.given else None
            if made.path in ("os.environ.get", "os.getenv") and name in tables.LAUNCHER:
                yield finding("distribution", f"{name} of the environment", made)
        for step, line, name in self.interpreter.variables:
            yield at_step("distribution", f"{name} of the environment", step._replace(line=line))
        for definition in self.interpreter.definitions:
            if definition.is_class and self.is_dataset(definition):
                bases = [said("is a", it) for it in self.interpreter.library_bases(definition)]
                yield at_step("dataset", f"class {definition.node.name}", definition.step, *bases)
            for known, node in zip(definition.decorators, definition.node.decorator_list):
                path = getattr(known.value, "path", "") if not known.made else ""
                spec = tables.spec_of(tables.CACHES, path) if path else None
                if spec and not definition.is_class:
                    what = f"{path} of `{definition.node.name}`: {spec.says}"
                    yield at_step("cache", what, definition.step._replace(line=node.lineno))

    def reader(self, made: Made) -> Iterable[Finding]:
        spec = tables.spec_of(tables.READERS, made.path)
        if spec is None:
            return
        # Elsewhere these read a model or a state rather than samples.
        is_any = made.path in ("torch.load", "pickle.load", "safetensors.torch.load_file")
        around = made.step.class_around
        if is_any and not (around and self.is_dataset(around)):
            return
        found = of_table("reader", spec, made)
        format = format_read(made)
        if found:
            found.facts += [said("in", made.step.around)] if made.step.around else []
            found.facts += [format] if format else []
            yield found

    def is_dataset(self, of: Definition) -> bool:
        """Whether a loader can read from objects of this class."""
        bases = self.interpreter.library_bases(of)
        return "__getitem__" in of.frame.names or any(it.endswith("Dataset") for it in bases)

    def all_loaders(self) -> Iterable[Finding]:
        steps = (it.on for calls in self.calls for it in calls if tables.family(it.path))
        consumed = {made.node for on in steps if on for made in on.all_made}
        for calls in self.calls:
            path = calls[0].path
            spec = tables.spec_of(tables.LOADERS, path)
            if spec:
                yield from self.in_each_context(calls, partial(self.loaders.loader, spec))
            if path in ("transformers.Trainer", "transformers.Seq2SeqTrainer"):
                found = self.loaders.trainer(merged(calls))
                yield from [found] if found else []
            of = tables.family(path)
            is_step = of and path.startswith(f"{of}.") and last(path) in tables.FAMILIES[of][1]
            if is_step and calls[0].node not in consumed:
                yield from self.in_each_context(calls, self.loaders.pipeline)

    def samples(self) -> Iterable[Finding]:
        """What becomes of a sample: transforms, and the shape that comes out if it is literal."""
        for calls in self.calls:
            if calls[0].path in tables.LISTS:
                yield from self.in_each_context(calls, list_of_transforms)
        for function, calls in self.functions.items():
            sample, is_step = Sample(calls), re.compile(r"tensorflow\.")
            steps = [it for it in calls if it.path in tables.TRANSFORMS and is_step.match(it.path)]
            if function and steps and sample.is_sized:
                name = getattr(function, "name", "")
                names = said("steps", ", ".join(sample.steps))
                yield finding("preprocessing", f"`{name}`", steps[0], names, *sample.facts)

    def checkpoints(self) -> Iterable[Finding]:
        for calls in self.calls:
            spec = tables.spec_of(tables.CHECKPOINTS, calls[0].path)
            if spec:
                yield from self.in_each_context(calls, partial(checkpoint, spec))
                continue
            # Of many things that have a `save`, those called a model or a checkpoint.
            made = merged(calls)
            on = getattr(made.node.func, "value", None)
            name = made.step.source(on).lower() if on and made.method == "save" else ""
            if re.search("model|net|checkpoint|ckpt|manager", name) and "image" not in name:
                facts, sure = conditions(made.step), {"certainty": LIKELY, "why": "by its name"}
                yield finding("checkpoint", f"{name}.save", made, *facts, **sure)

    def phases(self) -> Iterable[Finding]:
        """Which functions train, validate or evaluate."""
        functions = [it for it in self.interpreter.definitions if not it.is_class]
        decorated = {node: it for it in functions for node in it.node.decorator_list}
        telling: dict[ast.AST | None, tuple[Definition | None, list[Made]]] = {}
        for made, *_ in self.calls:
            # `model.train(False)` evaluates, and `evaluate(model)` without a dot is any function.
            is_false = made.given and getattr(made.given[0].node, "value", None) is False
            is_plain = made.path.startswith("*.") and isinstance(made.node.func, ast.Name)
            is_other = is_plain or (made.method == "train" and is_false)
            if made.method in tables.PHASE_OF_METHOD and not is_other:
                function = decorated.get(made.node) or made.step.function
                telling.setdefault(function.node if function else None, (function, []))[1].append(made)
        for function, calls in telling.values():
            yield from self.phase(function, calls)
        for definition in self.interpreter.definitions:
            name = definition.node.name
            if definition.owner and name in tables.HOOKS and name.endswith("_step"):
                what = f"{tables.phase_of_name(name)}: {name}"
                yield at_step("phase", what, definition.step, why="a hook of Lightning")

    def phase(self, function: Definition | None, calls: list[Made]) -> Iterable[Finding]:
        trains = [it for it in calls if tables.PHASE_OF_METHOD[it.method] == "training"]
        rests = [it for it in calls if it not in trains]
        # What evaluates puts the model back to training at the end.
        if rests and function and all(it.method == "train" for it in trains):
            trains = []
        for part in (trains, rests):
            if not part:
                continue
            name = function.node.name if function else "the file"
            phases = sorted((tables.PHASE_OF_METHOD[it.method] for it in part), key=tables.PHASES.index)
            named = tables.phase_of_name(name)
            phase = phases[0] if part is trains or named in (None, "training") else named
            line = function.step.line if function else part[0].node.lineno
            why = f"calls {', '.join(f'{it.method} ({it.node.lineno})' for it in part)}"
            reads = self.loops_of(function, part)
            step = part[0].step._replace(line=line)
            yield at_step("phase", f"{phase}: {name}", step, *reads, certainty=LIKELY, why=why)

    def loops_of(self, function: Definition | None, calls: list[Made]) -> list[Fact]:
        """What the loops around these calls go through."""
        around = {it for made in calls for it in made.step.loops}
        facts: dict[Loop, Fact] = {}
        for step, loop, known in self.interpreter.loops:
            # `model.eval()` stands before the loop that it is about.
            is_own = not around and function and step.function and step.function.node is function.node
            loader = loader_of(known) if (loop in around or is_own) and loop.target else None
            if loader and loop not in facts:
                text = f"{step.source(loop.over)}: {last(loader.path)} at {loader.place}"
                facts[loop] = said("reads", text, LIKELY, step.place())
        return sorted(facts.values(), key=lambda it: int((it.why or ":0").rpartition(":")[2]))

    def epochs(self) -> Iterable[Finding]:
        """How many times the data is gone through."""
        for calls in self.calls:
            spec = tables.spec_of(tables.EPOCHS, calls[0].path)
            if spec:
                yield from self.in_each_context(calls, partial(of_epochs, spec))
        calls_of: dict[ast.AST, Made] = {it[0].node: merged(it) for it in self.calls}
        seen: set[ast.AST] = set()
        for step, loop, _ in self.interpreter.loops:
            name = loop.target.id if isinstance(loop.target, ast.Name) else ""
            if loop.over not in seen and ("epoch" in name.lower() or name == "ep"):
                seen.add(loop.over)
                facts = passes(loop.over, calls_of)
                if facts:
                    yield at_step("epochs", f"for {name} in {step.source(loop.over)}", step, *facts)

    def advice(self, findings: list[Finding]) -> list[Finding]:
        """What the author may not have meant, or what tierfeed cannot follow."""
        advice = []
        for calls in self.calls:
            made = merged(calls)
            advice += self.forgotten_epoch(made) + self.random_windows(made)
            advice += self.in_each_context(calls, order_of_steps)
        loaders = [it for it in findings if it.kind == "loader"]
        if not any(it.kind == "seed" and it.what in tables.GLOBAL_SEEDS for it in findings):
            why = "no run is like another; call torch.manual_seed first, or publish the order"
            drawn = [it for it in loaders if text_of(it, "order.shuffle") == "torch-random"]
            drawn = [it for it in drawn if not it.fact("generator")]
            advice += [advised(it, "the shuffle has no seed", why) for it in drawn]
        dealers = {SAMPLER, "accelerate.Accelerator", "lightning.Trainer", "deepspeed.initialize"}
        ranks = {"torch.nn.parallel.DistributedDataParallel", "torch.distributed.init_process_group"}
        if self.paths & ranks and not self.paths & dealers:
            plain = [it for it in loaders if text_of(it, "phase") in ("", "training")]
            plain = [it for it in plain if text_of(it, "sampler") == "None"]
            plain = [it for it in plain if not it.fact("batch_sampler")]
            what = "several ranks, but no sampler that deals samples to them"
            why = "every rank reads the whole dataset; use DistributedSampler"
            advice += [advised(it, what, why) for it in plain]
        return advice

    def forgotten_epoch(self, made: Made) -> list[Finding]:
        """`DistributedSampler` without `set_epoch` permutes every epoch alike."""
        shuffle = made.argument("shuffle", 3)
        is_set = any(it[0].method == "set_epoch" for it in self.calls) or self.loaders.is_lightning
        if made.path != SAMPLER or is_set or (shuffle and shuffle.of(bool) is False):
            return []
        why = "every epoch has the same order; call sampler.set_epoch(epoch) before each"
        return [finding("advice", "set_epoch is never called", made, certainty=LIKELY, why=why)]

    def random_windows(self, made: Made) -> list[Finding]:
        """Windows at random places of a file of tokens are no permutation of samples."""
        if made.path not in ("torch.randint", "numpy.random.randint", "numpy.random.choice"):
            return []
        maps = [it[0] for it in self.calls if it[0].path in ("numpy.memmap", "numpy.fromfile")]
        is_token = any(it.step.frame.file is made.step.frame.file for it in maps)
        # The bound of the draw is the length of what is read.
        inside = (it for given in made.given for it in ast.walk(given.node))
        is_bound = any(isinstance(it, ast.Call) and last_name(it.func) == "len" for it in inside)
        function = made.step.function
        if not function or not is_token or not is_bound:
            return []
        why = "windows overlap and repeat: no order of a job file is this one"
        name = said("in", function.node.name)
        what = "samples are windows at random places"
        return [finding("advice", what, made, name, certainty=LIKELY, why=why)]


def of_table(kind: str, spec: tables.Spec, made: Made) -> Finding | None:
    facts = facts_of(spec.parameters, made)
    needs = tables.CACHE_NEEDS.get(spec.path) if kind == "cache" else None
    if needs and not any(it.name == needs for it in facts):
        return None
    what = f"{made.path}: {spec.says}" if spec.says else made.path
    if not spec.path.startswith("*"):
        return finding(kind, what, made, *facts)
    why = "by its name; what it is called on is not followed"
    return finding(kind, what, made, *facts, certainty=LIKELY, why=why)


def list_of_transforms(made: Made) -> Finding | None:
    names, inner = transforms_of(made)
    sample, (phase, words) = Sample(inner), phase_around(made)
    if not sample.steps and "ransforms" not in made.path:
        return None
    facts = [said("steps", ", ".join(names))] + ([said("phase", phase, LIKELY, words)] if phase else [])
    return finding("preprocessing", made.path, made, *facts, *sample.facts)


def checkpoint(spec: tables.Spec, made: Made) -> Finding:
    is_named = spec.path.startswith("*")
    sure = {"certainty": LIKELY, "why": "by its name"} if is_named else {}
    facts = facts_of(spec.parameters, made)
    # A saving object says itself when it saves; a call saves when it is reached.
    if not made.path.endswith(("Checkpoint", "Arguments")):
        facts += [it for step in (made.step, *made.step.callers) for it in conditions(step)]
    return finding("checkpoint", made.path.removeprefix("*."), made, *facts, **sure)


def conditions(step: Step) -> list[Fact]:
    """The loops and conditions around a statement."""
    facts = []
    for target, over, line in step.loops:
        words = f"for {step.source(target)} in" if target else "while"
        text = f"{words} {step.source(over)}"
        facts.append(said("in the loop", text, CERTAIN, f"{step.frame.file.name}:{line}"))
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


def loader_of(known: Known) -> Made | None:
    """The loader or pipeline that a loop goes through, inside `enumerate`, `tqdm` and the like."""
    for _ in range(4):
        made = next(iter(known.all_made), None)
        if made is None or tables.spec_of(tables.LOADERS, made.path) or tables.family(made.path):
            return made
        known = made.argument("", 0) or Known(None)
    return None


def of_epochs(spec: tables.Spec, made: Made) -> Finding | None:
    facts = []
    for fact in facts_of(spec.parameters, made):
        value = fact.value
        if fact.name in ("max_epochs", "num_train_epochs", "num_epochs"):
            is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e9
            facts.append(fact._replace(name="epochs", value=int(value) if is_whole else value))
            continue
        facts.append(fact._replace(name="repeat" if fact.name == "count" else fact.name))
        words = fact.of(str) or ""
        if fact.name == "max_duration" and words.endswith("ep") and words[:-2].isdecimal():
            facts.append(fact._replace(name="epochs", value=int(words[:-2]), text=words[:-2]))
    return finding("epochs", made.path.removeprefix("*."), made, *facts) if facts else None


def passes(over: ast.expr, calls: dict[ast.AST, Made]) -> list[Fact]:
    """The bounds of a `range`, also inside `tqdm` and the like."""
    made = calls.get(over)
    if made and made.given and made.method in ("tqdm", "track", "master_bar"):
        return passes(made.given[0].node, calls)
    if not made or not made.given or made.method not in ("range", "trange"):
        return []
    bounds = [it.known for it in made.given]
    start, end = ([Known(0), *bounds] if len(bounds) == 1 else bounds)[:2]
    known = end
    if start.of(int) is not None and end.of(int) is not None:
        known = computed_from(end.value - start.value, [start, end])
        known = known._replace(why=end.why or known.why)
    elif start.is_unknown and end.of(int) is not None:
        # A run that is resumed starts later, and ends at the same epoch.
        known = end.likely("from the first epoch")
    facts = [fact_of("epochs", known, made.step.source(over))]
    return facts if start.of(int) == 0 else [*facts, fact_of("start", start, "?")]


def order_of_steps(made: Made) -> Finding | None:
    """Steps of a pipeline that stand in an order that is seldom meant."""
    method = last(made.path)
    if made.path != f"{tables.TF_DATA}.{method}" or not made.on:
        return None
    for name, before, why in (
        ("cache", "shuffle", "the first epoch's order is kept for all epochs; cache before the shuffle"),
        ("shuffle", "batch", "batches are shuffled, not samples; shuffle before the batch"),
        ("shuffle", "repeat",
         "samples of one epoch mix with those of the next; shuffle before the repeat"),
    ):  # fmt: skip
        if method == name and is_behind(made.on, f"{tables.TF_DATA}.{before}"):
            return finding("advice", f"{name} behind {before}", made, why=why)
    return None


def is_behind(on: Known | None, path: str) -> bool:
    """Whether a step of this name comes before, on every way."""
    for _ in range(64):
        made = next(iter(on.all_made), None) if on else None
        if made is None or on is None:
            return False
        if made.path == path:
            return len(on.alternatives) == 1
        on = made.on
    return False


def text_of(found: Finding, name: str) -> str:
    fact = found.fact(name)
    return fact.text if fact else ""


def advised(loader: Finding, what: str, why: str) -> Finding:
    return Finding("advice", what, loader.file, loader.line, LIKELY, why)
