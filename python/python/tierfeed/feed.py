"""The feed of one rank: batches in the order of the job, from the agent while there is one.

A batch that is ready is handed out by `BatchIterator` in native code. Every other one takes the slow
path, `Feed.wait_or_read`. Both find the requests in one table, `AgentConnection.requests`.
What it shares with the feed of TensorFlow, such as its patience, stands in the crate `client`.

The rules:

1. The order never changes and no batch is skipped or repeated, also when the agent dies.
2. A batch that the agent has no room for is read directly. While training keeps as many batches as
   the agent stages, further ones are handed out as copies, so that staging goes on: nothing waits for
   a batch that is never given back.
3. When the agent is gone, what it had handed over is delivered and the rest of the epoch is read
   directly; the next epoch tries the agent once more. At the end of an epoch a warning says how much of
   it was read directly, and why.
4. A feed is iterated once at a time: a batch is handed out once, so two iterations would wait for each
   other's batches. The one that began first ends with an error.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tierfeed import embedded, environment, program
from tierfeed._native import (
    AgentConnection,
    Batch,
    Bug,
    ColdReader,
    Error,
    Gone,
    Order,
    Patience,
    Pipeline,
    Reconfigure,
    Refused,
    Retry,
    Tallies,
    TurnedAway,
    direct_reads_warning,
)
from tierfeed.arguments import own_arguments, refuse_unknown
from tierfeed.batches import Batches, EpochStep
from tierfeed.identity import refuse
from tierfeed.referrers import referrer_of
from tierfeed.skipped import Skipped, SkippedSamples, warn_of_skipped

if TYPE_CHECKING:
    from tierfeed.embedded import EmbeddedAgent

Window = Callable[[EpochStep], Iterable[EpochStep]]
"""The batches after one, as many as are worth requesting."""

_feeds: weakref.WeakSet[Feed] = weakref.WeakSet()


def connect(
    source: str | os.PathLike[str] | None = None,
    *,
    socket: str | None = None,
    rank: int | None = None,
    job: str | None = None,
    index: str | None = None,
    dataset: str | None = None,
    **keys: Any,
) -> Feed:
    """Connects to this node's agent, or falls back to reading the cold store directly.

    With a `source`, a path or a URL of a dataset, the process needs no `tierfeed run`: an agent is
    started beside the first rank of each node, found by the others, and ends with the last. `keys` are
    those of a job file (docs/job-file.md); the keys below `dataset` and `order` are arguments of their
    own. The ranks are those of the launcher. A feed of one of its `datasets` finds the agent that this
    process has started.

    Without, an argument that is not given comes from the environment: `TIERFEED_SOCK` of `tierfeed run`
    and `tierfeed exec`, the rank of the launcher (docs/launch.md), and for the fallback `TIERFEED_JOB`
    (the job file) and `TIERFEED_INDEX` (its dataset index, as `tierfeed index` writes it). Without an
    agent the job file, and the samples of a bucket, are read by the program that `TIERFEED_EXE` names,
    else by the `tierfeed` in `PATH`.

    `dataset` names one of the `datasets` of the job, such as that of a validation; without it the feed
    is of the job's first one. Beside a `source` in HDF5 files it is the path of the dataset in each
    file. Epochs, steps and samples of a feed are those of its dataset.

    Raises `IdentityError` if this process is none of the ranks of the job, or another process reads for
    its rank; `Gone` if there is neither an agent nor a job file; and `Reconfigure` if the job is wrong,
    or its index or the program is missing.
    """
    if source is not None:
        if (socket, rank, job) != (None, None, None):
            raise TypeError(
                "a source starts an agent of its own: it takes no socket=, rank= or job=; the launcher"
                " gives the rank"
            )
        given = {key: it for key, it in [("index", index), ("dataset", dataset)] if it is not None}
        return embedded_feed(source, {**keys, **given})
    refuse_unknown(keys, own_arguments(connect), of="connect")
    socket = environment.socket() if socket is None else socket
    job = environment.job() if job is None else job
    started = None if dataset is None else embedded.running(dataset)
    if started is not None and (socket, job) == (None, None):
        return _feed_of(started, dataset)
    return Feed(
        socket=socket,
        launched=environment.launched(rank),
        job=job,
        index=environment.index() if index is None else index,
        dataset=dataset,
    )


def embedded_feed(source: str | os.PathLike[str], keys: Mapping[str, Any]) -> Feed:
    """The feed of a rank that starts its agent itself."""
    dataset, further = keys.get("dataset"), keys.get("datasets")
    if isinstance(dataset, str) and isinstance(further, Mapping) and dataset in further:
        raise TypeError(
            f"{dataset!r} is one of the datasets beside the source: name it alone in a call after"
            f" this one, dataset={dataset!r}"
        )
    return _feed_of(embedded.start(source, keys), None)


def _feed_of(agent: EmbeddedAgent, dataset: str | None) -> Feed:
    return Feed(
        socket=agent.socket,
        launched=environment.launched(),
        job=agent.job,
        index=agent.index,
        embedded=agent,
        dataset=dataset,
    )


class Feed:
    """The batches of one rank, of one dataset of its job.

    May be forked and pickled: each process connects for itself when it first needs to. One thread at
    a time may take batches; batches themselves may go anywhere.

    A batch stays with the process that took it. A forked child may read it until the parent gives it
    back; then the next batch is written to the same memory, and the child sees its bytes change. Copy
    before the fork what the child keeps.

    docs/python.md has the methods for users, and names those for the loaders of this package.
    """

    def __init__(
        self,
        *,
        socket: str | None,
        launched: dict[str, str],
        job: str | None = None,
        index: str | None = None,
        trainer: int | None = None,
        rank: int = 0,
        briefing: str | None = None,
        published: dict[int, list[int]] | None = None,
        embedded: EmbeddedAgent | None = None,
        dataset: str | None = None,
    ) -> None:
        self._socket = socket
        self._dataset = dataset
        # The agent lasts as long as this feed; a copy in another process does not hold it.
        self._embedded = embedded
        self._launched = launched
        # The process that trains: workers read for it, and are no ranks of their own.
        self._trainer = os.getpid() if trainer is None else trainer
        # Not valid before an agent or the job has confirmed it; a pickled copy gets a valid one.
        self._rank = rank
        self._job = job
        self._index = index
        # From an agent: enough to read without it, also in children and copies.
        self._briefing = briefing
        # From the job file, if no agent has sent one. It does not confirm the rank of this process.
        self._job_briefing: str | None = None
        # What this rank published, until the feed is attached: a worker process reads by it too.
        self._unattached_orders = published or {}
        self._skipped = SkippedSamples()
        # The iteration that began last.
        self._iteration: weakref.ref[Batches] | None = None
        self._lease_copyouts = 0
        self._patience = Patience()
        self._tallies = Tallies()
        # The epoch that was begun last in this process.
        self._epoch_begun: int | None = None
        self._was_warned = False
        self.direct_reads = 0
        """Batches that the agent did not deliver."""
        # Whether most batches of the epoch that ended last were read directly.
        self._reads_alone = False
        # Why the last batch was that the agent did not deliver.
        self._why_direct = ""
        self._pid: int | None = None
        self._agent: AgentConnection | None = None
        # Whether `_agent` was given up. What it had put into the ring is still delivered.
        self._is_lost = False
        # Whether a device holds the staging memory: the agent then leaves its pages where they are.
        self._is_pinned = False
        self._reader: ColdReader | None = None
        self._order: Order | None = None
        _feeds.add(self)
        self._attach()

    @property
    def rank(self) -> int:
        """The rank that this feed reads for."""
        return self._rank

    @property
    def dataset(self) -> str | None:
        """The name of the dataset below `datasets` of the job; None for the job's first one."""
        return self._dataset

    @property
    def is_embedded(self) -> bool:
        """Whether this process started its agent itself."""
        return self._embedded is not None

    @property
    def mode(self) -> str:
        """`"agent"` or `"direct"`: where batches come from. Also `"direct"` if there is an agent and
        most batches of the last epoch were read directly all the same."""
        return "direct" if self.agent() is None or self._reads_alone else "agent"

    @property
    def order(self) -> Order:
        """Which samples are read when; also the sizes of epoch, batch and world."""
        self._attach()
        assert self._order is not None, "an attached feed has an order"
        return self._order

    @property
    def samples(self) -> int:
        """Samples in the dataset."""
        return self.order.samples

    @property
    def epochs(self) -> int:
        """Epochs of the job."""
        return self.order.epochs

    @property
    def batch_size(self) -> int:
        """Samples per batch; the last one of an epoch may be shorter."""
        return self.order.batch_size

    @property
    def steps_per_epoch(self) -> int:
        """Batches per epoch."""
        return self.order.steps_per_epoch

    @property
    def world(self) -> int:
        """Ranks of the job."""
        return self.order.world

    @property
    def fingerprint(self) -> str:
        """Identifies the dataset, 16 hexadecimal digits."""
        return f"{self._brief()['fingerprint']:016x}"

    @property
    def class_names(self) -> list[str]:
        """The names of the classes in the order of their labels; empty if the dataset has none."""
        return self._cold_reader().class_names

    @property
    def on_error(self) -> str:
        """`"fail"` or `"skip"`: what the job says about a sample that cannot be read or decoded."""
        return "fail" if self._brief()["on_error"] == "fail" else "skip"

    @property
    def faults(self) -> int:
        """Samples that were left out because they could not be read or decoded (`on_error: skip`)."""
        return self._skipped.count

    @property
    def skipped(self) -> list[Skipped]:
        """The first 10,000 of them, with their files, in this process."""
        return list(self._skipped.listed)

    @property
    def transform(self) -> Pipeline | None:
        """What the samples become before they are handed out; None if they come as they are stored."""
        steps = self._brief().get("transform")
        return None if steps is None else Pipeline.parse(json.dumps(steps))

    def file_of(self, sample: int) -> str:
        """The file that holds a sample, as messages call it."""
        return self._cold_reader().object(sample)

    @property
    def lease_copyouts(self) -> int:
        """Batches in memory of this process, because training keeps as many as the agent stages."""
        return self._lease_copyouts

    def __iter__(self) -> Batches:
        """All batches of all epochs; the agent works ahead over the ends of epochs."""
        return Batches(self, (0, 0), self.epochs)

    def epoch(self, epoch: int, start_step: int = 0) -> Batches:
        """The batches of one epoch from `start_step` on.

        The agent stages the epochs of the job; one beyond them, which has the order that it would have
        if the job had more, is read directly.
        """
        if epoch < 0:
            raise IndexError(f"epoch {epoch}; epochs count from 0")
        steps = self.order.steps_in(epoch, self._rank)
        if not 0 <= start_step <= steps:
            raise IndexError(f"step {start_step}; epoch {epoch} has {steps}, from 0")
        epoch = self._due_epoch(epoch)
        return Batches(self, (epoch, start_step), epoch + 1)

    def batch(self, epoch: int, step: int) -> Batch:
        """One batch, out of turn."""
        self.order.check(epoch, step, self._rank)
        return self.wait_or_read((epoch, step), (epoch, step), lambda _: ())

    def read(self, samples: Iterable[int], *, epoch: int = 0) -> Batch:
        """Any samples, read directly. The batch has the place (0, 0), which is not that of the samples.

        The report counts it as a batch of `epoch` that training read itself.
        """
        begin_ns = time.monotonic_ns()
        ids = [int(sample) for sample in samples]
        batch = self._cold_reader().read(0, 0, self._rank, ids, drawn_for=epoch)
        self._note_unreadable(batch, epoch)
        self._tallies.add_read(self._agent, epoch, batch, begin_ns, begin_ns)
        return batch

    def read_again(self, epoch: int, step: int) -> Batch:
        """A batch of an epoch, read directly to take the place of another one: its losses were said."""
        begin_ns = time.monotonic_ns()
        ids = self.order.batch(epoch, step, self._rank)
        batch = self._cold_reader().read(epoch, step, self._rank, ids)
        self._tallies.add_read(self._agent, epoch, batch, begin_ns, begin_ns)
        return batch

    def note_decoding(self, epoch: int, decoding_ns: int, threads: int) -> None:
        """Counts time for which training waited while samples were decoded, for the agent's report."""
        self._tallies.add_decoding(self._agent, epoch, decoding_ns, threads)

    def leave_out(self, sample: int, reason: str, epoch: int) -> None:
        """Counts a sample that training goes on without in an epoch, and warns of the first ones.

        Raises `SampleError` if they are more than the job says.
        """
        self._skipped.add(Skipped(sample, self.file_of(sample), reason))
        if said := self._cold_reader().leave_out(epoch, sample, reason):
            warn_of_skipped(said, stacklevel=3)

    def _note_unreadable(self, batch: Batch, epoch: int) -> None:
        if not batch.skipped:
            return
        # The table of a batch tells which samples are missing, not why.
        reasons = batch.skip_reasons or self._explained(batch.skipped)
        unknown = "unreadable" if self.transform is None else "unreadable or untransformable"
        for sample in batch.skipped:
            self.leave_out(sample, reasons.get(sample, unknown), epoch)

    def _explained(self, samples: list[int]) -> dict[int, str]:
        """Why the agent did not hand over samples, as far as it still knows and answers."""
        if self._agent is None or self._is_lost:
            return {}
        try:
            return self._agent.explain(samples)
        except Error:
            return {}

    def publish(self, epoch: int, samples: Iterable[int]) -> None:
        """Hands over what this rank will read in `epoch`, for a job with `shuffle: published`."""
        ids = [int(sample) for sample in samples]
        self.order.publish(epoch, self._rank, ids)
        agent = self.agent()
        if agent is not None and epoch < self.epochs:
            try:
                agent.publish(epoch, ids)
            except (Gone, Retry) as gone:
                self._give_up(gone)

    def pin(self) -> None:
        """Connects so that a device may hold the pages of the staging memory. Before the first batch."""
        is_connected = self._agent is not None and not self._is_lost
        if is_connected and not self._is_pinned:
            self._reset()
        self._is_pinned = True
        self._attach()

    def close(self) -> None:
        """Disconnects. Batches that are still held stay; a feed that is used again connects again.

        An agent that this process started ends, once all ranks of its node have closed their feeds.
        """
        self._reset()
        if self._embedded is not None:
            self._embedded.leave(self)

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        restore = functools.partial(
            Feed,
            socket=self._socket,
            launched=self._launched,
            job=self._job,
            index=self._index,
            trainer=self._trainer,
            rank=self._rank,
            briefing=self._briefing,
            published=self._published(),
            dataset=self._dataset,
        )
        return restore, ()

    def __repr__(self) -> str:
        of = "" if self._dataset is None else f" dataset={self._dataset!r}"
        return f"<tierfeed.Feed rank={self._rank}{of} socket={self._socket!r}>"

    def agent(self) -> AgentConnection | None:
        """The connection to the agent, while it answers."""
        self._attach()
        return None if self._is_lost else self._agent

    def access(self) -> dict[str, Any]:
        """What another reader of this rank in this process needs: how to reach the agent, the briefing,
        and the program that reads buckets."""
        self._attach()
        return {
            "socket": self._socket,
            "variables": self._launched,
            "trainer": self._trainer,
            "briefing": json.loads(self._briefing_here()),
            "exe": program.executable(),
            "dataset": self._dataset,
        }

    def begin_epoch(self, epoch: int) -> None:
        """Forgets what was published for earlier epochs; tries once to connect to a lost agent again."""
        self.order.forget_before(epoch)
        self._epoch_begun = epoch
        if self.agent() is None and self._socket is not None:
            gone = self._connect()
            self._why_direct = self._why_direct if gone is None else str(gone)
            if gone is not None and self._embedded is not None:
                self._embedded.start_again()

    def end_epoch(self, epoch: int, batches: int, direct: int) -> None:
        """So many batches of an epoch were handed out, of which this process read some directly. Says
        so, if there should be an agent."""
        if batches == 0:
            return
        self._reads_alone = 2 * direct > batches
        self._skipped.end_epoch(epoch)
        # Of epochs that the job does not have it is said before.
        is_told = self._socket is not None and epoch < self.epochs
        if is_told and (said := direct_reads_warning(epoch, batches, direct, self._why_direct)):
            warnings.warn(f"tierfeed: {said}", RuntimeWarning, stacklevel=2)

    def training_epoch(self) -> int:
        """The epoch that the first dataset of the job is read in, by this process."""
        return max(self.order.start[0], *(feed._epoch_begun or 0 for feed in self._beside()), 0)

    def _due_epoch(self, epoch: int) -> int:
        """`epoch`, or if the job does not read the dataset in it, another one with the same batches, if
        there is one: the next in which it is read, or the last."""
        order = self.order
        if order.shuffle != "sequential":
            return epoch
        due = epoch + order.every - 1 - epoch % order.every
        if due >= order.epochs:
            due = order.epochs // order.every * order.every - 1
        is_same = order.steps_in(due, self._rank) == order.steps_in(epoch, self._rank)
        return due if is_same else epoch

    def _beside(self) -> list[Feed]:
        """The feeds of this process for the first dataset of the same job."""
        place = (self._socket, self._job)
        return [it for it in _feeds if it._dataset is None and (it._socket, it._job) == place]

    def begin_iteration(self, batches: Batches) -> None:
        """From now on only `batches` takes batches in turn."""
        earlier = None if self._iteration is None else self._iteration()
        if earlier is not None and earlier is not batches:
            earlier.left()
        self._iteration = weakref.ref(batches)

    def wait_or_read(self, place: EpochStep, following: EpochStep, window: Window) -> Batch:
        """The batch at `place`: from the agent when it has come, else read directly.

        The slow path, for every batch that `BatchIterator` does not hand out. `window(place)` is
        requested too, unless `place` and `following` are requested already.
        """
        self._attach()
        asked_ns = time.monotonic_ns()
        answer = None
        if (agent := self._agent) is not None:
            try:
                answer = self._answer(agent, place, following, window)
            except Gone as gone:
                self._give_up(gone)
        answered_ns = time.monotonic_ns()
        if isinstance(answer, Batch):
            batch = answer
            skipped = batch.delivered(asked_ns, answered_ns)
        else:
            if agent is not None and place[0] < self.epochs:
                self._why_direct = _why(answer, self._is_lost) or self._why_direct
            self.direct_reads += 1
            batch = self._read_directly(place, answer)
            skipped = len(batch.skipped)
            # Also sent to an agent that was given up: it may still count.
            self._tallies.add_read(self._agent, place[0], batch, asked_ns, answered_ns)
        if skipped:
            self._note_unreadable(batch, place[0])
        if (
            agent is not None
            and not self._is_lost
            and (agent.is_exhausted or _has_no_room(answer))
        ):
            self._copy_out(agent, batch)
        return batch

    def is_answered(self, place: EpochStep, following: EpochStep, window: Window) -> bool:
        """Requests as `wait_or_read` does, and returns whether the answer for `place` is there."""
        agent = self.agent()
        if agent is None:
            return False
        self._request(agent, place, following, window)
        try:
            while agent.requests.is_in_flight(place):
                if not agent.receive(0.0):
                    return False
        except Gone:
            # The next call of `wait_or_read` gives the agent up.
            return False
        return place in agent.requests

    def _answer(
        self, agent: AgentConnection, place: EpochStep, following: EpochStep, window: Window
    ) -> Batch | Refused | None:
        """The answer for `place`; None if it cannot be requested now, or waits for a batch held here.

        Raises `Gone` when nothing more will come. What the agent had put into the ring before it died
        is still delivered, by this call or a later one.
        """
        requests = agent.requests
        gone = self._request(agent, place, following, window)
        while requests.is_in_flight(place):
            holds_all, holds_later = agent.holds_all, bool(requests.answered)
            limit_s = self._patience.limit_s(holds_all=holds_all, holds_later=holds_later)
            if agent.receive(0.0 if self._is_lost else limit_s):
                continue
            then = "read"
            if not self._is_lost:
                then = self._patience.after(holds_all=holds_all, holds_later=holds_later)
            if then == "give-back-later":
                requests.keep_only([place])
            elif then == "read":
                requests.abandon(place)
                return None
            elif not self._waits_for_store(place):
                requests.abandon(place)
                agent.note_silence()
                raise Gone(f"the agent gave no answer for {limit_s:.0f} s")
        answer = requests.take(place)
        if answer is None and gone is not None and not requests.in_flight:
            raise gone
        return answer

    def _waits_for_store(self, place: EpochStep) -> bool:
        """Whether the agent says what keeps it from reading a batch: then it does not hang."""
        return bool(self._explained(self.order.batch(*place, self._rank)))

    def _request(
        self, agent: AgentConnection, place: EpochStep, following: EpochStep, window: Window
    ) -> Gone | None:
        """Requests `place` and its window, unless `place` and `following` are requested already.

        The agent stages ahead by itself; requests ahead only hide the round trip. So they are made for
        several batches at a time, and most batches are taken without waking the agent.

        Returns the error of an agent that is gone; what it had put into the ring still comes.
        """
        if self._is_lost or (place in agent.requests and following in agent.requests):
            return None
        try:
            agent.request([place, *window(place)])
        except Gone as gone:
            return gone
        return None

    def _copy_out(self, agent: AgentConnection, batch: Batch) -> None:
        """Moves a batch out of the agent's memory, because training does not give the others back."""
        batch.detach()
        self._lease_copyouts += 1
        if self._lease_copyouts == 1 and (oldest := agent.oldest_lease) is not None:
            warnings.warn(
                f"tierfeed: training keeps {agent.leases} batches that it should give back; from"
                f" here on it gets copies. The oldest is kept by {referrer_of(*oldest)}. Let batches go,"
                " or copy what you keep.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _read_directly(self, place: EpochStep, refused: Refused | None) -> Batch:
        epoch, step = place
        if refused is not None:
            self._raise_if_final(place, refused)
        ids = self.order.batch(epoch, step, self._rank)
        return self._cold_reader().read(epoch, step, self._rank, ids)

    def _raise_if_final(self, place: EpochStep, refused: Refused) -> None:
        """Raises an error for a refusal that reading directly does not help against.

        An epoch that was not published is an error of reading directly, too.
        """
        if (sample := refused.final_sample) is not None:
            assert refused.fault is not None
            if why := self._explained([sample]).get(sample):
                raise self._cold_reader().sample_error(sample, refused.fault, why)
        elif refused.reason == "too-many-skipped":
            assert refused.sample is not None and refused.fault is not None
            why = self._explained([refused.sample]).get(refused.sample)
            message = str(refused) if why is None else f"{refused} ({why})"
            raise self._cold_reader().sample_error(refused.sample, refused.fault, message)
        elif refused.reason == "not-in-order":
            where = f"epoch {place[0]}, step {place[1]}, rank {self._rank}"
            raise Bug(f"agent and client disagree about the order at {where}: {refused}")

    def _attach(self) -> None:
        """In a process that is new to this feed: connects, or opens what is needed to read directly."""
        if self._pid == os.getpid():
            return
        self._reset()
        if self._embedded is not None:
            self._embedded.use(self)
        gone = self._connect() if self._socket is not None else None
        if self._order is None:
            self._open_without_agent(gone)
        self._pid = os.getpid()
        orders, self._unattached_orders = self._unattached_orders, {}
        for epoch, samples in orders.items():
            self.publish(epoch, samples)

    def _reset(self) -> None:
        self._unattached_orders = self._published()
        self._pid = self._agent = self._reader = self._order = None
        self._is_lost = False

    def _published(self) -> dict[int, list[int]]:
        if self._order is None:
            return self._unattached_orders
        return self._order.published(self._rank)

    def _connect(self) -> Gone | None:
        """Tries once to connect, if that is due. An agent with another order than before runs another
        job."""
        assert self._socket is not None
        role = _role_here()
        pinned = self._is_pinned and role == "trainer"
        given = (self._launched, role, self._trainer, self._dataset)
        try:
            agent = AgentConnection.connect(self._socket, *given, pinned=pinned)
        except Gone as gone:
            return gone
        except TurnedAway as reason:
            if self._briefing is None:
                refuse(str(reason))
            # An agent accepted this process before, so it is a rank of the job, and may read directly.
            return Gone(str(reason))
        except Reconfigure as reason:
            if self._order is None:
                raise
            return Gone(f"the agent at this socket runs another job: {reason}")
        if self._order is None:
            self._order = agent.order
        elif self._order != agent.order:
            return Gone("the agent at this socket runs another job")
        try:
            for epoch, samples in self._order.published(self._rank).items():
                if epoch < self._order.epochs:
                    agent.publish(epoch, samples)
        except (Gone, Retry) as gone:
            return Gone(str(gone))
        self._rank = agent.rank
        self._briefing = agent.briefing
        self._agent, self._is_lost = agent, False
        self._tallies.hand_over(agent)
        return None

    def _open_without_agent(self, gone: Gone | None) -> None:
        if self._briefing is None and self._job is None:
            raise gone or Gone(program.how_to_start())
        why = f"reading the cold store directly: {gone or 'TIERFEED_SOCK is not set'}"
        if self._briefing is None:
            self._job_briefing = self._read_job(why)
            self._rank = int(json.loads(self._job_briefing)["rank"])
        self._warn(why)
        self._order, self._reader = self._open()

    def _read_job(self, why: str) -> str:
        """The briefing of the job file, for a process that no agent has accepted yet."""
        assert self._job is not None, "an unattached feed was refused"
        try:
            return program.briefing(self._job, self._index, self._launched)
        except TurnedAway as reason:
            refuse(str(reason))
        except Reconfigure:
            self._warn(why)
            raise

    def _open(self) -> tuple[Order, ColdReader]:
        return ColdReader.of_briefing(self._briefing_here(), program.executable(), self._dataset)

    def _briefing_here(self) -> str:
        briefing = self._job_briefing if self._briefing is None else self._briefing
        assert briefing is not None, "an agent or the job was asked before"
        return briefing

    def _brief(self) -> dict[str, Any]:
        """What the briefing says of the job, and of the dataset."""
        self._attach()
        briefing: dict[str, Any] = json.loads(self._briefing_here())
        if self._dataset is None:
            return briefing
        (own,) = (it for it in briefing["further"] if it["name"] == self._dataset)
        return {**briefing, "transform": None, **own}

    def _cold_reader(self) -> ColdReader:
        self._attach()
        if self._reader is None:
            _, self._reader = self._open()
        return self._reader

    def _give_up(self, gone: Gone | Retry) -> None:
        self._is_lost = True
        self._why_direct = str(gone)
        is_coming = self._embedded is not None and self._embedded.start_again()
        again = "; tierfeed tries to start it again" if is_coming else ""
        self._warn(f"reading the rest of the epoch directly: {gone}{again}")

    def _warn(self, message: str) -> None:
        if not self._was_warned:
            self._was_warned = True
            warnings.warn(f"tierfeed: {message}", RuntimeWarning, stacklevel=2)

    def _forget_parent(self) -> None:
        """In a forked child: closes what the parent had open, without a message to the agent."""
        self._tallies.forget()
        if self._agent is not None:
            self._agent.forget()
        self._reset()


def _role_here() -> str:
    """`worker` in a worker process of a `DataLoader`; else `trainer`: training itself waits."""
    torch = sys.modules.get("torch")
    is_worker = torch is not None and torch.utils.data.get_worker_info() is not None
    return "worker" if is_worker else "trainer"


def _why(answer: Refused | None, is_lost: bool) -> str:
    """Why the agent does not deliver a batch, in words; nothing if that is known already."""
    if is_lost:
        return ""
    if answer is not None:
        return f"the agent refused the last of them: {answer}"
    return "training keeps as many batches as the agent stages"


def _has_no_room(answer: Batch | Refused | None) -> bool:
    return answer is not None and not isinstance(answer, Batch) and answer.reason == "no-room"


def _forget_parents() -> None:
    for feed in list(_feeds):
        feed._forget_parent()


os.register_at_fork(after_in_child=_forget_parents)
