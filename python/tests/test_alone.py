"""A trainer that reads without its agent knows it, says it once an epoch, and hardly waits for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings

import pytest
from torch.utils.data import DataLoader

import node
import tierfeed
from conftest import World
from tierfeed.torch import TierDataset, TierDistributedSampler


def said_of(caught: list[warnings.WarningMessage], what: str) -> list[str]:
    return [str(it.message) for it in caught if what in str(it.message)]


@pytest.mark.node
def test_an_agent_that_is_gone_is_said_in_each_epoch_with_its_share(running: node.Node) -> None:
    with tierfeed.connect() as feed:
        assert [batch.origin for batch in feed.epoch(0)] == ["agent"] * 13
        assert feed.mode == "agent"
        running.agent.kill()
        running.agent.wait()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for epoch in (1, 2):
                for _ in feed.epoch(epoch):
                    pass
        assert feed.mode == "direct"
    said = said_of(caught, "reading directly: ")
    assert len(said) == 2, "one in each epoch"
    assert "of 13 batches of epoch 1 (" in said[0]
    assert "13 of 13 batches of epoch 2 (100%) were read from the cold store by this process" in said[1]
    assert "agent" in said[1].rpartition(": ")[0]


@pytest.mark.node
def test_a_feed_whose_agent_delivers_little_is_direct_until_it_delivers(running: node.Node) -> None:
    with tierfeed.connect() as feed:
        with pytest.warns(RuntimeWarning, match=r"reading directly: 7 of 13 batches of epoch 0 \(54%\)"):
            feed.end_epoch(0, 13, 7)
        assert feed.mode == "direct" and feed.agent() is not None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            feed.end_epoch(1, 1000, 9)
            list(batch.step for batch in feed.epoch(1))
        assert feed.mode == "agent"


@pytest.mark.node
def test_a_silent_agent_is_tried_for_a_second_and_not_in_each_epoch(running: node.Node) -> None:
    """The first attempt after it hangs is cut short, and the next epoch makes none."""
    with tierfeed.connect() as feed:
        list(batch.step for batch in feed.epoch(0))
        running.agent.send_signal(signal.SIGSTOP)
        try:
            agent = feed.agent()
            assert agent is not None
            agent.note_silence()
            with pytest.warns(RuntimeWarning, match="epoch 1 .*did not answer in time"):
                feed._give_up(tierfeed.Gone("the agent gave no answer for 60 s"))
                assert len(list(feed.epoch(1))) == 13
            with pytest.warns(RuntimeWarning, match="epoch 2 .*was silent, and is tried again later"):
                assert len(list(feed.epoch(2))) == 13
        finally:
            running.agent.send_signal(signal.SIGCONT)


@pytest.mark.node
def test_a_sampler_of_another_order_is_said_at_the_first_batch(running: node.Node) -> None:
    dataset = TierDataset(tierfeed.connect(), decode=lambda _, label: label)
    with pytest.warns(RuntimeWarning, match="is none of the job's order .*torch-distributed"):
        list(DataLoader(dataset, batch_size=4, shuffle=True))
    dataset = TierDataset(tierfeed.connect(), decode=lambda _, label: label)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(DataLoader(dataset, batch_size=4, sampler=TierDistributedSampler(dataset.feed)))


@pytest.mark.node
@pytest.mark.parametrize("follows", [True, False])
def test_workers_of_a_data_loader_are_workers_in_the_report(world: World, follows: bool) -> None:
    script = f"""
import tierfeed, warnings
from torch.utils.data import DataLoader
from tierfeed.torch import TierDataset, TierDistributedSampler
warnings.simplefilter("ignore")
dataset = TierDataset(tierfeed.connect())
sampler = TierDistributedSampler(dataset.feed) if {follows} else range(49, -1, -1)
loader = DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=2, collate_fn=list)
assert len(list(loader)) == 13
"""
    run_dir = world.job.with_name("run")
    line = node.command("run", world.job, "--run-dir", run_dir, "--", sys.executable, "-c", script)
    done = subprocess.run(line, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    report = node.report(run_dir)
    assert "loader workers" in report["verdict"] or "loader workers" in done.stderr, done.stderr
    assert report["readers_are_workers"]


@pytest.mark.node
def test_a_batch_counts_when_it_is_handed_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    root = world.job.parent
    monkeypatch.chdir(root)
    keys = 'batch_size=4, chunk="1 MiB", tiers={"main-memory": {"size": "16 MiB"}}'
    line = f"import tierfeed; print(next(iter(tierfeed.connect('data', {keys}).epoch(0))))"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True)
    assert 'origin="agent"' in done.stdout, done
    assert "1 of 1 batches served by the agent" in done.stderr
