"""The training that this process belongs to, and its report.

>>> tierfeed.current().report()
"""

from __future__ import annotations

import html
import http.client
import json
import socket
from pathlib import Path
from typing import Any

from tierfeed import embedded, environment
from tierfeed._native import Gone

# The agent answers from its loop; one that hangs has no report.
ANSWERS_WITHIN_S = 20.0

# The height of a report in a notebook, in pixels; the page scrolls.
HEIGHT = 480


def current() -> Training:
    """The training of this process: that of `tierfeed run`, or the last that started its agent itself.

    Raises `Gone` if there is none.
    """
    run_dir, agent = environment.run_dir(), environment.socket()
    if run_dir is not None and agent is not None:
        return Training(Path(run_dir), agent)
    if (last := embedded.last_started()) is not None:
        return Training(last.run_dir, last.socket)
    raise Gone(
        "this process trains without an agent of tierfeed: there is nothing to report. Make a loader"
        ' first, TierLoader("/data/train", batch_size=256), or start it with `tierfeed run`'
    )


class Training:
    """An agent of this node, which runs or has ended, by its run directory."""

    def __init__(self, run_dir: Path, agent: str) -> None:
        self.run_dir = run_dir
        self._observed = str(Path(agent).with_name("observe.sock"))

    def report(self) -> Report:
        """The report of this node so far, or after the end of its agent the final one.

        It shows itself: as a page in a notebook, as text elsewhere. Raises `Gone` if the agent was
        killed.
        """
        if (figures := self._ask("/report.json")) is not None:
            return Report(json.loads(figures), self._ask("/report.html") or "", is_final=False)
        try:
            figures = (self.run_dir / "report.json").read_text()
            return Report(json.loads(figures), (self.run_dir / "report.html").read_text(), is_final=True)
        except OSError as error:
            raise Gone(f"there is no report: the agent does not answer, and {error}") from error

    def __repr__(self) -> str:
        return f"<tierfeed.Training in {self.run_dir}>"

    def _ask(self, page: str) -> str | None:
        connection = http.client.HTTPConnection("tierfeed", timeout=ANSWERS_WITHIN_S)
        connection.sock = socket.socket(socket.AF_UNIX)
        try:
            connection.sock.settimeout(ANSWERS_WITHIN_S)
            connection.sock.connect(self._observed)
            connection.request("GET", page)
            answer = connection.getresponse()
            text = answer.read().decode()
            return text if answer.status == http.client.OK else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


class Report:
    """The figures of a node, as `report.json` has them (docs/report.md)."""

    def __init__(self, figures: dict[str, Any], page: str, *, is_final: bool) -> None:
        self.figures = figures
        """The content of `report.json`."""
        self.is_final = is_final
        """Whether the agent has ended."""
        self._page = page

    def __str__(self) -> str:
        figures = self.figures
        hits = ", ".join(f"{tier} {samples}" for tier, samples in figures["tier_hits"].items())
        lines = [
            f"{figures['job']}: {figures['verdict']}",
            *(f"  would help: {advice['text']}" for advice in figures["advice"]),
            f"  {figures['steps']} batches, {figures['bytes']} bytes in {figures['wall_s']:.2f} s,"
            f" stall {figures['stall_s']:.3f} s, cold {figures['cold_read_bytes']} bytes,"
            f" hits: {hits or 'none'}",
        ]
        if not self.is_final:
            lines.append("  so far: the training runs")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        # A document of its own, so that neither its style nor that of the notebook changes the other.
        page = html.escape(self._page, quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: {HEIGHT}px; border: 0"></iframe>'
