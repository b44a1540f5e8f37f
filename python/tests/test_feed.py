"""The rules of a feed, against an agent that is played: it answers late, out of order, or dies.

What a real agent does is in `test_node.py`; here every interleaving that matters can be had by seed.
"""

from __future__ import annotations

import random
import re
import time
import types
import warnings
from pathlib import Path

import pytest

import tierfeed
from conftest import World, make_world
from tierfeed import feed as feed_module
from tierfeed import program
from tierfeed._native import RANK_ARGUMENT, ColdReader, Order, Requests, Tally, TurnedAway

pytestmark = pytest.mark.filterwarnings("ignore:tierfeed:RuntimeWarning")


def briefing_of(world: World) -> str:
    return program.briefing(str(world.job), str(world.index), {RANK_ARGUMENT: "0"})


def alone(world: World) -> tuple[Order, ColdReader]:
    """What a trainer opens that has no agent."""
    return ColdReader.of_briefing(briefing_of(world), "tierfeed")


class PlayedAgent:
    """Makes connections that answer from the cold store, each until it dies."""

    def __init__(self, world: World, seed: int = 0) -> None:
        self.briefing = briefing_of(world)
        self.order, self.reader = ColdReader.of_briefing(self.briefing, "tierfeed")
        self.random = random.Random(seed)
        self.lives_for: list[int] = []
        """Requests that each further connection answers before it dies; the last one lives for ever."""
        self.refuses: dict[tuple[int, int], str] = {}
        self.window = 8
        self.served: list[tuple[int, int]] = []
        self.connections: list[PlayedConnection] = []
        self.answers = True
        self.told: list[dict[str, int]] = []
        """Tallies, as long as there is room for them."""
        self.has_room = True

    def connect(
        self,
        socket: str,
        launched: dict[str, str],
        role: str,
        trainer: int,
        dataset: str | None,
        *,
        pinned: bool = False,
    ) -> PlayedConnection:
        rank = int(launched["rank"])
        if socket == "nobody" or not self.answers:
            raise tierfeed.Gone("no agent listens at nobody")
        lives_for = self.lives_for.pop(0) if self.lives_for else 1 << 30
        connection = PlayedConnection(self, rank, lives_for, is_pinned=pinned)
        self.connections.append(connection)
        return connection


class PlayedConnection:
    def __init__(
        self, agent: PlayedAgent, rank: int, lives_for: int, *, is_pinned: bool
    ) -> None:
        self.agent = agent
        self.is_pinned = is_pinned
        self.rank = rank
        self.requests = Requests()
        self.order = agent.order
        self.briefing = agent.briefing
        self.batches_ahead = 4
        self.leases = 0
        self.oldest_lease: tuple[int, int] | None = None
        self.is_exhausted = False
        self.ring: list[tuple[int, int]] = []
        """Answered, and not received yet: stays when the agent dies."""
        self.left = lives_for
        self.published: dict[int, list[int]] = {}
        self.is_forgotten = False

    def request(self, places: list[tuple[int, int]]) -> int:
        if self.left == 0:
            raise tierfeed.Gone("died")
        missing = self.requests.missing(places)
        assert not set(missing) & set(self.ring), "asked for twice"
        taken = missing[: min(self.left, self.agent.window - len(self.ring))]
        self.left -= len(taken)
        self.ring.extend(taken)
        self.requests.sent(taken)
        return len(taken)

    def receive(self, timeout_s: float) -> bool:
        if not self.ring:
            if self.left == 0:
                raise tierfeed.Gone("died")
            return False
        place = self.ring.pop(self.agent.random.randrange(len(self.ring)))
        epoch, step = place
        reason = self.agent.refuses.get(place)
        if reason is not None:
            refused = types.SimpleNamespace(
                reason=reason, sample=3, fault="vanished", final_sample=None
            )
            self.requests.answer(place, refused)
            return True
        self.agent.served.append(place)
        ids = self.order.batch(epoch, step, self.rank)
        self.requests.answer(place, self.agent.reader.read(epoch, step, self.rank, ids))
        return True

    def publish(self, epoch: int, samples: list[int]) -> None:
        self.published[epoch] = samples

    def explain(self, samples: list[int]) -> dict[int, str]:
        return {}

    @property
    def holds_all(self) -> bool:
        return self.leases >= self.batches_ahead

    def tally(self, tally: Tally) -> bool:
        if self.left == 0 or not self.agent.has_room:
            return False
        figures = re.findall(r"(\w+): (?:\w+\()?(\d+)", repr(tally))
        self.agent.told.append({name: int(value) for name, value in figures})
        return True

    def note_silence(self) -> None:
        pass

    def forget(self) -> None:
        self.is_forgotten = True


@pytest.fixture
def agent(world: World, monkeypatch: pytest.MonkeyPatch) -> PlayedAgent:
    return play(world, monkeypatch)


def play(world: World, monkeypatch: pytest.MonkeyPatch, seed: int = 0) -> PlayedAgent:
    agent = PlayedAgent(world, seed)
    played = types.SimpleNamespace(connect=agent.connect)
    monkeypatch.setattr(feed_module, "AgentConnection", played)
    reader = types.SimpleNamespace(of_briefing=lambda _, exe, dataset: alone(world))
    monkeypatch.setattr(feed_module, "ColdReader", reader)
    return agent


def connect() -> tierfeed.Feed:
    return tierfeed.connect(socket="played", rank=0)


def places(batches) -> list[tuple[int, int]]:
    return [(batch.epoch, batch.step) for batch in batches]


ALL = [(epoch, step) for epoch in range(3) for step in range(13)]


@pytest.mark.parametrize("seed", range(20))
def test_every_batch_comes_once_and_in_order_however_often_the_agent_dies(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    agent = play(world, monkeypatch, seed)
    agent.window = agent.random.choice([2, 3, 8])
    agent.lives_for = [agent.random.randrange(20) for _ in range(3)]
    for place in agent.random.sample(ALL, 6):
        agent.refuses[place] = "no-room"
    feed = connect()
    for epoch in range(3):
        for step, batch in enumerate(feed.epoch(epoch)):
            assert (batch.epoch, batch.step) == (epoch, step)
            assert batch.samples == agent.order.batch(epoch, step, 0)
            assert [bytes(sample) for sample in batch] == [
                world.content(id) for id in batch.samples
            ]
        assert step == 12


def test_a_living_agent_serves_every_batch(agent: PlayedAgent) -> None:
    feed = connect()
    assert feed.mode == "agent"
    assert places(feed) == ALL
    assert sorted(agent.served) == ALL
    assert len(agent.connections) == 1


def test_a_feed_connects_once_for_a_device(agent: PlayedAgent) -> None:
    feed = connect()
    feed.close()
    feed.pin()
    assert [it.is_pinned for it in agent.connections] == [False, True]
    feed.pin()
    assert [it.is_pinned for it in agent.connections] == [False, True]


def test_requests_run_ahead_but_not_over_the_end_of_the_epoch(agent: PlayedAgent) -> None:
    feed = connect()
    (connection,) = agent.connections
    batches = feed.epoch(0, start_step=9)
    next(batches)
    assert set(connection.ring) | connection.requests.answered == {(0, 10), (0, 11), (0, 12)}
    next(batches), next(batches)
    assert set(connection.ring) | connection.requests.answered == {(0, 12)}


@pytest.mark.parametrize("seed", range(5))
def test_what_was_handed_over_before_the_end_is_delivered(agent: PlayedAgent, seed: int) -> None:
    agent.random.seed(seed)
    agent.lives_for = [4]
    feed = connect()
    batches = feed.epoch(0)
    # The agent answers four requests and dies before the first answer is taken.
    given = [next(batches) for _ in range(6)]
    assert places(given) == ALL[:6]
    assert len(agent.served) == 4


def test_an_agent_that_died_is_tried_again_at_the_next_epoch(agent: PlayedAgent) -> None:
    agent.lives_for = [2]
    feed = connect()
    assert places(feed.epoch(0)) == ALL[:13]
    assert feed.mode == "direct"
    assert len(agent.connections) == 1
    assert places(feed.epoch(1)) == ALL[13:26]
    assert feed.mode == "agent"
    assert len(agent.connections) == 2
    assert sorted(agent.served)[-13:] == ALL[13:26]


def test_an_agent_that_stays_away_is_tried_once_per_epoch(agent: PlayedAgent) -> None:
    agent.lives_for = [0]
    feed = connect()
    agent.answers = False
    assert places(feed) == ALL
    assert len(agent.connections) == 1


def test_the_loss_is_reported_once_and_what_it_costs_in_each_epoch(agent: PlayedAgent) -> None:
    agent.lives_for = [1, 1, 1]
    feed = connect()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        list(feed)
    first, *each = (str(warning.message) for warning in seen)
    assert "reading the rest of the epoch directly" in first
    assert [text[:55] for text in each] == [
        f"tierfeed: reading directly: 12 of 13 batches of epoch {epoch}" for epoch in range(3)
    ]
    assert feed.mode == "direct"


def test_batches_that_the_agent_refuses_are_told_with_the_reason(agent: PlayedAgent) -> None:
    agent.refuses = {(1, step): "too-large" for step in range(4, 13)}
    feed = connect()
    list(feed.epoch(0))
    assert feed.mode == "agent"
    with pytest.warns(RuntimeWarning, match="9 of 13 batches of epoch 1 .*refused the last of them"):
        list(feed.epoch(1))
    assert (feed.mode, feed.agent() is None) == ("direct", False), "an agent that gives little is none"
    list(feed.epoch(2))
    assert feed.mode == "agent"


def test_a_batch_without_room_is_read_directly_and_the_agent_goes_on(agent: PlayedAgent) -> None:
    agent.refuses[(0, 3)] = "no-room"
    feed = connect()
    assert places(feed.epoch(0)) == ALL[:13]
    assert (0, 3) not in agent.served
    assert len(agent.served) == 12
    assert feed.mode == "agent"


def test_an_unreadable_sample_names_its_object(world: World, agent: PlayedAgent) -> None:
    agent.refuses[(0, 0)] = "unreadable"
    feed = connect()
    lost = agent.order.batch(0, 0, 0)[2]
    feed.read([lost])
    world.files[lost].unlink()
    with pytest.raises(tierfeed.SampleError, match=world.files[lost].name) as raised:
        next(feed.epoch(0))
    assert (raised.value.sample, raised.value.reason) == (lost, "vanished")


def test_a_sample_that_only_the_agent_cannot_read_does_not_end_the_training(agent: PlayedAgent) -> None:
    agent.refuses[(0, 3)] = "unreadable"
    feed = connect()
    assert places(feed.epoch(0)) == ALL[:13]
    assert (0, 3) not in agent.served
    assert feed.mode == "agent"


def test_another_order_on_the_other_side_is_a_bug(agent: PlayedAgent) -> None:
    agent.refuses[(0, 0)] = "not-in-order"
    with pytest.raises(tierfeed.Bug, match="epoch 0, step 0, rank 0"):
        next(connect().epoch(0))


def test_an_iteration_that_was_left_hands_back_what_it_asked_for(agent: PlayedAgent) -> None:
    feed = connect()
    for _ in feed.epoch(0):
        break
    list(feed.epoch(1))
    (connection,) = agent.connections
    assert not connection.requests and not connection.ring


def test_an_iteration_that_goes_on_uses_what_it_asked_for(agent: PlayedAgent) -> None:
    feed = connect()
    next(feed.epoch(0))
    assert places(feed.epoch(0, start_step=1)) == ALL[1:13]
    assert sorted(agent.served) == ALL[:13]


def test_an_agent_that_hangs_is_given_up(
    agent: PlayedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = connect()
    (connection,) = agent.connections
    batches = feed.epoch(0)
    next(batches)
    connection.receive = lambda timeout_s: False
    assert places(batches) == ALL[1:13]
    assert feed.mode == "direct"


def test_a_trainer_that_holds_everything_does_not_wait_for_itself(agent: PlayedAgent) -> None:
    feed = connect()
    (connection,) = agent.connections
    batches = feed.epoch(0)
    next(batches)
    serve = connection.receive
    connection.leases, connection.receive = 4, lambda timeout_s: False
    assert places([next(batches), next(batches)]) == ALL[1:3]
    connection.leases, connection.receive = 0, serve
    assert places(batches) == ALL[3:13]
    assert not connection.requests.answered, "what came too late went back"
    assert feed.mode == "agent"
    assert set(ALL[3:13]) <= set(agent.served)


def test_a_slow_store_costs_batches_that_are_staged_only_once(agent: PlayedAgent) -> None:
    feed = connect()
    (connection,) = agent.connections
    batches = feed.epoch(0)
    receive, kept = connection.receive, []
    for step in range(3):
        next(batches)
        while connection.ring:
            receive(0.0)
        later = connection.requests.answered
        left_s = 1.5

        def receive_slowly(timeout_s: float) -> bool:
            nonlocal left_s
            left_s -= timeout_s
            return left_s <= 0 and receive(0.0)

        connection.receive = receive_slowly  # type: ignore[method-assign]
        assert feed.batch(2, step).step == step
        connection.receive = receive  # type: ignore[method-assign]
        kept.append(bool(later) and later <= connection.requests.answered)
    assert kept == [False, True, True]


def test_a_batch_for_which_there_is_no_room_is_counted_and_said_once(agent: PlayedAgent) -> None:
    agent.refuses = {place: "no-room" for place in ALL[2:5]}
    feed = connect()
    agent.connections[0].oldest_lease = (1, 1)
    with pytest.warns(RuntimeWarning, match="training keeps 0 batches") as caught:
        assert places(feed.epoch(0)) == ALL[:13]
    assert feed.lease_copyouts == 3
    assert len([it for it in caught if "training keeps" in str(it.message)]) == 1


def test_a_batch_that_is_too_large_is_nobodys_fault(agent: PlayedAgent) -> None:
    agent.refuses = {ALL[2]: "too-large", ALL[3]: "already-taken"}
    feed = connect()
    assert places(feed.epoch(0)) == ALL[:13]
    assert feed.lease_copyouts == 0


def test_a_process_that_no_agent_let_in_is_refused_by_one_that_has_its_rank(
    world: World, agent: PlayedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.answers = False
    feed = tierfeed.connect(socket="played", rank=0, job=str(world.job), index=str(world.index))
    assert places(feed.epoch(0)) == ALL[:13]

    def turn_away(*_: object, **_named: object) -> None:
        raise TurnedAway("another process reads for rank 0")

    played = types.SimpleNamespace(connect=turn_away)
    monkeypatch.setattr(feed_module, "AgentConnection", played)
    with pytest.raises(tierfeed.IdentityError, match="another process reads for rank 0"):
        list(feed.epoch(1))


def test_an_agent_of_another_job_is_not_followed(
    world: World, agent: PlayedAgent, tmp_path
) -> None:
    agent.lives_for = [0]
    feed = connect()
    list(feed.epoch(0))
    other = make_world(tmp_path / "other", samples=9)
    agent.order, _ = alone(other)
    assert places(feed.epoch(1)) == ALL[13:26]
    assert feed.mode == "direct"


def test_an_agent_that_comes_back_learns_what_was_published(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, samples=8, shuffle="published")
    agent = play(world, monkeypatch)
    agent.lives_for = [0]
    feed = connect()
    ids = [[0, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0]]
    for epoch in (0, 1):
        feed.publish(epoch, ids[epoch])
        agent.order.publish(epoch, 0, ids[epoch])
    for epoch in (0, 1):
        given = [id for batch in feed.epoch(epoch) for id in batch.samples]
        assert given == ids[epoch]
    assert agent.connections[0].published == {0: ids[0], 1: ids[1]}
    assert agent.connections[1].published == {1: ids[1]}


def test_an_agent_that_takes_no_order_is_given_up_and_the_training_goes_on(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: PlayedConnection, epoch: int, samples: list[int]) -> None:
        raise tierfeed.Retry("the agent did not take the order within 30 s")

    world = make_world(tmp_path, samples=8, shuffle="published")
    play(world, monkeypatch)
    monkeypatch.setattr(PlayedConnection, "publish", denied)
    feed = connect()
    with pytest.warns(RuntimeWarning, match="directly"):
        feed.publish(0, range(8))
    assert [id for batch in feed.epoch(0) for id in batch.samples] == [*range(8)]
    assert feed.mode == "direct"


def test_a_forked_child_connects_for_itself_and_leaves_the_parent_alone(
    agent: PlayedAgent,
) -> None:
    import os

    feed = connect()
    batches = feed.epoch(0)
    next(batches)
    pid = os.fork()
    if pid == 0:
        is_right = places(batches) == ALL[1:13] and len(agent.connections) == 2
        is_right = is_right and agent.connections[0].is_forgotten
        os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert places(batches) == ALL[1:13]
    assert len(agent.connections) == 1 and not agent.connections[0].is_forgotten


def told(agent: PlayedAgent, name: str) -> dict[int, int]:
    """What the agent was told of this, by epoch."""
    sums: dict[int, int] = {}
    for figures in agent.told:
        sums[figures["epoch"]] = sums.get(figures["epoch"], 0) + figures[name]
    return {epoch: value for epoch, value in sums.items() if value}


def test_batches_that_were_read_here_are_told_and_served_ones_are_not(agent: PlayedAgent) -> None:
    agent.refuses = {ALL[2]: "no-room", ALL[15]: "too-large"}
    feed = connect()
    assert places(feed) == ALL
    assert told(agent, "self_read_batches") == {0: 1, 1: 1}
    assert told(agent, "self_read_samples") == {0: 4, 1: 4}
    assert all(value > 0 for value in told(agent, "self_read").values())
    assert told(agent, "skipped_samples") == {}


def test_what_finds_no_room_is_told_with_the_next(agent: PlayedAgent) -> None:
    agent.refuses = {place: "too-large" for place in ALL[:4]}
    agent.has_room = False
    feed = connect()
    batches = feed.epoch(0)
    for _ in range(3):
        next(batches)
    assert agent.told == []
    agent.has_room = True
    next(batches)
    assert told(agent, "self_read_batches") == {0: 4}


def test_a_new_agent_is_told_what_was_read_before_it_came_but_no_waits(agent: PlayedAgent) -> None:
    agent.lives_for = [5]
    feed = connect()
    with pytest.warns(RuntimeWarning, match="directly"):
        assert places(feed.epoch(0)) == ALL[:13]
    assert agent.told == []
    assert places(feed.epoch(1)) == ALL[13:26]
    assert told(agent, "self_read_batches") == {0: 8}
    assert told(agent, "self_read") == told(agent, "unanswered") == {}


def test_a_forked_child_does_not_tell_what_its_parent_did(agent: PlayedAgent) -> None:
    import os

    agent.has_room = False
    agent.refuses = {ALL[0]: "too-large"}
    feed = connect()
    batches = feed.epoch(0)
    next(batches)
    agent.has_room = True
    pid = os.fork()
    if pid == 0:
        list(batches)
        os._exit(0 if told(agent, "self_read_batches") == {} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_decoding_is_told_with_its_threads(agent: PlayedAgent) -> None:
    from tierfeed.torch import TierLoader

    def decode(sample: tierfeed.Sample, label: int) -> int:
        time.sleep(0.001)
        return label

    with TierLoader(connect(), decode=decode, decode_threads=2) as loader:
        list(loader)
        stats = loader.stats()
    assert {figures["decode_threads"] for figures in agent.told} == {2}
    decoding_s = sum(figures["decoding"] for figures in agent.told) / 1e9
    assert decoding_s == pytest.approx(stats["decoding_s"])
    assert 50 * 0.001 / 2 <= decoding_s <= stats["stall_s"]


def test_the_page_names_each_member_of_a_feed() -> None:
    page = (Path(__file__).parents[2] / "docs/python.md").read_text()
    named = set(re.findall(r"`(?:Feed\.)?(\w+)[`(]", page))
    assert {it for it in vars(tierfeed.Feed) if not it.startswith("_")} - named == set()
