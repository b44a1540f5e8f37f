"""Checks that the commands of SPECIFICATION.md and docs/figures.md exist, and their quoted constants.

Without arguments it looks at the source: named files, benches, options of `tierfeed-bench`, make
targets, and constants written as `NAME` = VALUE, with their module where several have the name. Every
row under "Kept" must name a command that shows it, every row must be short and links to at most one
section of docs/figures.md, and every section there must have a row. With --tests it asks cargo
nextest and pytest which tests there are (they must have been built), and each command must select at
least one.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from limits import all_constants, numbers_in, value_of

PAGE = Path("SPECIFICATION.md")
FIGURES = Path("docs/figures.md")
ROW_WORDS_MAX = 25
TEST_FILE = re.compile(r"^[\w/-]+/tests/[\w/*-]+(?:\.(?:rs|py))?$")
TOLERANCE = re.compile(r"`((?:\w+::)*[A-Z][A-Z0-9_]+)` = ([^;,)|]+)")

OPTIONS = re.compile(
    r"#\[derive\([^\]]*\bArgs\b[^\]]*\)\]\n(?:pub(?:\(crate\))? )?struct \w+[^{;]*\{(.*?)\n\}",
    re.DOTALL,
)

Test = tuple[str, str, str]
"""Package, test binary, name of the test."""


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def commands(text: str, column: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """Every command between backticks, of tables only that of a column, with the line it stands in.

    `-p` goes on with nextest.
    """
    for number, line in enumerate(text.splitlines(), 1):
        places = [line] if column is None else cells(line)[column : column + 1]
        for quoted in re.findall(r"`([^`]+)`", " ".join(places)):
            words = [word for word in quoted.split() if not re.match(r"^[A-Z_]+=", word)]
            if words and words[0] == "-p":
                words = ["cargo", "nextest", "run", *words]
            if words:
                yield number, words


def is_command(words: list[str]) -> bool:
    """Whether these words can be typed to see a promise kept; a file of tests stands for its tests."""
    match words:
        case ["make" | "tierfeed" | "tierfeed-bench", _, *_]:
            return True
        case ["cargo", "bench" | "nextest" | "test", *_]:
            return True
        case [path]:
            return TEST_FILE.match(path) is not None
    return False


def body_rows(text: str) -> Iterator[tuple[int, str]]:
    """The rows of all tables, without their headers, with the line that each stands in."""
    is_body = False
    for number, line in enumerate(text.splitlines(), 1):
        is_separator = line.startswith("|--")
        is_body = line.startswith("|") and (is_body or is_separator)
        if is_body and not is_separator:
            yield number, line


def kept_without_command(text: str) -> Iterator[tuple[int, str]]:
    """The line and the promise of every row under "Kept" that no command shows."""
    shown = {line for line, words in commands(text, column=1) if is_command(words)}
    bodies = dict(body_rows(text))
    is_kept = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            is_kept = line == "## Kept"
        if is_kept and number in bodies and number not in shown:
            yield number, cells(line)[0]


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def wrong_rows(text: str, figures: str) -> Iterator[str]:
    """Rows that are long or link to several sections of the figures, and unlinked sections."""
    headings = [heading.strip() for heading in re.findall(r"^### (.+)$", figures, re.MULTILINE)]
    unlinked = {anchor_of(heading): heading for heading in headings}
    if len(unlinked) < len(headings):
        yield f"{FIGURES}: two sections have the same name"
    anchors = set(unlinked)
    for number, row in body_rows(text):
        linked = re.findall(rf"\]\({re.escape(str(FIGURES))}#([\w-]+)\)", row)
        if len(linked) > 1 or not anchors.issuperset(linked):
            yield f"{PAGE}:{number}: may link to one section of {FIGURES}: {cells(row)[0]}"
        unlinked = {anchor: name for anchor, name in unlinked.items() if anchor not in linked}
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(cells(row)))
        if len(shown.split()) > ROW_WORDS_MAX:
            words = f"{len(shown.split())} words, at most {ROW_WORDS_MAX}"
            yield f"{PAGE}:{number}: {words}; details belong into {FIGURES}: {cells(row)[0]}"
    for name in unlinked.values():
        yield f"{FIGURES}: no row of {PAGE} links to the section {name}"


def wrong_constants(page: Path, text: str, constants: dict[str, list[str]]) -> Iterator[str]:
    """Quoted constants that the source does not have, or with another value."""
    for line, row in enumerate(text.splitlines(), 1):
        for name, quoted in TOLERANCE.findall(row):
            known = constants.get("::".join(name.split("::")[-2:]), [])
            values = {it for one in known for it in value_of(one, constants)}
            if len(values) > 1:
                yield f"{page}:{line}: {name} is {', '.join(known)}: write the module before it"
            elif not values & numbers_in(quoted):
                found = ", ".join(known) or "no constant"
                yield f"{page}:{line}: {name} is {found}, not {quoted}"


def options_of(words: list[str]) -> dict[str, str]:
    pairs = zip(words, [*words[1:], ""], strict=True)
    return {word: value for word, value in pairs if word.startswith("-")}


def selected(words: list[str], tests: list[Test]) -> list[list[Test]]:
    """The tests that each filter of a `cargo nextest run` selects."""
    package, binary, filters = "", "", []
    rest = iter(words[3:])
    for word in rest:
        if word in ("-p", "--package"):
            package = next(rest)
        elif word == "--test":
            binary = next(rest)
        elif not word.startswith("-"):
            filters.append(word)
    of_package = [test for test in tests if test[0] == package and binary in ("", test[1])]
    return [[test for test in of_package if it in test[2]] for it in filters or [""]]


def built_tests() -> list[Test]:
    line = ["cargo", "nextest", "list", "--workspace", "--message-format", "json"]
    listed = subprocess.run(line, capture_output=True, text=True)
    if listed.returncode != 0:
        sys.exit(f"`{' '.join(line)}` failed:\n{listed.stderr}")
    suites = json.loads(listed.stdout)["rust-suites"].values()
    return [
        (suite["package-name"], suite["binary-name"], name)
        for suite in suites
        for name in suite["testcases"]
    ]


def collected_tests() -> dict[str, int]:
    """How many tests pytest finds in each file."""
    found: dict[str, int] = {}
    for folder in ("python/tests", "demo/tests"):
        line = [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            "python/pyproject.toml",
            "-q",
            "--collect-only",
        ]
        listed = subprocess.run([*line, folder], capture_output=True, text=True)
        if listed.returncode != 0:
            sys.exit(f"pytest cannot collect {folder}:\n{listed.stdout}{listed.stderr}")
        for name in re.findall(r"^(\S+?\.py)::", listed.stdout, re.MULTILINE):
            path = f"{folder}/{Path(name).name}"
            found[path] = found.get(path, 0) + 1
    return found


def wrong_bench(words: list[str]) -> str | None:
    """What is wrong with a `tierfeed-bench NAME --option ...`."""
    program = Path("benchmarks/src/main.rs")
    name = "".join(part.capitalize() for part in words[1].split("-"))
    text = program.read_text(encoding="utf-8")
    bench = re.search(rf"^    {name}\((?:Command<)?(\w+)", text, re.MULTILINE)
    if bench is None:
        return f"there is no `tierfeed-bench {words[1]}`"
    # Two benches are the program tierfeed-chaos, and one has options of two modules.
    modules = {"ForwardedArguments": ["arguments"], "Peers": ["peers", "peers_transport"]}
    names = modules.get(bench[1], [bench[1]])
    folders = ("benchmarks/src", "benchmarks/experiments/src", "verification/chaos/src")
    files = [Path(folder, f"{module}.rs") for folder in folders for module in names]
    shared = ("harness/src/bench.rs", "harness/src/output.rs", "experiments/src/record.rs")
    files += [program, *(Path("benchmarks", file) for file in shared)]
    texts = (file.read_text(encoding="utf-8") for file in files if file.exists())
    fields = "".join(found for text in texts for found in OPTIONS.findall(text))
    for option in options_of(words):
        field = option[2:].replace("-", "_")
        is_renamed = f'long = "{option[2:]}"' in fields
        if not is_renamed and not re.search(
            rf"^    (?:pub(?:\(crate\))? )?{field}:", fields, re.MULTILINE
        ):
            return f"`tierfeed-bench {words[1]}` has no option {option}"
    return None


def folder_of(package: str) -> Path | None:
    """The folder of a package."""
    name = package.removeprefix("tierfeed-")
    folders = [Path(above, name) for above in ("", "benchmarks", "platform", "verification")]
    return next((folder for folder in folders if (folder / "Cargo.toml").exists()), None)


def wrong_command(words: list[str]) -> str | None:
    """What is wrong with a command, as far as the source tells."""
    match words:
        case [path] if TEST_FILE.match(path) and not list(Path().glob(path)):
            return f"there is no {path}"
        case ["make", *targets]:
            makefile = Path("Makefile").read_text(encoding="utf-8")
            for target in targets:
                if not re.search(rf"^{target}:", makefile, re.MULTILINE):
                    return f"there is no `make {target}`"
        case ["cargo", "bench", *_]:
            bench = options_of(words).get("--bench")
            if bench and not Path(f"benchmarks/benches/{bench}.rs").exists():
                return f"there is no bench {bench}"
        case ["cargo", "nextest", "run", *_]:
            package = options_of(words).get("-p", "")
            if not (package in ("", "tierfeed") or folder_of(package)):
                return f"there is no package {package}"
        case ["tierfeed-bench", _, *_]:
            return wrong_bench(words)
    return None


def wrong_selection(words: list[str], tests: list[Test], collected: dict[str, int]) -> str | None:
    """What a command of tests fails to select."""
    match words:
        case ["cargo", "nextest", "run", *_]:
            for number, found in enumerate(selected(words, tests)):
                if not found:
                    return f"`{' '.join(words)}`: filter {number + 1} selects no test"
        case [path] if TEST_FILE.match(path) and path.startswith(("python/", "demo/")):
            if not any(str(it) in collected for it in Path().glob(path)):
                return f"pytest finds no test in {path}"
    return None


def main() -> int:
    texts = {page: page.read_text(encoding="utf-8") for page in (PAGE, FIGURES)}
    wrong = list(wrong_rows(texts[PAGE], texts[FIGURES]))
    tests: list[Test] = []
    collected: dict[str, int] = {}
    has_tests = "--tests" in sys.argv[1:]
    if has_tests:
        tests, collected = built_tests(), collected_tests()
    for line, promise in kept_without_command(texts[PAGE]):
        wrong.append(f"{PAGE}:{line}: no command shows that it is kept: {promise}")
    constants = all_constants()
    for page, text in texts.items():
        wrong += wrong_constants(page, text, constants)
        for line, words in commands(text):
            problem = wrong_command(words)
            if problem is None and has_tests:
                problem = wrong_selection(words, tests, collected)
            if problem:
                wrong.append(f"{page}:{line}: {problem}")
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
