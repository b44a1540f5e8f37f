"""Parses the text of a Python file, and what can be kept of it if it has syntax errors.

1. For any text this ends with statements and a list of what is wrong, never with an exception.
2. A line that is no Python 3 is replaced, and the others are kept. The effort is limited by
   `RECOVERY_BYTES_MAX`; of a file that needs more nothing is analysed.
"""

from __future__ import annotations

import ast
import re
import warnings

SYNTAX_ERRORS_MAX = 20  # Syntax errors that are reported of one file.
DEPTH_MAX = 2_000  # Expressions and blocks inside one another.
RECOVERY_BYTES_MAX = 8 << 20  # What is parsed, in all, to find the syntax errors of one file.
SHOWN_MAX = 60  # Letters of a source that are shown.

PYTHON_2 = re.compile(r"(?:print|exec)\s+[^\s=(.\[]|(?:except\s+\w[\w.]*|raise\s+\w+)\s*,")


def shortened(text: str) -> str:
    """One line of at most 60 letters."""
    line = " ".join(text[: 8 * SHOWN_MAX].split())
    return line if len(line) <= SHOWN_MAX else f"{line[: SHOWN_MAX - 1]}…"


def parse(text: str) -> tuple[list[ast.stmt], list[tuple[int, str]]]:
    """The statements of a text, and its syntax errors by line."""
    lines = text.replace("\0", "\ufffd").split("\n")
    problems, choices = dict[int, str](), dict[int, list[str]]()
    bytes_left = RECOVERY_BYTES_MAX
    while bytes_left > 0:
        tree = attempt("\n".join(lines))
        if isinstance(tree, ast.Module):
            return tree.body, sorted(problems.items())[:SYNTAX_ERRORS_MAX]
        line = line_of(tree, lines)
        # The error may be of a header above, whose block is missing or was replaced.
        while line > 0 and (not lines[line].strip() or choices.get(line) == []):
            line -= 1
        follows = line - 1 in choices and isinstance(tree, IndentationError)
        said = "is Python 2" if PYTHON_2.match(lines[line].strip()) else "is not understood"
        if line not in choices and not follows:
            problems[line + 1] = f"`{shortened(lines[line])}` {said}"
        left = choices.setdefault(line, replacements(lines[line], tree))
        if not left:
            break
        lines[line] = left.pop()
        bytes_left -= sum(map(len, lines[: line + 1])) + len(lines)
    problems[1] = "the file is no Python 3, or nests too deeply; it is left out"
    return [], sorted(problems.items())[:SYNTAX_ERRORS_MAX]


def attempt(text: str) -> ast.Module | Exception:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return error
    level: list[ast.AST] = [tree]
    for _ in range(DEPTH_MAX):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return tree
    return RecursionError("nested too deeply")


def line_of(error: Exception, lines: list[str]) -> int:
    """The line, from 0, that an error is about; what nests too deeply is taken to be the longest."""
    if not isinstance(error, SyntaxError):
        return max(range(len(lines)), key=lambda it: len(lines[it]))
    header = re.search(r"expected an indented block.* on line (\d+)", error.msg)
    line = int(header[1]) if header else error.lineno or 1
    return max(0, min(line, len(lines)) - 1)


def replacements(line: str, error: Exception) -> list[str]:
    """What may stand for a line that is no Python; the last is tried first."""
    start, text = line[: len(line) - len(line.lstrip())], line.split("#")[0].strip()
    if isinstance(error, IndentationError) and "expected an indented block" not in error.msg:
        return [""]
    if isinstance(error, IndentationError) or not text.endswith(":"):
        return ["", f"{start}pass"]
    headers = {it: f"{it}:" for it in ("else", "try", "finally")}
    headers.update({"except": "except Exception:", "elif": "elif _:"})
    return ["", f"{start}pass", start + headers.get(re.split(r"\W", text)[0], "with 0:")]
