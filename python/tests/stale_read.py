"""A fault on purpose: `scripts/sanitize/address.sh` sees AddressSanitizer end the process for it.

pytest collects it only by name. Without the sanitizer it passes: the memory is still mapped.
"""

from __future__ import annotations

import ctypes

import pytest

import tierfeed
from conftest import World
from node import Node

pytestmark = pytest.mark.node


def test_a_batch_that_went_back_is_read(world: World, running: Node) -> None:
    with tierfeed.connect() as feed:
        batch = next(iter(feed.epoch(0)))
        assert batch.origin == "agent"
        sample = batch[0]
        address, length = sample.address, sample.nbytes
        assert ctypes.string_at(address, length) == world.content(batch.samples[0])
        del batch, sample
        ctypes.string_at(address, length)
