"""A training script for the tests: prints a line of JSON for each batch of its rank."""

import json
import sys
import time
import zlib

import tierfeed

feed = tierfeed.connect()
for epoch in range(feed.epochs):
    for batch in feed.epoch(epoch):
        crcs = [zlib.crc32(sample) for sample in batch]
        print(
            json.dumps(
                {"epoch": epoch, "samples": batch.samples, "crcs": crcs, "origin": batch.origin}
            ),
            flush=True,
        )
        time.sleep(float(sys.argv[1]))
