"""The feed of one rank: batches in the order of the job, from the agent while there is one.

The rules:

1. The order never changes and no batch is skipped or repeated, whatever happens to the agent.
2. A batch that the agent has no room for is read directly. While training keeps as many batches as
   the agent stages, further ones are handed out as copies, so that staging goes on: nothing waits for
   a batch that is never given back.
3. When the agent is gone, what it had handed over is delivered and the rest of the epoch is read
   directly; the next epoch tries the agent once more.
4. A feed is iterated once at a time: a batch is handed out once, so two iterations would wait for each
   other's batches. The one that began first ends with an error.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
import warnings
import weakref
from collections.abc import Iterable

from tierfeed import environment, program
from tierfeed._native import (
    Batch,
    Bug,
    Error,
    Gone,
    Link,
    Local,
    Order,
    Reconfigure,
    Refused,
    SampleError,
    TurnedAway,
)
from tierfeed.batches import Batches
from tierfeed.holder import holder_of
from tierfeed.identity import refuse
from tierfeed.skipped import SKIPPED_MAX, Skipped
from tierfeed.stream import Place, Stream, Window, no_window
from tierfeed.tallies import Tallies, Tally

# An agent that lives answers every request, with a batch or a refusal, as soon as the cold store lets
# it. One that is silent for so long hangs, and is given up as if it were gone.
PATIENCE_S = 60.0

_feeds: weakref.WeakSet[Feed] = weakref.WeakSet()


def connect(
    *,
    socket: str | None = None,
    rank: int | None = None,
    job: str | None = None,
    index: str | None = None,
) -> Feed:
    """Connects to this node's agent, or falls back to reading the cold store directly.

    What is not given comes from the environment: `TIERFEED_SOCK` of `tierfeed run` and `tierfeed exec`,
    the rank of the launcher (docs/launch.md), and for the fallback `TIERFEED_JOB` (the job file)
    and `TIERFEED_INDEX` (its dataset index, as `tierfeed index` writes it). Without an agent the job
    file, and the samples of a bucket, are read by the program that `TIERFEED_EXE` names, else by the
    `tierfeed` in `PATH`.

    Raises `IdentityError` if this process is none of the ranks of the job, or another process reads for
    its rank; `Gone` if there is neither an agent nor a job file; and `Reconfigure` if the job is wrong,
    or its index or the program is missing.
    """
    return Feed(
        socket=environment.socket() if socket is None else socket,
        launched=environment.launched(rank),
        job=environment.job() if job is None else job,
        index=environment.index() if index is None else index,
    )


class Feed:
    """The batches of one rank.

    May be forked and pickled: each process connects for itself when it first needs to. One thread at
    a time may take batches; batches themselves may go anywhere.

    A batch stays with the process that took it. A forked child may read it until the parent gives it
    back; then the next batch is written to the same memory, and the child sees its bytes change. Copy
    before the fork what the child keeps.
    """

    def __init__(
        self,
        *,
        socket: str | None,
        launched: dict[str, str],
        job: str | None = None,
        index: str | None = None,
        role: str = "trainer",
        trainer: int | None = None,
        rank: int = 0,
        briefing: str | None = None,
        published: dict[int, list[int]] | None = None,
    ) -> None:
        self._socket = socket
        self._launched = launched
        # The process that trains: workers read for it, and are no ranks of their own.
        self._trainer = os.getpid() if trainer is None else trainer
        # Of no meaning before an agent or the job said that it is right; a copy was told before.
        self._rank = rank
        self._job = job
        self._index = index
        self._role = role
        # What an agent said once is enough to go on without it, in children and copies too.
        self._briefing = briefing
        # What the job file says where no agent has said anything yet: no leave to read for this rank.
        self._of_job: str | None = None
        # Likewise what this rank published: a worker process reads by it too.
        self._kept = published or {}
        self._faults = 0
        self._skipped: list[Skipped] = []
        # The iteration that began last.
        self._iteration: weakref.ref[Batches] | None = None
        self._lease_copyouts = 0
        self._tallies = Tallies()
        self._was_warned = False
        self._pid: int | None = None
        self._stream: Stream | None = None
        self._local: Local | None = None
        self._order: Order | None = None
        _feeds.add(self)
        self._attach()

    @property
    def rank(self) -> int:
        """The rank that this feed reads for."""
        return self._rank

    @property
    def mode(self) -> str:
        """`"agent"` or `"direct"`: where the next batch will come from."""
        return "direct" if self.stream() is None else "agent"

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
        """Tells the dataset from any other, 16 hexadecimal digits."""
        stream = self.stream()
        number = self._store().fingerprint if stream is None else stream.link.fingerprint
        return f"{number:016x}"

    @property
    def on_error(self) -> str:
        """`"fail"` or `"skip"`: what the job says about a sample that cannot be read or decoded."""
        stream = self.stream()
        return self._store().on_error if stream is None else stream.link.on_error

    @property
    def faults(self) -> int:
        """Samples that were left out because they could not be read or decoded (`on_error: skip`)."""
        return self._faults

    @property
    def skipped(self) -> list[Skipped]:
        """The first 10,000 of them, with their files, in this process."""
        return list(self._skipped)

    def file_of(self, sample: int) -> str:
        """The file that holds a sample, as messages call it."""
        return self._store().object(sample)

    @property
    def lease_copyouts(self) -> int:
        """Batches in memory of this process, because training keeps as many as the agent stages."""
        return self._lease_copyouts

    def __iter__(self) -> Batches:
        """All batches of all epochs; the agent works ahead over the ends of epochs."""
        return Batches(self, (0, 0), self.epochs)

    def epoch(self, epoch: int, start_step: int = 0) -> Batches:
        """The batches of one epoch from `start_step` on."""
        if not 0 <= epoch < self.epochs:
            raise IndexError(f"epoch {epoch}; the job has {self.epochs}, from 0")
        steps = self.order.steps_in(epoch, self._rank)
        if not 0 <= start_step <= steps:
            raise IndexError(f"step {start_step}; epoch {epoch} has {steps}, from 0")
        return Batches(self, (epoch, start_step), epoch + 1)

    def batch(self, epoch: int, step: int) -> Batch:
        """One batch, out of turn."""
        self.order.check(epoch, step, self._rank)
        return self.take((epoch, step), (epoch, step), no_window)

    def read(self, samples: Iterable[int], *, epoch: int = 0) -> Batch:
        """Any samples, read directly. The batch has the place (0, 0), which means nothing.

        The report counts it as a batch of `epoch` that training read itself.
        """
        begin_ns = time.monotonic_ns()
        batch = self._store().read(0, 0, self._rank, [int(sample) for sample in samples])
        self._note_unreadable(batch)
        self._note_read(epoch, batch, begin_ns, begin_ns)
        return batch

    def note_decoding(self, epoch: int, decoding_ns: int, threads: int) -> None:
        """Takes note that training waited so long while samples were decoded, for the agent's report."""
        self._tallies.add(self._link(), epoch, Tally(decoding_ns=decoding_ns, decode_threads=threads))

    def leave_out(self, sample: int, reason: str) -> None:
        """Notes that training goes on without a sample; the first one is said."""
        self._faults += 1
        if len(self._skipped) == SKIPPED_MAX:
            return
        try:
            name = self.file_of(sample)
        except Error as error:
            name = f"sample {sample} ({error})"
        self._skipped.append(Skipped(sample, name, reason))
        if len(self._skipped) == 1:
            warnings.warn(
                f"tierfeed: on_error is skip: sample {sample}, {name}, is left out ({reason});"
                " Feed.skipped lists this one and those that follow",
                RuntimeWarning,
                stacklevel=2,
            )

    def _note_unreadable(self, batch: Batch) -> None:
        for sample in batch.skipped:
            self.leave_out(sample, "unreadable")

    def publish(self, epoch: int, samples: Iterable[int]) -> None:
        """Hands over what this rank will read in `epoch`, for a job with `shuffle: published`."""
        ids = [int(sample) for sample in samples]
        self.order.publish(epoch, self._rank, ids)
        stream = self.stream()
        if stream is not None:
            try:
                stream.link.publish(epoch, ids)
            except Gone as gone:
                self._lose(stream, gone)

    def close(self) -> None:
        """Disconnects. Batches that are still held stay; a feed that is used again connects again."""
        self._reset()

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        place = (self._socket, self._launched, self._job, self._index, self._role, self._trainer)
        return _restore, (*place, self._rank, self._briefing, self._published())

    def __repr__(self) -> str:
        return f"<tierfeed.Feed rank={self._rank} socket={self._socket!r}>"

    def stream(self) -> Stream | None:
        """The connection, while there is one."""
        self._attach()
        stream = self._stream
        return stream if stream is not None and stream.alive else None

    def begin_epoch(self, epoch: int) -> None:
        """Forgets what was published before, and gives an agent that was lost one more chance."""
        self.order.forget_before(epoch)
        if self.stream() is None and self._socket is not None:
            self._connect()

    def begin_iteration(self, batches: Batches) -> None:
        """From now on only `batches` takes batches in turn."""
        earlier = None if self._iteration is None else self._iteration()
        if earlier is not None and earlier is not batches:
            earlier.end()
        self._iteration = weakref.ref(batches)

    def take(self, place: Place, following: Place, window: Window) -> Batch:
        """The batch at `place`, with requests for `following` and its `window` on their way.

        The way of every batch that was not there when it was wanted.
        """
        if self._pid != os.getpid():
            self._attach()
        asked_ns = time.monotonic_ns()
        answer = None
        if (stream := self._stream) is not None:
            stream.ask_ahead(place, following, window)
            try:
                answer = stream.take(place, PATIENCE_S)
            except Gone as gone:
                self._lose(stream, gone)
        answered_ns = time.monotonic_ns()
        if isinstance(answer, Batch):
            batch = answer
            skipped = batch.delivered(asked_ns, answered_ns)
        else:
            batch = self._read_directly(place, answer)
            skipped = len(batch.skipped)
            self._note_read(place[0], batch, asked_ns, answered_ns)
        if skipped:
            self._note_unreadable(batch)
        if stream is not None and stream.alive and (stream.is_exhausted or _has_no_room(answer)):
            self._copy_out(stream, batch)
        return batch

    def _copy_out(self, stream: Stream, batch: Batch) -> None:
        """Hands out a batch that takes no room of the agent, as the others never go back."""
        batch.detach()
        self._lease_copyouts += 1
        if self._lease_copyouts == 1 and (oldest := stream.link.oldest_lease) is not None:
            warnings.warn(
                f"tierfeed: training keeps {stream.link.leases} batches that it should give back; from"
                f" here on it gets copies. The oldest is kept by {holder_of(*oldest)}. Let batches go,"
                " or copy what you keep.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _note_read(self, epoch: int, batch: Batch, asked_ns: int, answered_ns: int) -> None:
        """A batch was read here, after no answer of an agent between the two times."""
        tally = Tally(
            batches=1,
            samples=len(batch),
            nbytes=batch.nbytes,
            skipped=len(batch.skipped),
            unanswered_ns=answered_ns - asked_ns,
            self_read_ns=time.monotonic_ns() - answered_ns,
        )
        self._tallies.add(self._link(), epoch, tally)

    def _link(self) -> Link | None:
        """The connection to an agent, also to one that does not answer: it may still count."""
        return None if self._stream is None else self._stream.link

    def _read_directly(self, place: Place, refused: Refused | None) -> Batch:
        epoch, step = place
        if refused is not None:
            self._raise_if_final(refused)
        ids = self.order.batch(epoch, step, self._rank)
        return self._store().read(epoch, step, self._rank, ids)

    def _raise_if_final(self, refused: Refused) -> None:
        """Reading directly helps against want of room, and says itself what was not published."""
        where = f"epoch {refused.epoch}, step {refused.step}, rank {self._rank}"
        match refused.reason:
            case "unreadable":
                assert refused.sample is not None and refused.fault is not None
                raise self._sample_error(refused.sample, refused.fault)
            case "not-in-order":
                raise Bug(f"agent and client disagree about the order at {where}: {refused}")

    def _sample_error(self, sample: int, fault: str) -> BaseException:
        """Why the agent could not read a sample, as the system says it where it says it here too."""
        store = self._store()
        try:
            store.read(0, 0, self._rank, [sample])
        except SampleError as error:
            return error
        except Error:
            pass
        return store.sample_error(sample, fault)

    def _attach(self) -> None:
        """In a process that is new to this feed: connects, or opens what is needed to do without."""
        if self._pid == os.getpid():
            return
        self._reset()
        gone = self._connect() if self._socket is not None else None
        if self._order is None:
            self._go_alone(gone)
        self._pid = os.getpid()
        kept, self._kept = self._kept, {}
        for epoch, samples in kept.items():
            self.publish(epoch, samples)

    def _reset(self) -> None:
        self._kept = self._published()
        self._pid = self._stream = self._local = self._order = None

    def _published(self) -> dict[int, list[int]]:
        return self._kept if self._order is None else self._order.published(self._rank)

    def _connect(self) -> Gone | None:
        """Tries the agent once. One that runs another order than before is none of ours."""
        assert self._socket is not None
        try:
            role = _role_here(self._role)
            link = Link.connect(self._socket, self._launched, role, self._trainer)
        except Gone as gone:
            return gone
        except TurnedAway as reason:
            if self._briefing is None:
                refuse(str(reason))
            # This process was let in before, so it is a rank of the job, and may go on alone as one.
            return Gone(str(reason))
        if self._order is None:
            self._order = link.order
        elif self._order != link.order:
            return Gone("the agent at this socket runs another job")
        try:
            for epoch, samples in self._order.published(self._rank).items():
                link.publish(epoch, samples)
        except Gone as gone:
            return gone
        self._rank = link.rank
        self._briefing = link.briefing
        self._stream = Stream(link)
        self._tallies.hand_over(link)
        return None

    def _go_alone(self, gone: Gone | None) -> None:
        if self._briefing is None and self._job is None:
            raise gone or Gone(_how_to_start())
        why = f"reading the cold store directly: {gone or 'TIERFEED_SOCK is not set'}"
        if self._briefing is None:
            self._of_job = self._ask_job(why)
            self._rank = int(json.loads(self._of_job)["rank"])
        self._warn(why)
        self._order, self._local = self._open()

    def _ask_job(self, why: str) -> str:
        """What the job file says to a process that no agent has let in."""
        assert self._job is not None, "an unattached feed was refused"
        try:
            return program.briefing(self._job, self._index, self._launched)
        except TurnedAway as reason:
            refuse(str(reason))
        except Reconfigure:
            self._warn(why)
            raise

    def _open(self) -> tuple[Order, Local]:
        briefing = self._of_job if self._briefing is None else self._briefing
        assert briefing is not None, "an agent or the job was asked before"
        return Local.of_briefing(briefing, program.executable())

    def _store(self) -> Local:
        self._attach()
        if self._local is None:
            _, self._local = self._open()
        return self._local

    def _lose(self, stream: Stream, gone: Gone) -> None:
        stream.alive = False
        self._warn(f"reading the rest of the epoch directly: {gone}")

    def _warn(self, message: str) -> None:
        if not self._was_warned:
            self._was_warned = True
            warnings.warn(f"tierfeed: {message}", RuntimeWarning, stacklevel=2)

    def _forget_parent(self) -> None:
        """In a forked child: closes what the parent had open, without a word to the agent."""
        self._tallies.forget()
        if self._stream is not None:
            self._stream.link.forget()
        self._reset()


def _how_to_start() -> str:
    command = shlex.join(["python", *sys.argv]) if sys.argv[0] else "python train.py"
    return (
        "this process was started without tierfeed. Start it with an agent:\n"
        f"    tierfeed run job.yaml -- {command}\n"
        "or beside an agent that runs on this node already:\n"
        f"    tierfeed exec -- {command}\n"
        "or without one, to read the dataset directly, at the speed of the cold store:\n"
        "    tierfeed index job.yaml\n"
        f"    TIERFEED_JOB=job.yaml TIERFEED_INDEX=dataset.tfx {command}"
    )


def _role_here(role: str) -> str:
    """What reads for a loader is a worker in a process of it; else training waits for it itself."""
    torch = sys.modules.get("torch")
    if role == "worker" and torch is not None and torch.utils.data.get_worker_info() is None:
        return "trainer"
    return role


def _has_no_room(answer: Batch | Refused | None) -> bool:
    return answer is not None and not isinstance(answer, Batch) and answer.reason == "no-room"


def _restore(
    socket: str | None,
    launched: dict[str, str],
    job: str | None,
    index: str | None,
    role: str,
    trainer: int,
    rank: int,
    briefing: str | None,
    published: dict[int, list[int]],
) -> Feed:
    return Feed(
        socket=socket,
        launched=launched,
        job=job,
        index=index,
        role=role,
        trainer=trainer,
        rank=rank,
        briefing=briefing,
        published=published,
    )


def _forget_parents() -> None:
    for feed in list(_feeds):
        feed._forget_parent()


os.register_at_fork(after_in_child=_forget_parents)
