"""The demo's modules are scripts beside each other, not a package; the tests find them there."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
