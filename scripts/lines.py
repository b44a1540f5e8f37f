"""Counts lines of Rust without tests, by crate, and names functions that are too long.

    python scripts/lines.py [REVISION]

With a revision of this repository its counts stand beside those of the working tree. Comments count, and
tests do not: files of tests, benches and examples, and what follows `#[cfg(test)]` and `mod` in a file.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path, PurePath

FUNCTION_LINES_MAX = 70
OF_TESTS = re.compile(r"(^|/)(tests|benches|examples|test_server|tests_support)(/|\.rs$)")
TEST_MODULE = re.compile(
    r"^ *#\[cfg\((?:all\()?test\b.*\]\n(?: *#\[.*\]\n)*(?:pub(?:\(.*\))? )?mod \w+ \{", re.MULTILINE
)
FUNCTION = re.compile(r"^( *)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern \"C\" )*fn (\w+)")


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def sources(revision: str | None) -> dict[str, str]:
    """The Rust files and manifests, by their paths."""
    if revision is None:
        names = git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
        return {
            name: Path(name).read_text(encoding="utf-8")
            for name in names
            if name.endswith((".rs", "Cargo.toml")) and Path(name).exists()
        }
    names = git("ls-tree", "-r", "--name-only", revision).splitlines()
    names = [name for name in names if name.endswith((".rs", "Cargo.toml"))]
    return {name: git("show", f"{revision}:{name}") for name in names}


def production(text: str) -> list[str]:
    return TEST_MODULE.split(text, maxsplit=1)[0].splitlines()


def by_crate(files: dict[str, str]) -> Counter[str]:
    crates = {str(PurePath(name).parent) for name in files if name.endswith("Cargo.toml")} - {"."}
    counts: Counter[str] = Counter()
    for name, text in files.items():
        if name.endswith(".rs") and not OF_TESTS.search(name):
            above = [str(folder) for folder in PurePath(name).parents]
            crate = next((folder for folder in above if folder in crates), None)
            if crate is not None:
                counts[crate] += len(production(text))
    return counts


def is_short(lines: list[str]) -> bool:
    """Whether a function has no body, as in a trait, or one on the line of its name."""
    ends = (re.sub(r"//.*", "", line).rstrip()[-1:] for line in lines)
    return next((end != "{" for end in ends if end in (";", "{", "}")), True)


def long_functions(files: dict[str, str]) -> list[str]:
    found = []
    for name, text in files.items():
        if not name.endswith(".rs") or OF_TESTS.search(name):
            continue
        lines = production(text)
        for start, line in enumerate(lines):
            if (head := FUNCTION.match(line)) is None or is_short(lines[start:]):
                continue
            end = f"{head[1]}}}"
            length = next((at for at, it in enumerate(lines[start:], 1) if it == end), 0)
            if length > FUNCTION_LINES_MAX:
                found.append(f"{name}:{start + 1}: {head[2]}: {length} lines")
    return found


def main() -> int:
    now = sources(None)
    counts = by_crate(now)
    before = by_crate(sources(sys.argv[1])) if len(sys.argv) > 1 else None
    for crate in sorted({*counts, *(before or ())}):
        print(f"{crate:<28}{counts[crate]:>8}" + (f"{before[crate]:>10}" if before else ""))
    print(f"{'sum':<28}{counts.total():>8}" + (f"{before.total():>10}" if before else ""))
    too_long = long_functions(now)
    for line in too_long:
        print(f"{line}, at most {FUNCTION_LINES_MAX}", file=sys.stderr)
    return 1 if too_long else 0


if __name__ == "__main__":
    sys.exit(main())
