"""Checks the absences that ARCHITECTURE.md states and that no compiler checks.

A rule is a pattern, the files that may contain it, and a reason. Tests, benches and examples are not
looked at: what follows `#[cfg(test)]` and `mod tests` in a file is a test.
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Rule(NamedTuple):
    name: str
    files: str
    pattern: re.Pattern[str]
    allowed: tuple[str, ...]
    instead: str


RULES = [
    Rule(
        "environment",
        "*.rs",
        re.compile(r"\benv::(?:var|var_os|vars|vars_os)\b|\buse std::env::(?:var|vars)"),
        (
            "benchmarks/harness/src/environment.rs",
            "cli/src/environment.rs",
            "platform/object-stores/src/environment.rs",
            # It passes one variable on to a child process, and decides nothing by it.
            "transform/src/worker_process.rs",
            # None is part of what is shipped.
            "platform/hdf5-indexer/build.rs",
            "platform/images/build.rs",
            "verification/models/src/main.rs",
            "verification/test-needs/src/lib.rs",
        ),
        "pass it in: the environment.rs of cli, of benchmarks/harness and of object-stores read it",
    ),
    Rule(
        "environment in Python",
        "python/python/tierfeed/*.py",
        re.compile(r"\bos\.(?:environ|getenv)\b"),
        (
            "python/python/tierfeed/environment.py",
            # Knows the calls of training scripts that read it.
            "python/python/tierfeed/script_analysis/*.py",
        ),
        "tierfeed/environment.py reads it",
    ),
    Rule(
        "unbounded channels",
        "*.rs",
        re.compile(r"\bmpsc::channel(?:::<[^>]*>)?\(\)|\bunbounded_channel\b|= channel\(\)"),
        (),
        "use sync_channel, or tokio's mpsc::channel with a bound from docs/limits.md",
    ),
    Rule(
        "skips that nobody counts",
        "*.rs",
        re.compile(r'print(?:ln)?!\("(?:skipped|SKIPPED|not run|not shown)'),
        ("verification/test-needs/src/lib.rs",),
        "call tierfeed_test_needs::skip",
    ),
    Rule(
        "skips that nobody counts",
        "*/tests/*.py",
        re.compile(r"\bpytest\.(?:skip\(|importorskip|mark\.skip)|\bunittest\.skip"),
        ("python/tests/needs.py",),
        "call needs.skip or needs.module of python/tests/needs.py",
    ),
]  # fmt: skip

TESTS = re.compile(
    r"^benchmarks/peers/|(^|/)(tests|benches|examples|test_server)(/|\.rs$)|tests_support\.rs$"
)
OF_TESTS = ("skips that nobody counts",)


def production(text: str) -> str:
    """The text before the tests of a file."""
    of_tests = r"^#\[cfg\(test\)\]\n(?:#\[.*\]\n)*(?:pub(?:\(.*\))? )?mod \w+ \{"
    return re.split(of_tests, text, maxsplit=1, flags=re.MULTILINE)[0]


def without_comments(line: str) -> str:
    return re.sub(r"^\s*(//|#(?!\[)).*|\s//\s.*", "", line)


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.rs", "*.py"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    wrong = 0
    for name in listed.stdout.splitlines():
        if not Path(name).exists():
            continue
        whole = Path(name).read_text(encoding="utf-8")
        for rule in RULES:
            is_of_tests = rule.name in OF_TESTS
            if not fnmatch.fnmatch(name, rule.files) or any(
                fnmatch.fnmatch(name, it) for it in rule.allowed
            ):
                continue
            if TESTS.search(name) and not is_of_tests:
                continue
            text = whole if is_of_tests else production(whole)
            for number, line in enumerate(text.splitlines(), 1):
                if rule.pattern.search(without_comments(line)):
                    print(f"{name}:{number}: {rule.name}: {line.strip()}", file=sys.stderr)
                    print(f"    {rule.instead}", file=sys.stderr)
                    wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
