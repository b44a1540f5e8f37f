"""A training whose dataset lies on shared storage when its job starts."""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def copied(settings: Any) -> Any:
    """Settings over a copy on a local disk, which is made first, as job scripts do."""
    target = settings.job["copy_to"]
    # At the end, where no clock runs.
    atexit.register(shutil.rmtree, target)
    subprocess.run(["cp", "--recursive", settings.data, target], check=True)
    return dataclasses.replace(settings, data=target)


STARTED = "LOADERS_STARTED"
"""When a job began whose process became `tierfeed run`."""


def become_tierfeed_run(settings: Any) -> None:
    """Goes on as `tierfeed run`, which starts this script again: its agent reads beside the imports.

    Returns in the script that it has started.
    """
    if STARTED in os.environ:
        return
    keys = dict(settings.job)
    run_dir = Path(keys.pop("run_dir"))
    shutil.rmtree(run_dir, ignore_errors=True)
    run_dir.mkdir()
    page_cache = {key: keys.pop(key) for key in ["page_cache"] if key in keys}
    source = {"source": settings.data, "format": "files", "glob": "**/*.jpg"}
    order = {"shuffle": "torch-distributed", "seed": settings.seed, "epochs": settings.epochs}
    job = {
        "name": "staged",
        "dataset": source | page_cache,
        "order": order,
        "batch_size": settings.batch_size,
    }
    path = run_dir / "job.yaml"
    # JSON is YAML.
    path.write_text(json.dumps(job | keys))
    os.environ[STARTED] = str(process_start())
    program = os.environ["TIERFEED_EXE"]
    run = [program, "run", str(path), "--run-dir", str(run_dir), "--", sys.executable, *sys.argv]
    os.execv(program, run)


def tierfeed_run(settings: Any) -> Any:
    """What the job file says, by the agent that has been started."""
    from tierfeed.torch import TierLoader

    with TierLoader() as loader:
        for _ in range(settings.epochs):
            yield (samples for samples, _labels in loader)
        assert loader.feed.mode == "agent", loader.feed.mode


def seconds_since_start() -> float:
    """Since the job was started: all imports and all staging are part of it."""
    started = float(os.environ.get(STARTED) or process_start())
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


def process_start() -> float:
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")
