"""What the package asks of the program, and what it makes of the answers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import tierfeed
from conftest import World
from tierfeed import program


def played(folder: Path, script: str) -> str:
    played = folder / "tierfeed"
    played.write_text(f"#!/bin/sh\n{script}\n")
    played.chmod(0o755)
    return str(played)


def test_a_program_that_does_not_know_the_question_is_of_another_version(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERFEED_EXE", played(tmp_path, "echo usage >&2; exit 2"))
    with pytest.raises(tierfeed.Reconfigure, match="same version"):
        tierfeed.Index.build(world.files[0].parents[1], format="image-folder")


def test_signals_of_a_training_end_no_process_that_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIERFEED_EXE", played(tmp_path, "kill -HUP $$; kill -USR1 $$; echo alive"))
    with program.start() as started:
        assert started.stdout is not None and started.stdout.read() == b"alive\n"
    assert signal.SIGUSR1 not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_message_is_whole_though_it_quotes_an_error(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "echo 'a warning' >&2; echo 'error: a.h5: it said: error: no such thing' >&2; exit 5"
    monkeypatch.setenv("TIERFEED_EXE", played(tmp_path, script))
    with pytest.raises(tierfeed.Reconfigure) as raised:
        tierfeed.Index.build(world.files[0].parents[1], format="image-folder")
    assert str(raised.value) == "a.h5: it said: error: no such thing"


def test_the_path_of_an_index_need_not_be_text(world: World, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.tfx")
    index = tierfeed.Index.build(world.files[0].parents[1], format="image-folder", path=path)
    assert len(index) == 50
    with pytest.warns(RuntimeWarning), pytest.raises(tierfeed.Reconfigure, match="must be UTF-8"):
        tierfeed.connect(job=str(world.job), index=path)
