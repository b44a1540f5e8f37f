"""Checks the links of the pages: files and headings that they name exist, and README.md stays short."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

README_LINES_MAX = 120
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
CODE = re.compile(r"```.*?```", re.DOTALL)


@cache
def anchors(page: Path) -> set[str]:
    """The headings of a page as links name them: lower case, without punctuation, dashes for spaces."""
    headings = re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> list[str]:
    found = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        for path, anchor in LINK.findall(line):
            target = page.parent / path if path else page
            if "://" in path:
                continue
            if not target.exists():
                found.append(f"{page}:{number}: there is no {path}")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                found.append(f"{page}:{number}: {path or page} has no heading #{anchor}")
    return found


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    pages = [page for page in map(Path, listed.stdout.splitlines()) if page.exists()]
    problems = [it for page in pages for it in broken(page)]
    lines = len(Path("README.md").read_text(encoding="utf-8").splitlines())
    if lines > README_LINES_MAX:
        problems.append(f"README.md has {lines} lines, {README_LINES_MAX} at most: docs/ has the rest")
    print(*problems, sep="\n", end="\n" if problems else "", file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
