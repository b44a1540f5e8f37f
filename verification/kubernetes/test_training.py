"""The training that the chart describes, run from the image by a small kubelet.

There are two nodes, each with an agent and a trainer in containers of their own.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.utils.data.distributed import DistributedSampler

import kubelet
import needs
from chart import ROOT, render
from kubelet import Cluster, Container, Pod

KILLED = 128 + 9

NODES, EPOCHS, SAMPLES, BATCH, SEED = 2, 3, 128, 4, 7
JOB = f"""\
name: pods
dataset: {{ source: file:///data/train, format: image-folder }}
order: {{ shuffle: torch-distributed, seed: {SEED}, epochs: {EPOCHS} }}
batch_size: {BATCH}
world: {{ nodes: {NODES}, ranks_per_node: 1 }}
chunk: 4 MiB
"""


@pytest.fixture(scope="session")
def images(tmp_path_factory) -> dict[str, Path]:
    """The image of tierfeed, and one to train in: Debian with Python."""
    if why := kubelet.refusal():
        needs.skip("containers", why)
    folder = tmp_path_factory.mktemp("images")
    subprocess.run([ROOT / "scripts/image.sh", folder / "layout"], check=True, capture_output=True)
    [name] = json.loads((folder / "layout/index.json").read_text())["manifests"]
    tag = name["annotations"]["org.opencontainers.image.ref.name"]
    subprocess.run(
        ["umoci", "unpack", "--image", f"{folder}/layout:{tag}", folder / "ours"],
        check=True,
        capture_output=True,
    )
    trainer = folder / "trainer"
    subprocess.run(
        [
            "mmdebstrap",
            "--quiet",
            "--variant=extract",
            "--include=python3,dash,coreutils",
            "bookworm",
            trainer,
        ],
        check=True,
    )
    return {"tierfeed": folder / "ours/rootfs", "trainer": trainer}


@pytest.fixture
def dataset(tmp_path) -> list[bytes]:
    """The samples, in the order of their numbers."""
    generator, samples = random.Random(SEED), []
    for number in range(SAMPLES):
        path = tmp_path / f"data/train/class{number // 64}/{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        samples.append(generator.randbytes(generator.randint(1000, 200_000)))
        path.write_bytes(samples[-1])
    (tmp_path / "data/train.py").write_text((Path(__file__).with_name("trainer.py")).read_text())
    return samples


class Training:
    def __init__(
        self,
        folder: Path,
        images: dict[str, Path],
        *,
        job: str = JOB,
        memory: str = "256Mi",
        pace_s: float = 0.0,
    ):
        os.chmod(folder, 0o755)
        changes = {
            "image": "tierfeed",
            "jobset": {
                "nodes": NODES,
                "image": "trainer",
                "command": f"python3 /data/train.py {pace_s}",
            },
            "agent": {"memory": memory},
            "manager": {"memory": "256Mi", "port": 7070 + os.getpid() % 1000},
        }
        [jobset] = render(folder, changes)
        cluster = Cluster(
            folder,
            images,
            {"tierfeed-job": {"job.yaml": job}},
            {"tierfeed-token": {"token": "5e" * 32}},
            {"dataset": folder / "data"},
        )
        self.pods = cluster.run(jobset)
        self.nodes = [pod for pod in self.pods if pod.job == "node"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self) -> None:
        for pod in self.pods:
            pod.stop()

    def finish(self) -> list[list[dict]]:
        """Waits for the trainers; what each wrote."""
        for pod in self.nodes:
            assert pod.containers["node"].wait(120) == 0, self.outputs()
        return [batches(pod) for pod in self.nodes]

    def outputs(self) -> str:
        return "\n".join(
            container.output()[-3000:] for pod in self.pods for container in pod.containers.values()
        )


def batches(pod: Pod) -> list[dict]:
    lines = pod.containers["node"].log.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def wait_for(is_so: Callable[[], bool], training: Training) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, training.outputs()
        time.sleep(0.05)


def agent(pod: Pod) -> Container:
    return pod.containers["tierfeed-agent"]


def report(pod: Pod) -> dict:
    return json.loads((pod.volume("run") / "agent/report.json").read_text())


def assert_right(logs: list[list[dict]], dataset: list[bytes]) -> None:
    """Every batch of PyTorch's order once, with its bytes."""
    for rank, log in enumerate(logs):
        sampler = DistributedSampler(
            dataset, num_replicas=NODES, rank=rank, shuffle=True, seed=SEED
        )
        expected = []
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            ids = list(sampler)
            expected += [(epoch, ids[first : first + BATCH]) for first in range(0, len(ids), BATCH)]
        assert [(row["epoch"], row["samples"]) for row in log] == expected
        for row in log:
            assert row["crcs"] == [zlib.crc32(dataset[sample]) for sample in row["samples"]]


def test_every_batch_comes_from_the_agent_of_its_pod(tmp_path, images, dataset):
    with Training(tmp_path, images) as training:
        logs = training.finish()
        assert_right(logs, dataset)
        assert {origin for log in logs for origin in origins(log)} == {"agent"}, training.outputs()


def origins(log: list[dict]) -> list[str]:
    return [row["origin"] for row in log]


def test_an_agent_that_is_killed_comes_back_in_its_pod_and_the_training_notices_nothing_else(
    tmp_path, images, dataset
):
    with Training(tmp_path, images, pace_s=0.15) as training:
        killed = training.nodes[0]
        wait_for(lambda: len(batches(killed)) >= 5, training)
        agent(killed).kill()
        logs = training.finish()
        assert_right(logs, dataset)
        assert agent(killed).exit_codes[0] == KILLED and agent(killed).starts >= 2, (
            training.outputs()
        )
        assert origins(logs[0])[-1] == origins(logs[0])[0], origins(logs[0])
        assert set(origins(logs[1])) == {origins(logs[0])[0]}, origins(logs[1])


def test_the_training_goes_on_while_the_manager_is_away(tmp_path, images, dataset):
    with Training(tmp_path, images, pace_s=0.1) as training:
        [manager] = [pod.containers["manager"] for pod in training.pods if pod.job == "manager"]
        wait_for(lambda: all(len(batches(pod)) >= 3 for pod in training.nodes), training)
        manager.kill()
        logs = training.finish()
        assert_right(logs, dataset)
        assert manager.exit_codes[0] == KILLED and manager.starts >= 2, training.outputs()
        assert len({origin for log in logs for origin in origins(log)}) == 1, [
            origins(log) for log in logs
        ]


def test_an_agent_stays_within_the_memory_of_its_container(tmp_path, images, dataset):
    with Training(tmp_path, images, memory="48Mi") as training:
        logs = training.finish()
        assert_right(logs, dataset)
        for pod in training.nodes:
            assert KILLED not in agent(pod).exit_codes, training.outputs()


def test_without_the_right_to_mount_a_ram_disk_the_agent_says_what_its_tier_can_take(
    tmp_path, images, dataset
):
    job = JOB + "tiers: { main-memory: { size: 16 MiB }, scratch: {} }\n"
    with Training(tmp_path, images, job=job) as training:
        logs = training.finish()
        assert_right(logs, dataset)
        for pod in training.nodes:
            log = agent(pod).log.read_text()
            assert "no RAM disk may be mounted" in log
            assert "tiers.scratch keeps no sample: of 64 KiB" in log, log
        assert {origin for log in logs for origin in origins(log)} == {"agent"}, training.outputs()
