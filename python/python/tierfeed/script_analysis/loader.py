"""Loaders and pipelines: what they read, which phase they serve, and which order they read in."""

from __future__ import annotations

from typing import Any

from . import tables
from .data import Origin, Origins, Sample, transforms_of
from .finding import Fact, Finding, fact_of, facts_of, finding, said, shown
from .tables import Parameter, last
from .values import CERTAIN, LIKELY, UNKNOWN, Call, Certainty, Definition, Known, Symbol

STEPS_MAX = 64  # Steps of a pipeline that are followed.
SAMPLER = "torch.utils.data.DistributedSampler"
OWN_ORDERS = {
    "ffcv.loader.Loader": "FFCV permutes by itself, in an order of its own",
    "litdata.StreamingDataset": "LitData's order is none of tierfeed's",
    "webdataset.WebDataset": "WebDataset shuffles shards and a buffer, in an order of its own",
}
BATCHES = ("batched", "batch", "padded_batch")


def order(name: str, why: str | None, certainty: Certainty = CERTAIN) -> Fact:
    return said("order.shuffle", name, certainty, why)


def no_order(why: str) -> Fact:
    return order("none", why, UNKNOWN)


class Loaders:
    def __init__(self, origins: Origins, functions: dict[object, list[Call]], paths: set[str]) -> None:
        self.origins = origins
        self.functions = functions  # The calls in each function of these files.
        self.is_lightning = "lightning.Trainer" in paths

    def loader(self, spec: tables.Spec, call: Call) -> Finding:
        facts = facts_of(spec.parameters, call)
        places = {it.name: it.place for it in spec.parameters}
        names = [it for it in ("dataset", "data_source", "fname", "file_root", "path") if it in places]
        dataset = next(filter(None, (call.argument(it, places[it]) for it in names)), None)
        origin = self.origins.of(dataset)
        if spec.format:
            # A loader that reads files itself.
            sources = ("fname", "file_root", "path", "paths")
            source = next((it for it in facts if it.name in sources), None)
            own = source._replace(name="source") if source else None
            hints, format = [source.text] if source else [], said("format", spec.format)
            origin = Origin(spec.format, origin.path, format, own, origin.made, hints=hints)
        facts = self.phase(call, origin) + facts + origin.told
        orders = ("shuffle_algo", "shuffle_seed", "shuffle_block_size", "num_canonical_nodes")
        facts += [it for it in origin.facts if it.name in orders]
        sampler = call.argument("sampler", 3) or Known(None)
        if call.path == "grain.DataLoader" and isinstance(sampler.value, Call):
            facts += facts_of([Parameter("seed")], sampler.value)
        for dealer in [it for it in sampler.calls if it.path == SAMPLER][:1]:
            told = facts_of([Parameter("seed", 4, 0), Parameter("drop_last", 5, False)], dealer)
            facts += [it._replace(name=f"sampler.{it.name}") for it in told]
        parts = [tables.PARTS.get(last(it.path)) for it in sampler.calls]
        facts += [said("part", it) for it in parts if it]
        facts.append(self.order_of(call, origin))
        self.batch_of_dataset(facts, dataset, call)
        shape: list[Fact] = []
        for it in origin.made.given.values() if origin.made else ():
            value = it.known.value
            is_list = isinstance(value, Call) and tables.spec_of(value.path, "preprocessing")
            sample = transforms_of(value)[1] if is_list else Sample([])
            shape = shape or (sample.facts if sample.steps else [])
        return finding("loader", call.path, call, *facts, *with_batch(shape, facts))

    def batch_of_dataset(self, facts: list[Fact], dataset: Known | None, call: Call) -> None:
        """A loader that does not batch gets batches: from a pipeline, or from Grain's `Batch`."""
        own = next((it for it in facts if it.name == "batch_size"), None)
        sampler = call.given.get("batch_sampler") or call.given.get(4)
        if own and own.text != "None" and not (sampler and sampler.known.value is not None):
            return
        items = (call.argument("operations") or Known(None)).of(tuple) or ()
        batches = [it.value for it in items if getattr(it.value, "path", "") == "grain.Batch"][-1:]
        batches += [it for it in sampler.known.calls if it.argument("batch_size", 1)] if sampler else []
        for end in dataset.calls[:1] if dataset else []:
            batches += [it for it, _ in chain(end) if last(it.path) in BATCHES]
        names = [Parameter("batch_size", 1 if sampler else 0), Parameter("batchsize", 0)]
        if sampler and own and not batches:
            why = "its batch_sampler makes the batches"
            facts[facts.index(own)] = said("batch_size", "?", UNKNOWN, why)
        for fact in facts_of(names, batches[0])[:1] if batches else []:
            why = f"batches are made at {batches[0].place}" + (f": {fact.why}" if fact.why else "")
            index = facts.index(own) if own else len(facts)
            facts[index : index + 1] = [fact._replace(name="batch_size", why=why)]

    def phase(self, call: Call, origin: Origin) -> list[Fact]:
        name = call.step.function.node.name if call.step.function else ""
        if name in tables.HOOKS and name.endswith("loader"):
            return [said("phase", tables.phase_of_name(name) or "", CERTAIN, f"in {name}")]
        # A literal that says which part of the data this is says more than a name does.
        around, words = phase_around(call)
        for hint in origin.hints:
            phase = tables.phase_of_name(hint)
            if phase:
                # Whether what is held out is called validation or evaluation is a matter of taste.
                differs = around and (around == "training") is not (phase == "training")
                why = f"its data: {hint.replace('validation: ', '')}"
                return [
                    said("phase", phase, LIKELY, why + (", but its name differs" if differs else ""))
                ]
        return [said("phase", around, LIKELY, words)] if around else []

    def trainer(self, call: Call) -> Finding | None:
        """`transformers.Trainer` makes its loader itself."""
        settings = call.argument("args", 1)
        if settings is None:
            return None
        why = settings.why or "its arguments are not followed"
        facts = [said("batch_size", "?", UNKNOWN, why)]
        if isinstance(settings.value, Call):
            facts = facts_of(tables.TRAINER, settings.value)
        prefix = ("per_device_train_", "dataloader_")
        for index, it in enumerate(facts):
            own = next((it.name[len(start) :] for start in prefix if it.name.startswith(start)), it.name)
            facts[index] = it._replace(name=own)
        facts = [said("phase", "training", CERTAIN, "train_dataset"), *facts]
        facts += self.origins.of(call.argument("train_dataset", 3)).told
        facts.append(order("published", "batches are dealt to the ranks, not samples", LIKELY))
        return finding("loader", call.path, call, *facts)

    def order_of(self, call: Call, origin: Origin) -> Fact:
        """The order of a job file that a loader reads in."""
        if call.path == "grain.DataLoader":
            return self.order_of_grain(call.argument("sampler") or Known(None))
        if call.path.startswith("nvidia."):
            return no_order("DALI shuffles by itself, in an order of its own")
        own = OWN_ORDERS.get(call.path) or OWN_ORDERS.get(origin.path)
        if own:
            return no_order(own)
        shuffle = call.argument("shuffle", 2) or Known(False)
        if origin.path == "streaming.StreamingDataset":
            told = next((it for it in origin.facts if it.name == "shuffle"), None)
            flag = Known(told.value, told.certainty, told.why) if told else Known(False)
            return self.order_of_flag(flag, "mosaic", f"StreamingDataset(shuffle={flag.value})")
        batches, sampler = call.argument("batch_sampler", 4), call.argument("sampler", 3)
        if batches and batches.value is not None:
            return order("published", "it has a batch_sampler of its own", LIKELY)
        if origin.part:
            return order("published", origin.part, LIKELY)
        if sampler and sampler.value is not None:
            return self.order_of_sampler(sampler, shuffle)
        drawers = [it for it in self.origins.calls if "generator" in it[0].given]
        if "generator" in call.given and len(drawers) > 1:
            places = ", ".join(it[0].place for it in drawers)
            return no_order(f"each use of a generator moves it on: {places}")
        return self.order_of_flag(shuffle)

    def order_of_flag(self, shuffle: Known, name: str = "torch-random", why: str = "") -> Fact:
        flag, why = shuffle.of(bool), why or "shuffle=True"
        if flag is None:
            return order(f"{name} or sequential", shuffle.why or "shuffle is not known", UNKNOWN)
        if name == "torch-random" and flag and self.is_lightning:
            why = "Lightning puts in a DistributedSampler; torch-random with one rank"
            return order("torch-distributed", why, LIKELY)
        alone = "no shuffle, no sampler" if name == "torch-random" else why
        return order(name if flag else "sequential", why if flag else alone, shuffle.certainty)

    def order_of_sampler(self, sampler: Known, shuffle: Known) -> Fact:
        call = next(iter(sampler.calls), None)
        if call is None:
            return order("published", "a sampler of its own: the trainer hands its order over", LIKELY)
        if call.path == SAMPLER:
            shuffles = call.argument("shuffle", 3) or Known(True)
            if shuffles.of(bool) is None:
                return self.order_of_flag(shuffles)
            name = "torch-distributed" if shuffles.value else "sequential"
            if sampler.value is call:
                return order(name, f"DistributedSampler, {call.place}", shuffles.certainty)
            # In `shuffle=(sampler is None)` there is no sampler with one rank.
            alone = next((it for it in shuffle.alternatives if it.value is True), shuffle)
            return order(name, f"with several ranks; {self.order_of_flag(alone).text} with one", LIKELY)
        places = ("replacement", 1), ("num_samples", 2), ("generator", 3)
        if call.path == "torch.utils.data.RandomSampler" and not any(call.find(*it) for it in places):
            return order("torch-random", "RandomSampler")
        if call.path == "torch.utils.data.SequentialSampler":
            return order("sequential", "SequentialSampler")
        return order("published", f"its sampler is {call.path}", LIKELY)

    def order_of_grain(self, sampler: Known) -> Fact:
        if not isinstance(sampler.value, Call):
            return order("published", "a sampler of its own", LIKELY)
        shuffle = sampler.value.argument("shuffle") or Known(False)
        shards = sampler.value.argument("shard_options")
        if shuffle.of(bool) is None:
            return self.order_of_flag(shuffle, "grain")
        if not shuffle.value:
            return order("sequential", "IndexSampler does not shuffle", shuffle.certainty)
        if shards and getattr(shards.value, "path", "") == "grain.NoSharding":
            return order("grain", "IndexSampler(shuffle=True)", shuffle.certainty)
        # `samplers.py`: the shard is taken first, and shuffled then.
        return no_order("IndexSampler shards before it shuffles; with one process it is grain")

    def pipeline(self, call: Call) -> Finding | None:
        of, end = tables.family(call.path) or "", call.value.value if call.value else None
        if not isinstance(end, Call):
            return None
        stages = chain(end)[::-1]
        calls, origin = [it for it, _ in stages], self.origins.of(Known(end))
        # One method of something unknown is as likely a model or a table.
        if len(stages) < 2 and not origin.path:
            return None
        facts = self.phase(call, origin) + origin.told + [fact_of_stage(*it) for it in stages]
        facts += batching(calls, origin)
        maps = [it.first for it in calls if last(it.path) == "map" and it.given]
        shape = next(filter(None, map(self.shape_of_function, reversed(maps))), [])
        facts += with_batch(shape, facts)
        return finding("pipeline", of, call, *facts, order_of_pipeline(of, calls, origin))

    def shape_of_function(self, known: Known) -> list[Fact]:
        """What comes out of a function of `Dataset.map`, which may be wrapped in `partial`."""
        if isinstance(known.value, Call) and known.value.path == "functools.partial":
            return self.shape_of_function(known.value.first)
        is_own = isinstance(known.value, Definition)
        sample = Sample(self.functions.get(known.value.node, [])) if is_own else Sample([])
        return sample.facts if sample.is_sized else []


def with_batch(shape: list[Fact], facts: list[Fact]) -> list[Fact]:
    """The shape of a sample, with the bytes of a decoded batch: `S_b` in DeepMemoryDL, 3.3.2."""
    batch = next((it for it in facts if it.name == "batch_size"), None)
    sample = next((it for it in shape if it.name == "sample_bytes"), None)
    if not batch or not sample or batch.of(int) is None or sample.of(int) is None:
        return shape
    size, worse = batch.value * sample.value, batch if batch.certainty > sample.certainty else sample
    return [*shape, Fact("batch_bytes", size, f"{size} B", worse.certainty, worse.why)]


def order_of_pipeline(of: str, calls: list[Call], origin: Origin) -> Fact:
    methods = [last(it.path) for it in calls]
    shuffle = next((it for it in calls if last(it.path) == "shuffle"), None)
    seed = shuffle.argument("seed", 1) if shuffle else None
    # Whether the files come in another order in each run.
    made = origin.made
    listed = made and made.path.endswith((".list_files", "image_dataset_from_directory"))
    flag = made.argument("shuffle", 1) if made and listed else Known(False)
    if of in OWN_ORDERS:
        return no_order(OWN_ORDERS[of])
    if of == "datasets.Dataset" and shuffle:
        return no_order("datasets permutes by itself; give the loader's order instead")
    if of == "datasets.Dataset":
        return order("sequential", "no shuffle before the loader", LIKELY)
    if of == "grain.MapDataset":
        return order("grain", "MapDataset.shuffle") if shuffle else order("sequential", "no shuffle")
    if "interleave" in methods:
        alone = "files are interleaved; tierfeed reads them one after the other"
        before = "samples are interleaved from files before they are shuffled"
        return no_order(before if shuffle else alone)
    if shuffle and "shard" in methods and methods.index("shuffle") > methods.index("shard"):
        return no_order("the dataset is sharded before it is shuffled")
    if flag is None or flag.of(bool) is not False:
        return no_order("the list of files is shuffled" + (" before the samples are" if shuffle else ""))
    if shuffle is None:
        return order("sequential", "no shuffle", LIKELY)
    is_seeded = seed and seed.value is not None
    unseeded = no_order("shuffle without a seed: no run is like another")
    return order("tf-shuffle", "shuffle with a seed") if is_seeded else unseeded


def fact_of_stage(call: Call, is_always: bool) -> Fact:
    texts, worst = [], Known(None)
    names: Any = dict(enumerate(tables.PLACES.get(call.path, "").split()))
    for key, (node, known) in call.given.items():
        name = key if isinstance(key, str) else names.get(key)
        text = shown(known, call.step.source(node) if node else "?")
        # A function is what it is, even where it is not followed.
        is_function = name in (None, "map_func", "collation_fn")
        worst = known if known.certainty > worst.certainty and not is_function else worst
        texts.append(f"{name}={text}" if name else text)
    text = f"{last(call.path)}({', '.join(texts)}){'' if is_always else ' in some branches'}"
    why = f"{call.place}: {worst.why}" if worst.why else call.place
    return Fact("step", text, text, worst.certainty, why)


def batching(calls: list[Call], origin: Origin) -> list[Fact]:
    """What the steps say of batches."""
    batches = [it for it in calls if last(it.path) in BATCHES]
    made = batches[-1] if batches else origin.made
    facts: list[Fact] = []
    for name, own, place in (("batch_size", "batch_size", 0), ("batch_size", "batchsize", 0),
                             ("drop_last", "drop_remainder", 1)):  # fmt: skip
        given = made.find(own, place if batches else None) if made else None
        if made and given and given.node and not any(it.name == name for it in facts):
            facts.append(fact_of(name, given.known, made.step.source(given.node)))
    for shuffle in [it for it in calls if last(it.path) == "shuffle"][:1]:
        is_tf = shuffle.path.startswith("tensorflow.")
        names = "buffer_size@0 seed@1 reshuffle_each_iteration@2" if is_tf else "seed"
        facts += facts_of(tables.parameters(names), shuffle)
    return facts if made else []


def chain(end: Call) -> list[tuple[Call, bool]]:
    """Goes back from the last step to the first; where branches meet, along the longest.

    With each step, whether every way to the end goes through it.
    """
    stages: list[tuple[Call, bool]] = []
    call, skipped = end, 0
    while len(stages) < STEPS_MAX and tables.is_step(call.path):
        if call.on is None or isinstance(call.on.value, Symbol):
            break
        stages.append((call, skipped <= 0))
        before = call.on.calls
        if not before:
            break
        lengths = [length(it) for it in before]
        # What the shortest way does not go through may be left out.
        skipped = max(lengths) - min(lengths) or skipped - 1
        call = max(reversed(before), key=length)
    return stages


def length(call: Call | None) -> int:
    """Steps up to this one."""
    count = -1
    while call and count < STEPS_MAX:
        call = next(iter(call.on.calls), None) if call.on else None
        count += 1
    return count


def phase_around(call: Call) -> tuple[str | None, str]:
    """The phase that the surroundings of a call speak of, and what says so."""
    words = [f"assigned to `{call.step.target}`"] if call.step.target else []
    for caller in call.step.callers:
        words += [f"assigned to `{caller.target}`"] if caller.target else []
        words += [f"called in `{caller.around}`"] if caller.around else []
    words += [f"in `{call.step.around}`"] if call.step.around else []
    found = ((tables.phase_of_name(it), it) for it in words)
    return next((it for it in found if it[0]), (None, ""))
