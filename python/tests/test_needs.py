"""A skip that the machine does not excuse is a failure, and each skip is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

import needs


def test_a_skip_is_recorded_with_its_need_and_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "skips"
    monkeypatch.setattr(needs, "SKIPS", str(record))
    for require in (None, "module-torch,-module-absent_here"):
        monkeypatch.setattr(needs, "REQUIRE", require)
        with pytest.raises(pytest.skip.Exception, match="for want of module-absent_here"):
            needs.module("absent_here.part")
    need, test, why = record.read_text().splitlines()[0].split("\t")
    assert (need, why) == ("module-absent_here", "No module named 'absent_here'")
    assert test.endswith("test_a_skip_is_recorded_with_its_need_and_reason")
    assert len(record.read_text().splitlines()) == 2


@pytest.mark.parametrize("require", ["all", "", "module-absent_here", "-module-other"])
def test_a_skip_that_the_machine_does_not_excuse_fails(
    require: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "REQUIRE", require)
    with pytest.raises(pytest.fail.Exception, match="does not excuse"):
        needs.module("absent_here")
