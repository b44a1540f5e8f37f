"""`python3 -I script_analysis train.py`: says what training scripts tell of their data.

Runs as a folder or a package, and imports nothing of the package around it.
"""

import argparse
import importlib.util
import json
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
NAME = "script_analysis"


def main() -> int:
    if sys.version_info < (3, 9):  # noqa: UP036
        print("Python 3.9 or later is needed", file=sys.stderr)
        return 2
    spec = importlib.util.spec_from_file_location(
        NAME, FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    if NAME not in sys.modules and spec and spec.loader:
        sys.modules[NAME] = importlib.util.module_from_spec(spec)
    analysis = importlib.import_module(f"{NAME}.analysis")
    load = importlib.import_module(f"{NAME}.load")
    parser = argparse.ArgumentParser(NAME, description="says what training scripts tell of their data")
    parser.add_argument("scripts", nargs="+")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    parser.add_argument("--job", type=json.loads, help="the keys of a job to compare with, as JSON")
    parser.add_argument("--start", action="store_true", help="what `tierfeed init` needs, as JSON")
    arguments = parser.parse_args()
    if arguments.start:
        start = importlib.import_module(f"{NAME}.start")
        json.dump(start.starts(arguments.scripts), sys.stdout)
        return 0
    try:
        found = analysis.analyze(arguments.scripts, arguments.job)
    except load.ScriptError as error:
        print(error, file=sys.stderr)
        return 2
    text = analysis.table(found)
    if arguments.json:
        text = json.dumps(analysis.document(found), indent=2, ensure_ascii=False) + "\n"
    sys.stdout.buffer.write(text.encode(errors="replace"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
