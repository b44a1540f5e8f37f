"""The number of decode threads that the loader chooses: the rule without clocks, and a training."""

from __future__ import annotations

import dataclasses
import time

import pytest

import needs
import node
import tierfeed
from conftest import make_world
from tierfeed import decoding
from tierfeed.thread_tuning import BATCHES_PER_ROUND, ROUNDS_BARRED, ThreadTuning

SAMPLES = 32


@dataclasses.dataclass
class Played:
    """A training that is told how long everything takes, in seconds."""

    tuning: ThreadTuning
    computing_s: float
    sample_s: float
    lock: float = 0.0
    """The part of decoding that one thread does at a time: with 1 the others only wait."""

    def rounds(self, count: int) -> list[int]:
        """The threads after each of so many rounds."""
        return [self._round() for _ in range(count)]

    def _round(self) -> int:
        for _ in range(BATCHES_PER_ROUND):
            threads = self.tuning.threads
            # While one holds the lock all others wait for it, and their samples take as much longer.
            each_s = self.sample_s * max(1.0, self.lock * threads)
            busy_s = SAMPLES * each_s
            self.tuning.computed(self.computing_s)
            waited_s = max(0.0, busy_s / threads - self.computing_s)
            self.tuning.decoded(SAMPLES, busy_s=busy_s, waited_s=waited_s)
        return self.tuning.threads


def test_as_many_threads_decode_as_training_needs() -> None:
    # 32 x 5 ms a batch, in 40 ms: four.
    played = Played(ThreadTuning(16), computing_s=0.040, sample_s=0.005)
    assert played.rounds(20) == [2, 4] + [4] * 18


def test_a_training_that_needs_one_thread_keeps_one() -> None:
    played = Played(ThreadTuning(16), computing_s=0.200, sample_s=0.005)
    assert set(played.rounds(20)) == {1}


def test_no_more_threads_decode_than_are_allowed() -> None:
    played = Played(ThreadTuning(3), computing_s=0.001, sample_s=0.005)
    assert played.rounds(20)[2:] == [3] * 18


def test_threads_follow_when_samples_cost_more_or_less() -> None:
    played = Played(ThreadTuning(16), computing_s=0.040, sample_s=0.005)
    assert played.rounds(10)[-1] == 4
    played.sample_s = 0.010
    assert played.rounds(10)[-1] == 8
    played.sample_s = 0.002
    settled = played.rounds(20)[-1]
    assert settled in (2, 3), "two are enough, a third is kept where they are nearly all busy"


def test_threads_that_only_wait_for_each_other_are_given_up() -> None:
    played = Played(ThreadTuning(16), computing_s=0.040, sample_s=0.005, lock=1.0)
    tried = played.rounds(10 * ROUNDS_BARRED)
    assert set(tried) == {1, 2}
    assert tried.count(2) <= 11, "once in so many rounds"


def test_threads_that_wait_for_each_other_in_part_stop_where_more_gain_nothing() -> None:
    # A fourth of the work is done by one at a time: more than four gain nothing.
    played = Played(ThreadTuning(16), computing_s=0.001, sample_s=0.005, lock=0.25)
    tried = played.rounds(ROUNDS_BARRED)
    assert tried.count(4) > ROUNDS_BARRED - 5


def test_equal_times_give_equal_threads() -> None:
    one, other = (Played(ThreadTuning(9), computing_s=0.03, sample_s=0.007) for _ in range(2))
    assert one.rounds(50) == other.rounds(50)


@pytest.mark.parametrize("threads", ["fast", "4"])
def test_other_words_than_auto_are_refused(world, threads: str) -> None:
    from tierfeed.numpy import TierLoader

    with pytest.raises(ValueError, match="a number or 'auto' is meant"):
        TierLoader(world.direct(), decode=lambda _, label: label, decode_threads=threads)


def test_the_threads_are_no_more_than_the_processors_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass
    class Order:
        ranks_per_node: int

    @dataclasses.dataclass
    class Feed:
        order: Order

    monkeypatch.setattr(decoding, "cores", lambda: 16)
    most = [decoding.threads_max(Feed(Order(ranks))) for ranks in (1, 4, 16, 64)]  # type: ignore[arg-type]
    assert most == [16, 4, 1, 1]


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_a_training_gets_the_threads_that_it_needs_and_the_report_says_so(
    tmp_path, monkeypatch: pytest.MonkeyPatch, framework: str
) -> None:
    loaders = needs.module(f"tierfeed.{framework}")
    world = make_world(tmp_path, samples=320, batch_size=8, epochs=1)
    monkeypatch.setattr(decoding, "cores", lambda: 8)

    def decode(sample: tierfeed.Sample, label: int) -> int:
        time.sleep(0.002)
        return sample.id

    seen = []
    with node.node(world) as started:
        started.adopt(monkeypatch)
        with loaders.TierLoader(decode=decode, decode_threads="auto") as loader:
            for ids, *_ in zip(loader, strict=False):
                seen += ids.tolist()
                time.sleep(0.004)
            chosen = loader.stats()["decode_threads"]
        started.agent.terminate()
        started.agent.wait(node.TIMEOUT_S)
    assert node.report(started.root / "agent")["decode_threads"] == chosen
    assert sorted(seen) == list(range(320))
    assert 2 <= chosen <= 8
