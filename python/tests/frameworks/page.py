"""Runs the training script of a page of `docs/frameworks` as it stands there, but for the dataset."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path

import numpy

PAGES = Path(__file__).parents[3] / "docs" / "frameworks"
SCRIPT = re.compile(r"```python\n(.*?)```", re.DOTALL)


def script(page: str, placeholder: str, source: str) -> str:
    """The first code of a page, with another dataset."""
    code = SCRIPT.search((PAGES / f"{page}.md").read_text())
    assert code is not None and placeholder in code[1], f"no script over {placeholder} in {page}.md"
    return code[1].replace(placeholder, source)


def run(page: str, placeholder: str, source: str) -> str:
    """What the script prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = compile(script(page, placeholder, os.path.abspath(source)), f"{page}.md", "exec")
        exec(code, {"__name__": "__main__"})
    return output.getvalue()


def write_cifar(root: Path, count: int = 96) -> None:
    """Records as CIFAR-10 has them: a label and 3 x 32 x 32 bytes. The image tells the label."""
    root.mkdir()
    generator = numpy.random.default_rng(1)
    labels = generator.integers(0, 10, (count, 1), numpy.uint8)
    images = generator.integers(0, 32, (count, 3072), numpy.uint8) + 20 * labels
    (root / "data_batch_1.bin").write_bytes(numpy.hstack([labels, images]).tobytes())
