"""A rank that makes loaders: `rank_loaders.py FOLDER PLAN SOURCE KEYS`; the end of a line is a step.

`make N` makes a loader and calls it N, in place of the one before; `read N` reads it to its end;
`drop N` lets it go; `say W` makes a file FOLDER/W, `wait W` waits for one. Each loader is written to
FOLDER/RANK.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import node
import tierfeed


def main(folder: Path, plan: str, source: str, keys: dict[str, Any]) -> None:
    """One rank."""
    rank = os.environ["RANK"]
    loaders: dict[str, tierfeed.Feed] = {}
    for step in filter(None, plan.split("\n")):
        verb, what = step.split()
        if verb == "make":
            loaders[what] = tierfeed.connect(source, **keys)
        elif verb == "drop":
            del loaders[what]
        elif verb == "say":
            (folder / what).touch()
        elif verb == "wait":
            node.wait_for((folder / what).exists, what)
        else:
            feed = loaders[what]
            count = sum(len(batch) for batch in feed.epoch(0))
            with open(folder / rank, "a") as file:
                file.write(json.dumps([what, feed.samples, count, feed.mode]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], json.loads(sys.argv[4]))
