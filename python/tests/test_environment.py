"""The ranks of a training that TensorFlow's `TF_CONFIG` describes."""

from __future__ import annotations

import json

import pytest

import tierfeed
from tierfeed import environment


def ranks(
    monkeypatch: pytest.MonkeyPatch, kind: str, index: int, **cluster: list[str]
) -> dict[str, str]:
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    return environment.launched()


def test_the_chief_comes_first_and_workers_of_one_host_are_a_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = {"chief": ["a:1"], "worker": ["a:2", "b:1", "b:2"]}
    found = [ranks(monkeypatch, "chief", 0, **cluster)]
    found += [ranks(monkeypatch, "worker", index, **cluster) for index in range(3)]
    assert [it["RANK"] for it in found] == ["0", "1", "2", "3"]
    assert [it["LOCAL_RANK"] for it in found] == ["0", "1", "0", "1"]
    assert {(it["WORLD_SIZE"], it["LOCAL_WORLD_SIZE"]) for it in found} == {("4", "2")}
    agent = environment.of_agent()
    assert (agent["RANK"], agent["MASTER_ADDR"], agent["MASTER_PORT"]) == ("3", "a", "1")


def test_a_launcher_counts_before_tf_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "7")
    assert ranks(monkeypatch, "worker", 0, worker=["a:1", "b:1"]) == {"RANK": "7"}
    assert "LOCAL_RANK" not in environment.of_agent()


def test_a_wrong_tf_config_says_what_would_be_right(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(tierfeed.Reconfigure, match="makes this process evaluator 0; only its chief"):
        ranks(monkeypatch, "evaluator", 0, worker=["a:1"])
    with pytest.raises(tierfeed.Reconfigure, match="lists a:1, b:1, a:2: name the workers of one host"):
        ranks(monkeypatch, "worker", 0, worker=["a:1", "b:1", "a:2"])
    monkeypatch.setenv("TF_CONFIG", "worker 3")
    with pytest.raises(tierfeed.Reconfigure, match="TF_CONFIG is not what TensorFlow expects"):
        environment.launched()
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert environment.launched() == {}
