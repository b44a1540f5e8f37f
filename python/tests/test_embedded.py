"""Trainings that start their agent themselves: one line of Python, no job file, no `tierfeed run`."""

from __future__ import annotations

import gc
import html
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import node
import tierfeed
from cluster import STAND_IN, installed
from conftest import SEED, World, make_world
from node import Log, wait_for
from test_bucket import Bucket, bucket  # noqa: F401
from tierfeed import arguments, embedded

pytestmark = pytest.mark.node

TRAINER = str(Path(__file__).with_name("embedded_trainer.py"))
SMALL = {"chunk": "1 MiB", "tiers": {"main-memory": {"size": "16 MiB"}}}


@pytest.fixture(autouse=True)
def in_a_directory_of_its_own(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def keys_of(world: World) -> dict[str, Any]:
    return {"batch_size": world.batch_size, "seed": SEED, "epochs": world.epochs, **SMALL}


def source_of(world: World) -> str:
    return str(world.job.with_name("data"))


def train(world: World, mode: str, *, pace_s: float = 0.0) -> subprocess.Popen[str]:
    """A training in a process of its own; one of several ranks in as many, started as by torchrun."""
    torchrun = [str(STAND_IN / "torchrun"), "--nproc-per-node", str(world.ranks)]
    launcher = torchrun if world.ranks > 1 else []
    given = [str(node.log_path(world)), mode, str(pace_s), source_of(world)]
    line = [sys.executable, *launcher, TRAINER, *given, json.dumps(keys_of(world))]
    return subprocess.Popen(line, stderr=subprocess.PIPE, text=True, start_new_session=True)


def pids(world: World, rank: int) -> list[int]:
    """The processes of a rank: the trainer, and what it started."""
    path = Path(f"{node.log_path(world)}.{rank}.pids")
    wait_for(path.exists, f"rank {rank} to have its agent")
    found: list[int] = json.loads(path.read_text())
    return found


def batches_done(world: World, rank: int) -> int:
    path = Path(f"{node.log_path(world)}.{rank}")
    return path.read_bytes().count(b"\n") if path.exists() else 0


def is_running(pid: int) -> bool:
    """Whether a process is there, other than as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def assert_nothing_is_left(world: World, processes: list[int], *, runs: int = 1) -> None:
    """No process, and nothing outside of the run directories, which have the report and no socket."""
    wait_for(lambda: not any(map(is_running, processes)), "the end of what was started")
    run_dirs = list(Path(".tierfeed/runs").iterdir())
    assert len(run_dirs) == runs
    for run_dir in run_dirs:
        assert (run_dir / "report.json").exists()
        assert not Path(json.loads((run_dir / "socket.json").read_text())).exists()
        assert not [path for path in Path("/dev/shm").iterdir() if run_dir.name in path.name]


def test_one_line_starts_what_it_needs_and_leaves_nothing_behind(tmp_path) -> None:
    world = make_world(tmp_path)
    training = train(world, "loader")
    assert training.wait(node.TIMEOUT_S) == 0, training.stderr.read()
    log = Log.read(node.log_path(world), 0)
    log.assert_complete(world, 0)
    assert {row["mode"] for row in log.batches} == {"agent"}
    assert_nothing_is_left(world, pids(world, 0))
    (run_dir,) = Path(".tierfeed/runs").iterdir()
    assert node.report(run_dir)["steps"] == 39
    plan = node.command("plan", run_dir / "job.yaml", "--dump")
    done = subprocess.run(plan, capture_output=True, text=True)
    assert done.stdout.count("\n") >= 39, "the arguments are a job file that other commands read"


def test_a_training_that_is_killed_takes_its_agent_with_it(tmp_path) -> None:
    world = make_world(tmp_path)
    training = train(world, "feed", pace_s=10)
    processes = pids(world, 0)
    wait_for(lambda: batches_done(world, 0), "a batch")
    assert os.getpgid(processes[1]) != os.getpgid(processes[0]), "an interrupt is for the training"
    training.kill()
    assert_nothing_is_left(world, processes)


@pytest.mark.parametrize("victim", [0, 1])
def test_the_agent_lasts_until_the_last_rank_whichever_is_killed_first(tmp_path, victim: int) -> None:
    world = make_world(tmp_path, ranks=2, epochs=2)
    training = train(world, "feed", pace_s=0.05)
    processes = {rank: pids(world, rank) for rank in range(2)}
    wait_for(lambda: all(batches_done(world, rank) for rank in range(2)), "a batch of each rank")
    os.kill(processes[victim][0], signal.SIGKILL)
    training.wait(node.TIMEOUT_S)
    log = Log.read(node.log_path(world), 1 - victim)
    log.assert_complete(world, 1 - victim)
    assert {row["origin"] for row in log.batches} == {"agent"}, training.stderr.read()
    assert_nothing_is_left(world, processes[0] + processes[1])


def test_a_training_may_have_two_loaders_and_ranks_that_meet_where_the_user_says(tmp_path) -> None:
    world = make_world(tmp_path, ranks=2)
    script = f"""
import tierfeed
keys = {keys_of(world)!r}
train = tierfeed.connect({source_of(world)!r}, **keys)
validate = tierfeed.connect({source_of(world)!r}, **{{**keys, "shuffle": False}})
origins = {{batch.origin for feed in (train, validate) for batch in feed.epoch(0)}}
print(train.rank, [*next(validate.epoch(1)).samples], *origins)
"""
    line = [installed("mpirun.mpich"), "-n", "2", sys.executable, "-c", script]
    place = {**os.environ, "TIERFEED_RUN_DIR": str(tmp_path / "runs")}
    done = subprocess.run(line, env=place, capture_output=True, text=True, timeout=node.TIMEOUT_S)
    said = ["0 [0, 2, 4, 6] agent", "1 [1, 3, 5, 7] agent"]
    assert sorted(done.stdout.splitlines()) == said, done.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_a_training_that_is_killed_may_start_again_at_once(tmp_path) -> None:
    world = make_world(tmp_path, ranks=2, epochs=1)
    training = train(world, "feed", pace_s=10)
    processes = {rank: pids(world, rank) for rank in range(2)}
    wait_for(lambda: all(batches_done(world, rank) for rank in range(2)), "a batch of each rank")
    os.killpg(training.pid, signal.SIGKILL)
    again = train(world, "feed")
    assert again.wait(node.TIMEOUT_S) == 0, again.stderr.read()
    for rank in range(2):
        Log.read(node.log_path(world), rank).assert_complete(world, rank)
    everybody = processes[0] + processes[1] + pids(world, 0) + pids(world, 1)
    assert_nothing_is_left(world, everybody, runs=2)


def test_signals_that_a_training_handles_cost_it_no_agent(tmp_path) -> None:
    """A batch system sends them to every process of a step."""
    world = make_world(tmp_path, ranks=2, epochs=2)
    training = train(world, "feed", pace_s=0.02)
    processes = {rank: pids(world, rank) for rank in range(2)}
    wait_for(lambda: all(batches_done(world, rank) for rank in range(2)), "a batch of each rank")
    for of_rank in processes.values():
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            os.kill(of_rank[1], number)
    assert training.wait(node.TIMEOUT_S) == 0, training.stderr.read()
    for rank in range(2):
        log = Log.read(node.log_path(world), rank)
        log.assert_complete(world, rank)
        assert {row["origin"] for row in log.batches} == {"agent"}


@pytest.mark.parametrize("victim", [0, 1])
def test_a_process_beside_a_rank_that_is_killed_costs_no_batch(tmp_path, victim: int) -> None:
    world = make_world(tmp_path, ranks=2, epochs=2)
    training = train(world, "feed", pace_s=0.02)
    processes = {rank: pids(world, rank) for rank in range(2)}
    wait_for(lambda: all(batches_done(world, rank) for rank in range(2)), "a batch of each rank")
    os.kill(processes[victim][1], signal.SIGKILL)
    assert training.wait(node.TIMEOUT_S) == 0, training.stderr.read()
    for rank in range(2):
        Log.read(node.log_path(world), rank).assert_complete(world, rank)
    wait_for(lambda: not any(map(is_running, processes[0] + processes[1])), "the end of all")


def test_a_loader_that_nobody_has_any_more_ends_its_agent(tmp_path) -> None:
    world = make_world(tmp_path)
    feed = tierfeed.connect(source_of(world), **keys_of(world))
    process = feed._embedded._process
    held, released = os.pipe()
    child = os.fork()
    if child == 0:
        # Neither the end of its copy nor its life is that of the training.
        os.close(released)
        del feed
        gc.collect()
        os.read(held, 1)
        os._exit(0)
    assert process.poll() is None
    assert next(feed.epoch(0)).origin == "agent"
    del feed
    assert process.poll() == 0
    os.close(released)
    os.waitpid(child, 0)


def test_a_cell_that_is_run_again_replaces_the_loader_that_it_made(tmp_path, monkeypatch) -> None:
    world = make_world(tmp_path)
    monkeypatch.setattr(sys, "ps1", "In [1]: ", raising=False)
    keys = keys_of(world)
    given = (keys, {**keys, "batch_size": 5}, keys)
    history = [tierfeed.connect(source_of(world), **it) for it in given]
    first, other, again = (feed._embedded._process for feed in history)
    ended = (first.poll(), other.poll(), again.poll())
    assert ended == (0, None, None), "one with other arguments stays"
    assert len(next(history[1].epoch(0))) == 5
    assert next(history[2].epoch(0)).origin == "agent"
    for feed in history[1:]:
        feed.close()


def test_the_report_is_there_while_the_training_runs_and_after_its_end(tmp_path) -> None:
    world = make_world(tmp_path)
    feed = tierfeed.connect(source_of(world), **keys_of(world))
    training = tierfeed.current()
    assert len(list(feed.epoch(0))) == 13
    running = wait_for(lambda: (it := training.report()).figures["steps"] >= 12 and it, "the batches")
    assert not running.is_final and "so far" in str(running)
    assert running.figures["verdict"] in str(running)
    assert running.figures["epochs"][0]["cold_read_bytes"] > 0
    list(feed.epoch(1))
    feed.close()
    ended = tierfeed.current().report()
    assert ended.is_final and ended.figures == node.report(training.run_dir)
    assert ended.figures["steps"] == 26
    for report in (running, ended):
        page = html.unescape(re.search('srcdoc="(.*)" style', report._repr_html_(), re.DOTALL).group(1))
        assert page.lstrip().lower().startswith("<!doctype html>")
        assert report.figures["verdict"] in html.unescape(page)


def test_under_tierfeed_run_the_current_training_is_that_of_its_agent(running: node.Node) -> None:
    with tierfeed.connect() as feed:
        next(feed.epoch(0))
        report = tierfeed.current().report()
    assert (report.figures["job"], report.is_final) == ("test", False)


def test_without_an_agent_there_is_nothing_to_report() -> None:
    line = [sys.executable, "-c", "import tierfeed; tierfeed.current()"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert "tierfeed.Gone: this process trains without an agent" in done.stderr


def test_a_wrong_argument_gets_the_message_of_a_job_file(tmp_path) -> None:
    world = make_world(tmp_path)
    world.job.write_text(world.job.read_text().replace("batch_size: 4", "batch_size: 0"))
    done = subprocess.run(node.command("run", world.job, "--", "true"), capture_output=True, text=True)
    sentence = re.search(r"job\.yaml:\d+: (batch_size .*)", done.stderr).group(1)
    with pytest.raises(tierfeed.Reconfigure) as caught:
        tierfeed.connect(source_of(world), **{**keys_of(world), "batch_size": 0})
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("~/data", "are for shells"),
        ("s3:/bucket", "a URL has two slashes"),
        ("", "expected a path"),
    ],
)
def test_a_source_that_is_no_path_gets_the_message_of_a_job_file(source: str, said: str) -> None:
    with pytest.raises(tierfeed.Reconfigure, match=f"dataset.source.*{said}"):
        tierfeed.connect(source, batch_size=4, seed=1)


@pytest.mark.parametrize("source", [b"caf\xe9", os.fsdecode(b"caf\xe9"), Path(os.fsdecode(b"caf\xe9"))])
def test_a_path_that_is_no_text_is_refused(source: Any) -> None:
    with pytest.raises(tierfeed.Reconfigure, match="source is .*caf.udce9.* which is not UTF-8"):
        tierfeed.connect(source, batch_size=4)


def test_a_dataset_that_is_not_there_is_named(tmp_path) -> None:
    with pytest.raises(tierfeed.Reconfigure, match="dataset.source: .*nowhere"):
        tierfeed.connect("nowhere", batch_size=4)


def test_an_argument_that_no_job_has_is_refused_before_anything_starts(tmp_path) -> None:
    from tierfeed.torch import TierLoader

    for make in (tierfeed.connect, TierLoader):
        with pytest.raises(TypeError, match="batchsize=.*did you mean batch_size="):
            make(str(tmp_path), batchsize=4)
    for make in (tierfeed.connect, TierLoader):
        first = rf'name the dataset first, {make.__name__}\("/data/train", seed='
        with pytest.raises(TypeError, match=f"the job file says it: order.seed; or {first}"):
            make(seed=4)
    assert not Path(".tierfeed").exists()


def test_under_tierfeed_run_the_job_file_says_what_is_read(running: node.Node) -> None:
    with pytest.raises(tierfeed.Reconfigure, match="leave the arguments out"):
        tierfeed.connect(source_of(running.world), **keys_of(running.world))


def test_ranks_that_pytorch_numbers_otherwise_are_refused(tmp_path, monkeypatch) -> None:
    import torch.distributed as dist

    from tierfeed.torch import TierLoader

    world = make_world(tmp_path)
    with TierLoader(source_of(world), **keys_of(world)) as loader:
        monkeypatch.setattr(dist, "is_initialized", lambda: True)
        monkeypatch.setattr(dist, "get_world_size", lambda: 2)
        monkeypatch.setattr(dist, "get_rank", lambda: 1)
        with pytest.raises(tierfeed.IdentityError, match="rank 1 of 2, .* rank 0 of 1"):
            next(iter(loader))


def test_a_bucket_needs_one_line_too(bucket: Bucket) -> None:  # noqa: F811
    keys = {"endpoint": f"http://127.0.0.1:{bucket.server.server_port}", "anonymous": True}
    files = {"format": "files", "glob": "*", "batch_size": 10, "shuffle": False, **SMALL}
    with tierfeed.connect("s3://bucket/data", **keys, **files) as feed:
        assert (feed.samples, feed.epochs) == (50, 1000)
        batches = list(feed.epoch(0))
        assert [batch.origin for batch in batches] == ["agent"] * 5
        assert bucket.assert_right(iter(batches)) == 50


def test_the_first_lines_of_the_readme_train(tmp_path) -> None:
    from torch.utils.data.distributed import DistributedSampler

    world = make_world(tmp_path)
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (lines,) = re.findall(r"```python\n(import tierfeed\.torch\n.*?)```", readme, re.DOTALL)
    assert "/data/imagenet/train" in lines and "        ..." in lines
    lines = lines.replace("/data/imagenet/train", source_of(world)).replace("90", "2")
    names = {"decode": lambda sample, label: (len(bytes(sample)), label), "seen": []}
    exec(lines.replace("        ...", "        seen.append(batch)"), names)
    sampler = DistributedSampler(world.files, num_replicas=1, rank=0, seed=42)
    expected = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        expected.append([world.files[sample].stat().st_size for sample in sampler])
    assert [sizes.tolist() for sizes, _ in names["seen"]] == expected
    names["loader"].close()


def test_every_key_of_a_run_is_an_argument() -> None:
    page = (Path(__file__).parents[2] / "docs/job-file.md").read_text()
    keys = set()
    for row in re.findall(r"^\| `([a-z_.-]+)", page, re.MULTILINE):
        section, _, key = row.partition(".")
        keys.add(key.partition(".")[0] if section in ("dataset", "order") else section)
    # What a loader is called with first, a dataset that is not there, what a run does not follow, and
    # files of the trainer, whose directory a variable of `tierfeed run` names.
    analysed = {"loader", "decoded", "model", "checkpoint", "validation", "evaluation", "cache"}
    assert set(arguments.KEYS) == keys - {"source", "described", "job_scratch"} - analysed


def test_relative_paths_are_those_of_the_working_directory(tmp_path) -> None:
    tiers = {"storage": {"path": "cache", "size": "1 GiB"}}
    text = arguments.job_file("data", {"batch_size": 4, "tiers": tiers, "manifest": Path("list.txt")})
    job = json.loads(text.partition("\n")[2])
    assert job["dataset"]["source"] == str(tmp_path / "data")
    assert job["dataset"]["manifest"] == str(tmp_path / "list.txt")
    assert job["tiers"]["storage"]["path"] == str(tmp_path / "cache")
    assert re.fullmatch(r"data-[0-9a-f]{8}", job["name"])
    remote = arguments.job_file("s3://bucket/train", {"shuffle": False})
    job = json.loads(remote.partition("\n")[2])
    assert (job["dataset"]["source"], job["order"]["shuffle"]) == ("s3://bucket/train", "sequential")


LOADERS = str(Path(__file__).with_name("rank_loaders.py"))


def start_ranks(
    world: World, plans: list[list[str]], *, launcher: list[str] | None = None, **variables: str
) -> list[subprocess.Popen[str]]:
    """A process for each rank of a node, with the variables of torchrun and a plan of its own."""
    folder = world.job.with_name("said")
    folder.mkdir(exist_ok=True)

    def start(rank: int, plan: list[str]) -> subprocess.Popen[str]:
        of_rank = {
            **dict.fromkeys(("RANK", "LOCAL_RANK"), str(rank)),
            **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), str(len(plans))),
            **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", **variables},
        }
        given = [str(folder), "\n".join(plan), source_of(world), json.dumps(keys_of(world))]
        line = [*(launcher or []), sys.executable, LOADERS, *given]
        return subprocess.Popen(
            line, env={**os.environ, **of_rank}, stderr=subprocess.PIPE, text=True
        )

    return [start(rank, plan) for rank, plan in enumerate(plans)]


def assert_all_end_well(world: World, ranks: list[subprocess.Popen[str]]) -> list[list[Any]]:
    """What the ranks said of each loader that they have read."""
    try:
        for rank in ranks:
            _, errors = rank.communicate(timeout=node.TIMEOUT_S)
            assert rank.returncode == 0, errors
    finally:
        for rank in ranks:
            rank.kill()
    said = [world.job.with_name("said") / str(rank) for rank in range(len(ranks))]
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in said]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_loader_is_made_anew_while_the_one_before_is_still_there(tmp_path, ranks: int) -> None:
    world = make_world(tmp_path, ranks=ranks, epochs=2)
    plan = ["make a", "read a", "make b", "drop a", "read b", "make a", "read a"]
    said = assert_all_end_well(world, start_ranks(world, [plan] * ranks))
    assert all([it[3] for it in of_rank] == ["agent"] * 3 for of_rank in said), said


def test_a_rank_that_is_ahead_waits_for_the_next_loader_of_the_first_rank(tmp_path) -> None:
    world = make_world(tmp_path, ranks=3, epochs=2)
    first = ["make a", "read a", "wait ahead", "drop a", "make a", "read a"]
    ahead = ["make a", "read a", "drop a", "say ahead", "make a", "read a"]
    late = ["wait ahead", "make a", "read a", "drop a", "make a", "read a"]
    said = assert_all_end_well(world, start_ranks(world, [first, ahead, late]))
    assert all([it[3] for it in of_rank] == ["agent"] * 2 for of_rank in said), said


def test_nothing_of_a_training_that_was_killed_goes_on_in_the_next_one(tmp_path) -> None:
    world = make_world(tmp_path, ranks=2)
    killed = start_ranks(world, [["make a", f"say there{rank}", "wait never"] for rank in range(2)])
    said = world.job.with_name("said")
    wait_for(lambda: all((said / f"there{rank}").exists() for rank in range(2)), "both ranks")
    agents = [int(it.name) for it in Path("/proc").iterdir() if _is_agent_below(it, tmp_path)]
    assert len(agents) == 2
    for pid in [*(rank.pid for rank in killed), *agents]:
        os.kill(pid, signal.SIGKILL)
    for rank in killed:
        rank.communicate()
    (tmp_path / "data/class0/added.jpg").write_bytes(b"new")
    said_next = assert_all_end_well(world, start_ranks(world, [["make a", "read a"]] * 2))
    assert [[it[1] for it in of_rank] for of_rank in said_next] == [[51], [51]]


def _is_agent_below(process: Path, folder: Path) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        return b"embed" in words and (process / "cwd").readlink() == folder
    except OSError:
        return False


def test_two_runs_of_torchrun_with_one_address_and_directory_are_apart(tmp_path) -> None:
    world = make_world(tmp_path, ranks=2, epochs=1)
    plan = "\n".join(["make a", "say there", "wait both", "read a"])
    torchrun = [sys.executable, str(STAND_IN / "torchrun"), "--nproc-per-node", "2"]
    folders = [tmp_path / "one", tmp_path / "two"]
    runs = []
    for folder in folders:
        folder.mkdir()
        given = [str(folder), plan, source_of(world), json.dumps(keys_of(world))]
        runs.append(subprocess.Popen([*torchrun, LOADERS, *given], stderr=subprocess.PIPE, text=True))
    wait_for(lambda: all((it / "there").exists() for it in folders), "both trainings")
    for folder in folders:
        (folder / "both").touch()
    for run in runs:
        _, errors = run.communicate(timeout=node.TIMEOUT_S)
        assert run.returncode == 0, errors
    for folder in folders:
        said = [json.loads((folder / str(rank)).read_text()) for rank in range(2)]
        assert [it[3] for it in said] == ["agent", "agent"]
    assert len(list(Path(".tierfeed/runs").iterdir())) == 2


def test_in_a_job_of_slurm_the_directory_has_its_number_whatever_starts_the_ranks(tmp_path) -> None:
    world = make_world(tmp_path, ranks=2, epochs=1)
    for ranks, numbers in [(2, {}), (1, {"SLURM_STEP_ID": "3"})]:
        plans = [["make a", "read a"]] * ranks
        slurm = {"SLURM_JOB_ID": "4711", **numbers}
        assert_all_end_well(world, start_ranks(world, plans, TORCHELASTIC_RUN_ID="none", **slurm))
    names = sorted(it.name for it in Path(".tierfeed/runs").iterdir())
    assert len(names) == 2 and all("-slurm-4711." in name for name in names), names


def test_a_first_rank_that_cannot_start_ends_the_others_with_the_reason(tmp_path) -> None:
    world = make_world(tmp_path, ranks=2)
    (tmp_path / "data").rename(tmp_path / "moved")
    for rank in reversed(start_ranks(world, [["make a"]] * 2)):
        _, errors = rank.communicate(timeout=node.TIMEOUT_S)
        assert rank.returncode == 1
        last = errors.strip().splitlines()[-1]
        assert "Reconfigure: " in last and f"{tmp_path}/data" in last, errors
        assert "arguments:" not in last, errors


def test_a_world_without_a_rank_is_refused(tmp_path) -> None:
    world = make_world(tmp_path)
    script = f"import tierfeed; tierfeed.connect({source_of(world)!r}, batch_size=4)"
    variables = {"WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=node.TIMEOUT_S,
    )
    assert "Reconfigure: WORLD_SIZE=2 of torchrun, but nothing says which rank" in done.stderr


def test_an_agent_that_died_is_started_again_and_all_ranks_find_it(tmp_path) -> None:
    world = make_world(tmp_path)
    with pytest.warns(RuntimeWarning, match="the agent is gone.*; tierfeed tries to start it again"):
        feed = tierfeed.connect(source_of(world), **keys_of(world))
        first = feed._embedded._process
        batches = feed.epoch(0)
        assert next(batches).origin == "agent"
        first.kill()
        first.wait()
        origins = [batch.origin for batch in batches]
        assert len(origins) == 12 and "direct" in origins
    feed._embedded._starting.join()
    assert feed._embedded._process is not first
    assert {batch.origin for batch in feed.epoch(1)} == {"agent"}
    second = feed._embedded._process
    feed.close()
    assert second.poll() == 0


def test_a_process_that_is_replaced_leaves_no_pipe_open() -> None:
    dead, new, late = (subprocess.Popen(["true"], stdin=subprocess.PIPE) for _ in range(3))
    dead.wait()
    beside = embedded._Beside(dead)
    beside.replace(new)
    assert beside.process is new
    assert dead.stdin.closed and not new.stdin.closed
    beside.end()
    beside.replace(late)
    assert beside.process is new and new.stdin.closed and late.stdin.closed


def test_an_agent_that_says_nothing_before_it_is_ready_is_not_waited_for(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tierfeed import embedded

    program = tmp_path / "silent"
    program.write_text("#!/bin/sh\nread job\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setenv("TIERFEED_EXE", str(program))
    monkeypatch.setattr(embedded, "SILENT_MAX_S", 0.1)
    with pytest.raises(tierfeed.Retry, match="has said nothing for"):
        tierfeed.connect(str(tmp_path), batch_size=4)
