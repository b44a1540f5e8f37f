"""Compares docs/limits.md with the constants that it names.

Every name in the column `constant` that is written in capitals must be a constant of the source, and
the value beside it must contain the value of that constant, in any of the units of the page. Where
several constants have one name, one of them must fit. Every other name there must be that of a function,
a type, a field, a module or a file.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

PAGE = Path("docs/limits.md")
CONSTANT = re.compile(
    r"^ *(?:pub(?:\([a-z]+\))? )?const ([A-Z][A-Z0-9_]*): (?:\[[^]]*\]|[^=;[])+=\s*(.+?);",
    re.MULTILINE | re.DOTALL,
)
PYTHON_CONSTANT = re.compile(r"^([A-Z][A-Z0-9_]*)(?:: [^=]+)? = (.+)$", re.MULTILINE)
CAPITALS = re.compile(r"(?:[a-z_]+::)*(_?[A-Z][A-Z0-9_]+)")
DEFINED = re.compile(
    r"\b(?:fn|struct|enum|trait|type|mod|def|class) (\w+)|^ *(?:pub(?:\([a-z]+\))? )?(\w+): ",
    re.MULTILINE,
)
UNITS: dict[str, int | Fraction] = {
    "B": 1, "byte": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
    "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "%": 1,
}  # fmt: skip
WORDS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "eight": 8, "ten": 10, "twice": 2,
    "second": 10**9,
}  # fmt: skip
PARTS = {"half": 2, "quarter": 4, "eighth": 8, "tenth": 10, "twentieth": 20, "400th": 400}


def sources(*patterns: str) -> Iterator[tuple[str, str]]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if Path(name).exists():
            yield name, Path(name).read_text(encoding="utf-8")


def value_of(expression: str, constants: dict[str, list[str]], depth: int = 0) -> set[Fraction]:
    """What an expression of a constant may be, as a number of bytes, nanoseconds or things."""
    text = re.sub(r"\s+", " ", expression).strip()
    text = re.sub(r"\.expect\(.*?\)|\.unwrap\(\)|\.get\(\)|\.0\b", "", text)
    text = re.sub(r"(?<=\d)_(?=\d)", "", text)
    text = re.sub(r"(?<=\d)_?(?:u8|u16|u32|u64|u128|usize|i32|i64|f64)\b", "", text)
    text = re.sub(r"\bas (?:u\d+|usize|f64)", "", text)
    for name, factor in [("kib", 1 << 10), ("mib", 1 << 20), ("gib", 1 << 30)]:
        text = text.replace(f"Bytes::{name}(", f"{factor} * (")
    for name, factor in [("secs", 10**9), ("millis", 10**6), ("micros", 10**3), ("nanos", 1)]:
        text = text.replace(f"Duration::from_{name}(", f"{factor} * (")
    text = re.sub(r"\b(?:Bytes|Nanoseconds|Percent|NonZero\w*::new|Some)\(", "(", text)
    choices = {text}
    for name in set(re.findall(r"\b(?:[A-Za-z_]+::)*[A-Z][A-Z0-9_]{2,}\b", text)):
        if depth > 4:
            return set()
        known = constants.get(name.split("::")[-1], [])
        values = {it for one in known for it in value_of(one, constants, depth + 1)}
        choices = {text.replace(name, f"({value})") for text in choices for value in values}
    found = set()
    for choice in choices:
        if not re.fullmatch(r"[\d\s.+*/()<>|e-]+", choice):
            continue
        try:
            found.add(Fraction(str(eval(choice.replace("/", "//"), {"__builtins__": {}}))))
        except (SyntaxError, TypeError, ValueError, ZeroDivisionError):
            continue
    return found


def numbers_in(cell: str) -> set[Fraction]:
    """Every number of a cell, plain and in its unit."""
    text = re.sub(r"(?<=\d) (?=\d{3}\b)", "", cell)
    found = {Fraction(number) for word, number in WORDS.items() if re.search(rf"\b{word}\b", text)}
    found |= {Fraction(part) for word, part in PARTS.items() if re.search(rf"\b{word}\b", text)}
    for base, power in re.findall(r"(\d+)\^(\d+)(?: - 1)?", text):
        found |= {Fraction(int(base) ** int(power)), Fraction(int(base) ** int(power) - 1)}
    shared = "|".join(map(re.escape, UNITS))
    for number, tail in re.findall(r"(\d+(?:\.\d+)?)(?=((?:(?: to|,| and) \d+)* ?[A-Za-z%]*))", text):
        value = Fraction(number)
        found.add(value)
        unit = re.search(rf"({shared})$", tail)
        if unit:
            found.add(value * UNITS[unit[1]])
            if unit[1] == "%":
                found |= {value / 100, 100 / value}
            if unit[1] in ("s", "ms", "min"):
                found |= {value * UNITS[unit[1]] / 10**9, value * UNITS[unit[1]] / 10**6}
    return found


def rows(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Line, what is limited, value and constants of each row of a table that names constants."""
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and not cells[2].startswith(("constant", "--")):
            yield number, cells[0], cells[1], cells[2]


def all_constants() -> dict[str, list[str]]:
    """The expressions of every constant, by its name alone and with its module (`index::TIME_MAX`)."""
    constants: dict[str, list[str]] = {}
    for name, text in sources("*.rs"):
        if not re.search(r"(^|/)(benches|examples|test_server)(/|\.rs)", name):
            module = Path(name).parent.name if Path(name).stem == "main" else Path(name).stem
            for constant, expression in CONSTANT.findall(text):
                constants.setdefault(constant, []).append(expression)
                constants.setdefault(f"{module}::{constant}", []).append(expression)
    for _, text in sources("python/python/*.py"):
        for constant, expression in PYTHON_CONSTANT.findall(text):
            constants.setdefault(constant, []).append(expression.split("#")[0])
    return constants


def named_sources() -> list[tuple[set[str], set[str]]]:
    """What each file defines, with its path, and every word in it."""
    found = []
    for path, text in sources("*.rs", "python/python/*.py"):
        defined = {word for names in DEFINED.findall(text) for word in names}
        defined |= {Path(path).name, Path(path).stem, *Path(path).parent.parts}
        found.append((defined, defined | set(re.findall(r"\w+", text))))
    return found


def is_there(name: str, named: list[tuple[set[str], set[str]]]) -> bool:
    """Whether a file defines the last part of `Type::function` or `x/y.rs` and knows the others."""
    *others, last = re.split(r"::|/|\.(?!rs$)", name)
    return any(last in defined and words.issuperset(others) for defined, words in named)


def main() -> int:
    constants, named = all_constants(), named_sources()
    wrong, compared = [], 0
    for line, limited, value, names in rows(PAGE.read_text(encoding="utf-8")):
        last = ""
        for name in re.findall(r"`([^`]+)`", names):
            match = CAPITALS.fullmatch(name)
            if match is None:
                if not is_there(name, named):
                    wrong.append(f"{PAGE}:{line}: {limited}: there is no {name}")
                continue
            constant = match[1]
            if constant.startswith("SO_"):
                # An option of the kernel, whose number is no limit.
                continue
            if constant.startswith("_"):
                constant = last.rsplit("_", 1)[0] + constant
            last = constant
            if constant not in constants:
                wrong.append(f"{PAGE}:{line}: {limited}: no constant {constant} in the source")
                continue
            values = {it for one in constants[constant] for it in value_of(one, constants)}
            if not values:
                continue
            compared += 1
            if not values & numbers_in(value):
                shown = ", ".join(sorted({one.strip() for one in constants[constant]}))
                wrong.append(f"{PAGE}:{line}: {limited}: {constant} is {shown}, the page says {value}")
    print(*wrong, sep="\n", file=sys.stderr, end="\n" if wrong else "")
    if compared < 50:
        wrong.append("too few")
        print(f"{PAGE}: only {compared} constants were compared", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
