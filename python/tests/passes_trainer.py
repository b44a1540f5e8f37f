"""A training script for the tests of several datasets: makes the passes that it is told, in this order.

`passes_trainer.py LOG PASSES [SOURCE KEYS]` writes `LOG.RANK`, a line of JSON per batch. `PASSES` is
JSON: a list of `[DATASET, EPOCH, BATCHES]`, where the dataset is null for the training set, the epoch
null for a loader without `set_epoch`, and the pass is left after so many batches, if that is not null.
`"begin"` and `"go on"` in place of an epoch iterate over the training set in two parts, with other
passes between. With a source, as JSON, the training starts its agent itself, with these keys.
"""

from __future__ import annotations

import itertools
import json
import sys
import zlib
from typing import Any

from tierfeed.torch import TierLoader


def main(log: str, passes: list[tuple[str | None, Any, int | None]], *given: Any) -> None:
    source, keys = given or (None, {})
    loaders: dict[str | None, TierLoader] = {None: TierLoader(source, **keys)}
    for name, _, _ in passes:
        if name not in loaders:
            loaders[name] = TierLoader(dataset=name)
    begun = None
    with open(f"{log}.{loaders[None].feed.rank}", "w") as file:
        for number, (name, epoch, batches) in enumerate(passes):
            loader = loaders[name]
            if isinstance(epoch, int):
                loader.set_epoch(epoch)
            if epoch == "begin":
                loader.set_epoch(0)
                begun = iter(loader)
            iterator = begun if epoch in ("begin", "go on") else iter(loader)
            for tensors, labels in itertools.islice(iterator, batches):
                crcs = [zlib.crc32(tensor.numpy()) for tensor in tensors]
                row = {"pass": number, "crcs": crcs, "labels": labels.tolist(), "len": len(loader)}
                file.write(json.dumps(row) + "\n")
        assert {it.feed.mode for it in loaders.values()} == {"agent"}


main(sys.argv[1], *map(json.loads, sys.argv[2:]))
