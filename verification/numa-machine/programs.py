"""Lists the programs that cargo built, from its messages on standard input.

Prints a line for each: test or program, package, target, folder of the package, path.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    """Reads standard input, writes standard output."""
    for line in sys.stdin:
        message = json.loads(line)
        program = message.get("executable")
        if program is None:
            continue
        kind = "test" if message["profile"]["test"] else "program"
        folder = Path(message["manifest_path"]).parent
        print(kind, folder.name, message["target"]["name"], folder, program, sep="\t")


main()
