"""Loaders and pipelines: what they read, which phase they serve, and which order they read in."""

from __future__ import annotations

from typing import NamedTuple

from . import known as tables
from .data import Origin, Origins, Sample, last, shape_of_list
from .finding import (
    Fact,
    Finding,
    fact_of,
    fact_of_parameter,
    facts_of,
    finding,
    not_said,
    said,
    shown,
)
from .known import Parameter
from .value import CERTAIN, LIKELY, UNKNOWN, Definition, Known, Made, Sequence, Symbol

STEPS_MAX = 64  # Steps of a pipeline that are followed.
SAMPLER = "torch.utils.data.DistributedSampler"
OWN_ORDERS = {
    "ffcv.loader.Loader": "FFCV permutes by itself, in an order of its own",
    "litdata.StreamingDataset": "LitData's order is none of tierfeed's",
    "webdataset.WebDataset": "WebDataset shuffles shards and a buffer, in an order of its own",
}


class Stage(NamedTuple):
    """A step of a pipeline, and whether every way to the end goes through it."""

    made: Made
    is_always: bool


def order(name: str, why: str, certainty: int = CERTAIN) -> Fact:
    if certainty is UNKNOWN:
        return not_said("order.shuffle", name, why)
    return said("order.shuffle", name, LIKELY if certainty else CERTAIN, why)


def no_order(why: str) -> Fact:
    return order("none", why, UNKNOWN)


class Loaders:
    def __init__(self, origins: Origins, functions: dict[object, list[Made]]) -> None:
        self.origins = origins
        self.functions = functions  # The calls in each function of these files.
        paths = {it[0].path for it in origins.calls}
        self.is_lightning = "lightning.Trainer" in paths

    def loader(self, spec: tables.Spec, made: Made) -> Finding:
        facts = facts_of(spec.parameters, made)
        places = {it.name: it.place for it in spec.parameters}
        names = [it for it in ("dataset", "data_source", "fname", "file_root", "path") if it in places]
        given = [made.argument(it, places[it]) for it in names]
        dataset = next((it for it in given if it), None)
        origin = self.origin_of_loader(made, dataset, facts)
        phase = self.phase(made, origin)
        facts = ([phase] if phase else []) + facts + origin.told
        orders = ("shuffle_algo", "shuffle_seed", "shuffle_block_size", "num_canonical_nodes")
        facts += [it for it in origin.facts if it.name in orders]
        sampler = made.argument("sampler", 3)
        if made.path == "grain.DataLoader" and sampler and sampler.made:
            seed = fact_of_parameter(Parameter("seed"), sampler.made)
            facts += [seed] if seed else []
        dealers = sampler.all_made if sampler else []
        for dealer in [it for it in dealers if it.path == SAMPLER][:1]:
            told = facts_of([Parameter("seed", 4, 0), Parameter("drop_last", 5, False)], dealer)
            facts += [it._replace(name=f"sampler.{it.name}") for it in told]
        facts.append(self.order_of(made, origin))
        self.batch_of_dataset(facts, dataset, made)
        shapes = (shape_of_list(it.known.made) for it in (origin.made.given if origin.made else ()))
        shape = next((it for it in shapes if it), [])
        return finding("loader", made.path, made, *facts, *with_batch(shape, facts))

    def origin_of_loader(self, made: Made, dataset: Known | None, facts: list[Fact]) -> Origin:
        origin, name = self.origins.of(dataset), tables.FORMAT_OF.get(made.path)
        if name is None:
            return origin
        # A loader that reads files itself.
        source = next((it for it in facts if it.name in ("fname", "file_root", "path", "paths")), None)
        hints = [source.text] if source else []
        own = source._replace(name="source") if source else None
        return Origin(name, origin.path, said("format", name), own, origin.made, hints=hints)

    def batch_of_dataset(self, facts: list[Fact], dataset: Known | None, made: Made) -> None:
        """A loader that does not batch gets batches: from a pipeline, or from Grain's `Batch`."""
        own = next((i for i, it in enumerate(facts) if it.name == "batch_size"), None)
        if own is not None and facts[own].text != "None":
            return
        operations = made.argument("operations")
        items = operations.value.items if operations and isinstance(operations.value, Sequence) else ()
        batches = [it.made for it in items if it.made and it.made.path == "grain.Batch"][-1:]
        for end in dataset.all_made[:1] if dataset else []:
            stages = [it.made for it in chain(end)]
            batches += [it for it in stages if last(it.path) in ("batched", "batch", "padded_batch")]
        names = [Parameter("batch_size", 0), Parameter("batchsize", 0)]
        told = facts_of(names, batches[0])[:1] if batches else []
        for fact in told:
            why = f"batches are made at {batches[0].place}" + (f": {fact.why}" if fact.why else "")
            fact = fact._replace(name="batch_size", why=why)
            if own is None:
                facts.append(fact)
            else:
                facts[own] = fact

    def phase(self, made: Made, origin: Origin) -> Fact | None:
        function = made.step.function
        name = function.node.name if function else ""
        if name in tables.HOOKS and name.endswith("loader"):
            return said("phase", tables.phase_of_name(name) or "", CERTAIN, f"in {name}")
        # A literal that says which part of the data this is says more than a name does.
        around, words = phase_around(made)
        for hint in origin.hints:
            phase = tables.phase_of_name(hint)
            if phase:
                # Whether what is held out is called validation or evaluation is a matter of taste.
                differs = around and (around == "training") is not (phase == "training")
                why = f"its data: {hint.removeprefix('validation: ')}"
                return said("phase", phase, LIKELY, f"{why}, but its name differs" if differs else why)
        return said("phase", around, LIKELY, words) if around else None

    def trainer(self, made: Made) -> Finding | None:
        """`transformers.Trainer` makes its loader itself."""
        settings = made.argument("args", 1)
        if settings is None:
            return None
        facts = [said("phase", "training", CERTAIN, "train_dataset")]
        if settings.made:
            facts += facts_of(tables.TRAINER, settings.made)
        else:
            why = settings.why or "its arguments are not followed"
            facts.append(not_said("batch_size", "?", why))
        facts = [it._replace(name=tables.TRAINER_NAMES.get(it.name, it.name)) for it in facts]
        facts += self.origins.of(made.argument("train_dataset", 3)).told
        facts.append(order("published", "batches are dealt to the ranks, not samples", LIKELY))
        return finding("loader", made.path, made, *facts)

    # Orders

    def order_of(self, made: Made, origin: Origin) -> Fact:
        """The order of a job file that a loader reads in."""
        if made.path == "grain.DataLoader":
            return self.order_of_grain(made.argument("sampler"))
        if made.path.startswith("nvidia."):
            return no_order("DALI shuffles by itself, in an order of its own")
        for path in (made.path, origin.path):
            if path in OWN_ORDERS:
                return no_order(OWN_ORDERS[path])
        if origin.path == "streaming.StreamingDataset":
            return order_of_mosaic(origin)
        batches = made.argument("batch_sampler", 4)
        if batches and batches.value is not None:
            return order("published", "it has a batch_sampler of its own", LIKELY)
        if origin.is_part:
            return order("published", f"{origin.name}: only some of the samples in the files", LIKELY)
        shuffle = made.argument("shuffle", 2) or Known(False)
        sampler = made.argument("sampler", 3)
        if sampler and sampler.value is not None:
            return self.order_of_sampler(sampler, shuffle)
        return self.order_of_flag(shuffle)

    def order_of_flag(self, shuffle: Known) -> Fact:
        flag = shuffle.of(bool)
        if flag is None:
            return order("torch-random or sequential", shuffle.why or "shuffle is not known", UNKNOWN)
        if not flag:
            return order("sequential", "no shuffle, no sampler", shuffle.certainty)
        if self.is_lightning:
            why = "Lightning puts in a DistributedSampler; torch-random with one rank"
            return order("torch-distributed", why, LIKELY)
        return order("torch-random", "shuffle=True", shuffle.certainty)

    def order_of_sampler(self, sampler: Known, shuffle: Known) -> Fact:
        made = next(iter(sampler.all_made), None)
        if made is None:
            return order("published", "a sampler of its own: the trainer hands its order over", LIKELY)
        if made.path == SAMPLER:
            shuffles = made.argument("shuffle", 3) or Known(True)
            if shuffles.of(bool) is None:
                return self.order_of_flag(shuffles)
            name = "torch-distributed" if shuffles.value else "sequential"
            if sampler.made:
                return order(name, f"DistributedSampler, {made.place}", shuffles.certainty)
            # In `shuffle=(sampler is None)` there is no sampler with one rank.
            alone = next((it for it in shuffle.alternatives if it.value is True), shuffle)
            return order(name, f"with several ranks; {self.order_of_flag(alone).text} with one", LIKELY)
        if made.path == "torch.utils.data.RandomSampler" and not made.node_of("replacement", 1):
            return order("torch-random", "RandomSampler")
        if made.path == "torch.utils.data.SequentialSampler":
            return order("sequential", "SequentialSampler")
        return order("published", f"its sampler is {made.path}", LIKELY)

    def order_of_grain(self, sampler: Known | None) -> Fact:
        made = sampler.made if sampler else None
        if made is None:
            return order("published", "a sampler of its own", LIKELY)
        shuffle = made.argument("shuffle") or Known(False)
        if shuffle.of(bool) is None:
            return self.order_of_flag(shuffle)
        if not shuffle.value:
            return order("sequential", "IndexSampler does not shuffle", shuffle.certainty)
        shards = made.argument("shard_options")
        if shards and shards.made and shards.made.path == "grain.NoSharding":
            return order("grain", "IndexSampler(shuffle=True)", shuffle.certainty)
        # `samplers.py`: the shard is taken first, and shuffled then.
        return no_order("IndexSampler shards before it shuffles; with one process it is grain")

    # Pipelines

    def pipeline(self, made: Made) -> Finding | None:
        of, end = tables.family(made.path) or "", made.value.made if made.value else None
        if end is None:
            return None
        stages = chain(end)[::-1]
        origin = self.origins.of(Known(end))
        # One method of something unknown is as likely a model or a table.
        if len(stages) < 2 and not origin.path:
            return None
        phase = self.phase(made, origin)
        facts = ([phase] if phase else []) + origin.told + [step_of(it) for it in stages]
        facts += batching(stages, origin)
        maps = [it.made.given[0].known for it in stages if last(it.made.path) == "map" and it.made.given]
        shape = next((it for it in map(self.shape_of_function, reversed(maps)) if it), [])
        facts += with_batch(shape, facts)
        return finding("pipeline", of, made, *facts, order_of_pipeline(of, stages, origin))

    def shape_of_function(self, known: Known | None) -> list[Fact]:
        """What comes out of a function of `Dataset.map`, which may be wrapped in `partial`."""
        if known and isinstance(known.value, Definition):
            sample = Sample(self.functions.get(known.value.node, []))
            return sample.facts if sample.is_sized else []
        made = known.made if known else None
        is_partial = made and made.path == "functools.partial"
        return self.shape_of_function(made.argument("", 0)) if made and is_partial else []


def with_batch(shape: list[Fact], facts: list[Fact]) -> list[Fact]:
    """The shape of a sample, with the bytes of a decoded batch: `S_b` in DeepMemoryDL, 3.3.2."""
    batch = next((it for it in facts if it.name == "batch_size"), None)
    sample = next((it for it in shape if it.name == "sample_bytes"), None)
    if not batch or not sample or batch.of(int) is None or sample.of(int) is None:
        return shape
    size, worse = batch.value * sample.value, batch if batch.certainty > sample.certainty else sample
    return [*shape, Fact("batch_bytes", size, f"{size} B", worse.certainty, worse.why)]


def order_of_mosaic(origin: Origin) -> Fact:
    shuffle = next((it for it in origin.facts if it.name == "shuffle"), None)
    if shuffle is None:
        return order("sequential", "StreamingDataset does not shuffle", LIKELY)
    flag = shuffle.of(bool)
    if flag is None:
        return order("mosaic or sequential", shuffle.why or "its shuffle is not known", UNKNOWN)
    name = "mosaic" if flag else "sequential"
    return order(name, f"StreamingDataset(shuffle={flag})", shuffle.certainty)


def order_of_pipeline(of: str, stages: list[Stage], origin: Origin) -> Fact:
    methods = [last(it.made.path) for it in stages]
    shuffle = next((it.made for it in stages if last(it.made.path) == "shuffle"), None)
    seed = shuffle.argument("seed", 1) if shuffle else None
    if of == "webdataset.WebDataset":
        return no_order(OWN_ORDERS[of])
    if of == "datasets.Dataset":
        said = no_order("datasets permutes by itself; give the loader's order instead")
        return said if shuffle else order("sequential", "no shuffle before the loader", LIKELY)
    if of == "grain.MapDataset":
        return order("grain", "MapDataset.shuffle") if shuffle else order("sequential", "no shuffle")
    if "interleave" in methods:
        before = "samples are interleaved from files before they are shuffled"
        alone = "files are interleaved; tierfeed reads them one after the other"
        return no_order(before if shuffle else alone)
    if shuffle and "shard" in methods and methods.index("shuffle") > methods.index("shard"):
        return no_order("the dataset is sharded before it is shuffled")
    if lists_at_random(origin):
        said_ = "the list of files is shuffled"
        return no_order(f"{said_} before the samples are" if shuffle else said_)
    if shuffle is None:
        return order("sequential", "no shuffle", LIKELY)
    is_seeded = seed and seed.value is not None
    return order("tf-shuffle", "shuffle with a seed") if is_seeded else no_order(
        "shuffle without a seed: no run is like another"
    )


def lists_at_random(origin: Origin) -> bool:
    """Whether the files come in another order in each run."""
    made = origin.made
    if not made or not made.path.endswith((".list_files", "image_dataset_from_directory")):
        return False
    shuffle = made.argument("shuffle", 1)
    return shuffle is None or shuffle.of(bool) is not False


def step_of(stage: Stage) -> Fact:
    made, texts, worst = stage.made, [], Known(None)
    names = tables.PLACES.get(made.path, "").split()
    for place, (how, own, node, known) in enumerate(made.given):
        name = own if how == "name" else names[place] if place < len(names) else None
        text = shown(known, made.step.source(node))
        # A function is what it is, even where it is not followed.
        is_function = name in (None, "map_func", "collation_fn")
        worst = known if known.certainty > worst.certainty and not is_function else worst
        texts.append(f"{name}={text}" if name else text)
    text = f"{last(made.path)}({', '.join(texts)}){'' if stage.is_always else ' in some branches'}"
    why = f"{made.place}: {worst.why}" if worst.why else made.place
    return said("step", text, worst.certainty, why)


def batching(stages: list[Stage], origin: Origin) -> list[Fact]:
    """What the steps say of batches."""
    batches = [it.made for it in stages if last(it.made.path) in ("batch", "padded_batch", "batched")]
    made = batches[-1] if batches else origin.made
    facts: list[Fact] = []
    for name, own, place in (("batch_size", "batch_size", 0), ("batch_size", "batchsize", 0),
                             ("drop_last", "drop_remainder", 1)):  # fmt: skip
        node = made.node_of(own, place if batches else None) if made else None
        known = made.argument(own, place if batches else None) if made else None
        if made and node and known and not any(it.name == name for it in facts):
            facts.append(fact_of(name, known, made.step.source(node)))
    for shuffle in [it.made for it in stages if last(it.made.path) == "shuffle"][:1]:
        places = enumerate(("buffer_size", "seed", "reshuffle_each_iteration"))
        is_tf = shuffle.path.startswith("tensorflow.")
        parameters = [Parameter(name, place) for place, name in places] if is_tf else [Parameter("seed")]
        facts += facts_of(parameters, shuffle)
    return facts if made else []


def chain(end: Made) -> list[Stage]:
    """Goes back from the last step to the first; where branches meet, along the longest."""
    stages: list[Stage] = []
    made, skipped = end, 0
    while len(stages) < STEPS_MAX:
        of = tables.family(made.path)
        is_step = of and made.path.startswith(f"{of}.") and last(made.path) in tables.FAMILIES[of][1]
        if not is_step or made.on is None or isinstance(made.on.value, Symbol):
            break
        stages.append(Stage(made, skipped <= 0))
        before = made.on.all_made
        if not before:
            break
        lengths = [length(it) for it in before]
        # What the shortest way does not go through may be left out.
        skipped = (lengths and max(lengths) - min(lengths)) or skipped - 1
        made = max(reversed(before), key=length)
    return stages


def length(made: Made | None) -> int:
    """Steps up to this one."""
    count = -1
    while made and count < STEPS_MAX:
        made = next(iter(made.on.all_made), None) if made.on else None
        count += 1
    return count


def phase_around(made: Made) -> tuple[str | None, str]:
    """The phase that the surroundings of a call speak of, and what says so."""
    words = [f"assigned to `{made.step.target}`"] if made.step.target else []
    for caller in made.step.callers:
        words += [f"assigned to `{caller.target}`"] if caller.target else []
        words += [f"called in `{caller.around}`"] if caller.around else []
    words += [f"in `{made.step.around}`"] if made.step.around else []
    found = ((tables.phase_of_name(it), it) for it in words)
    return next((it for it in found if it[0]), (None, ""))
