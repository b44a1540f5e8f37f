"""Counts lines of Rust without tests by crate, and words of documentation; fails above a budget.

    python scripts/lines.py [REVISION]
    python scripts/lines.py --record

With a revision of this repository its counts stand beside those of the working tree. Comments count, and
tests do not: files of tests, benches and examples, modules below `#[cfg(test)]`, and what follows such a
module in a file. Functions that are too long are named, too.

Budgets stand in `lines.toml`, in lines and words. `--record` lowers those that a crate has come below,
and raises none: who adds lines to a crate without room takes some out, or writes a new number by hand.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath

BUDGETS = Path(__file__).with_suffix(".toml")
FUNCTION_LINES_MAX = 70
OF_TESTS = re.compile(r"(^|/)(tests|benches|examples|test_server|tests_support)(/|\.rs$)")
TEST_MODULE = re.compile(
    r"^ *#\[cfg\((?:all\()?test\b.*\]\n(?: *#\[.*\]\n)*(?:pub(?:\(.*\))? )?mod \w+ \{", re.MULTILINE
)
TEST_FILE = re.compile(
    r"^#\[cfg\((?:all\()?test\b.*\]\n(?:#\[.*\]\n)*(?:pub(?:\(.*\))? )?mod (\w+);", re.MULTILINE
)
FUNCTION = re.compile(
    r"^( *)(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe |extern \"C\" )*fn (\w+)"
)


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def sources(revision: str | None) -> dict[str, str]:
    """The Rust files, manifests and pages, by their paths."""
    if revision is None:
        names = git("ls-files", "--cached", "--others", "--exclude-standard").splitlines()
        return {
            name: Path(name).read_text(encoding="utf-8")
            for name in names
            if name.endswith((".rs", ".md", "Cargo.toml")) and Path(name).exists()
        }
    names = git("ls-tree", "-r", "--name-only", revision).splitlines()
    names = [name for name in names if name.endswith((".rs", ".md", "Cargo.toml"))]
    return {name: git("show", f"{revision}:{name}") for name in names}


def test_files(files: dict[str, str]) -> Iterator[str]:
    """Modules that are compiled for tests only, with those below them."""
    for name, text in files.items():
        path = PurePath(name)
        folder = path.parent if path.stem in ("lib", "main", "mod") else path.with_suffix("")
        for module in TEST_FILE.findall(text):
            below = str(folder / module)
            yield from (it for it in files if it == f"{below}.rs" or it.startswith(f"{below}/"))


def production(text: str) -> list[str]:
    return TEST_MODULE.split(text, maxsplit=1)[0].splitlines()


def by_crate(files: dict[str, str]) -> Counter[str]:
    """Lines by the folder of their crate, and words by the kind of page."""
    crates = {str(PurePath(name).parent) for name in files if name.endswith("Cargo.toml")} - {"."}
    counts: Counter[str] = Counter()
    of_tests = set(test_files(files))
    for name, text in files.items():
        if name.endswith(".md"):
            counts["docs" if name.startswith("docs/") else "other pages"] += len(text.split())
        if name.endswith(".rs") and not OF_TESTS.search(name) and name not in of_tests:
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


def overdrawn(counts: Counter[str], budgets: dict[str, dict[str, int]]) -> list[str]:
    allowed = {crate: most for part in budgets.values() for crate, most in part.items()}
    found = [f"{crate} has no budget in {BUDGETS.name}" for crate in counts if crate not in allowed]
    found += [f"{crate} has a budget, and nothing in it" for crate in allowed if crate not in counts]
    return found + [
        f"{crate}: {counts[crate]}, of {most} in {BUDGETS.name}"
        for crate, most in allowed.items()
        if counts[crate] > most
    ]


def record(counts: Counter[str], budgets: dict[str, dict[str, int]]) -> None:
    text = BUDGETS.read_text(encoding="utf-8")
    for crate, most in (line for part in budgets.values() for line in part.items()):
        text = text.replace(f'"{crate}" = {most}\n', f'"{crate}" = {min(most, counts[crate])}\n')
    BUDGETS.write_text(text, encoding="utf-8")


def main() -> int:
    now = sources(None)
    counts = by_crate(now)
    budgets = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))
    if sys.argv[1:] == ["--record"]:
        record(counts, budgets)
        return 0
    columns = [counts, *(by_crate(sources(revision)) for revision in sys.argv[1:])]
    for part, crates in budgets.items():
        for crate in crates:
            print(f"{crate:<28}" + "".join(f"{column[crate]:>10}" for column in columns))
        sums = (sum(column[crate] for crate in crates) for column in columns)
        print(f"{part + ', in all':<28}" + "".join(f"{lines:>10}" for lines in sums))
    wrong = [f"{line}, at most {FUNCTION_LINES_MAX}" for line in long_functions(now)]
    wrong += overdrawn(counts, budgets)
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
