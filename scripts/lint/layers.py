"""Checks that arrows between crates go down, and that no modules of a crate import each other.

Crates stand in `LAYERS`, the highest first; one may depend on crates of lower layers only, and those of
`platform/` on each other. Modules are files. A module may import what is above or below it in its own
branch (`a` and `a::b`); any other two that reach each other through imports are a circle. A name that a
module takes from another one and passes on (`pub use`) counts as an import of where it is defined. The
top modules of a crate that `INNER` names stand in layers too: each imports those of lower layers only.
Tests and development dependencies are not looked at.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LAYERS = [
    ["tierfeed-benchmarks"],
    ["tierfeed-chaos", "tierfeed-experiments"],
    ["tierfeed-harness"],
    ["tierfeed", "tierfeed-python", "tierfeed-tensorflow"],
    ["tierfeed-runtime"],
    [
        "tierfeed-client",
        "tierfeed-prefetcher",
        "tierfeed-resource-gatherer",
        "tierfeed-transform-worker",
        "tierfeed-workload-analyzer",
    ],
    ["tierfeed-dataset", "tierfeed-handoff"],
    ["tierfeed-transform"],
    ["tierfeed-core"],
    ["platform"],
]
INNER = {
    "tierfeed-runtime": [
        ["agent", "manager", "predict"],
        ["dataset", "expansion", "layout", "run_dir"],
        ["schedule"],
        ["rpc"],
        ["observe"],
        ["transport"],
        ["clock", "descriptors", "shutdown", "whole_file"],
    ],
}
TESTS = re.compile(r"(^|/)(tests|test_server|tests_support)(/|\.rs$)")
TEST_CFG = r"^ *#\[cfg\((?:all\()?test\b.*\]\n(?: *#\[.*\]\n)*"
TEST_MODULE = re.compile(TEST_CFG + r" *(?:pub(?:\(.*\))? )?mod \w+ \{", re.MULTILINE)
TEST_USE = re.compile(TEST_CFG + r" *(?:pub(?:\(.*\))? )?use [^;]+;", re.MULTILINE)
USE = re.compile(r"^ *(?:pub(?:\([^)]*\))? )?use ([\w:{}*,\s]+);", re.MULTILINE)
PATH = re.compile(r"\b(?:crate|self|super)(?:::\w+)+")

Module = tuple[str, ...]


def packages() -> dict[str, tuple[Path, set[str]]]:
    """The folder of each crate of ours, and what it depends on when it is built."""
    found = {}
    for workspace in ("Cargo.toml", "benchmarks/Cargo.toml"):
        text = subprocess.run(
            ["cargo", "metadata", "--manifest-path", workspace, "--no-deps", "--format-version", "1"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        for package in json.loads(text)["packages"]:
            folder = Path(package["manifest_path"]).parent.relative_to(Path.cwd())
            needs = (it for it in package["dependencies"] if it["kind"] != "dev" and it.get("path"))
            found[package["name"]] = (folder, {it["name"] for it in needs})
    return found


def layer_of(name: str, folder: Path) -> int | None:
    place = "platform" if folder.parts[0] == "platform" else name
    return next((at for at, layer in enumerate(LAYERS) if place in layer), None)


def wrong_arrows(crates: dict[str, tuple[Path, set[str]]]) -> Iterator[str]:
    for name, (folder, needs) in sorted(crates.items()):
        own = layer_of(name, folder)
        if own is None:
            if folder.parts[0] != "verification":
                yield f"{name}: has no layer; name it in scripts/lint/layers.py"
            continue
        for needed in sorted(needs):
            below = layer_of(needed, crates[needed][0])
            is_platform = own == below == len(LAYERS) - 1
            if below is None or (below <= own and not is_platform):
                yield f"{folder}/Cargo.toml: {name} depends on {needed}, which is not below it"


def leaves(tree: str) -> Iterator[list[str]]:
    """The paths of a `use` tree."""
    head, brace, rest = tree.partition("{")
    prefix = [it for it in re.sub(r"\s+| as \w+$", "", head).split("::") if it]
    if not brace:
        yield prefix
        return
    depth, part = 0, ""
    for letter in rest[: rest.rindex("}")] + ",":
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            if part.strip():
                for path in leaves(part.strip()):
                    yield prefix + path
            part = ""
        else:
            part += letter


class Crate:
    """The modules of a crate, and what each imports."""

    def __init__(self, source: Path) -> None:
        self.files: dict[Module, Path] = {}
        for path in sorted(source.rglob("*.rs")):
            parts = path.relative_to(source).with_suffix("").parts
            if TESTS.search(str(path)) or parts[0] == "bin":
                continue
            self.files[() if parts in (("lib",), ("main",)) else parts] = path
        self.texts = {module: code_of(path) for module, path in self.files.items()}
        self.passed_on = {module: dict(self.passed(module)) for module in self.files}

    def absolute(self, module: Module, path: list[str]) -> list[str] | None:
        """A path from the root of the crate; `None` if it leads to another crate."""
        at, rest = list(module), list(path)
        if not rest:
            return None
        if rest[0] == "crate":
            return rest[1:]
        if rest[0] == "self":
            rest.pop(0)
        elif rest[0] != "super":
            return [*at, *rest] if (*module, rest[0]) in self.files else None
        while rest and rest[0] == "super":
            rest.pop(0)
            at = at[:-1]
        return [*at, *rest]

    def passed(self, module: Module) -> Iterator[tuple[str, list[str]]]:
        """The names that a module takes from its children, with where they come from."""
        for tree in USE.findall(self.texts[module]):
            for path in leaves(tree):
                found = self.absolute(module, path)
                if found is not None and tuple(found[: len(module)]) == module:
                    yield path[-1], found

    def defined_in(self, path: list[str], depth: int = 0) -> Module:
        """The module that defines what a path names."""
        at: Module = ()
        for place, name in enumerate(path):
            if (*at, name) in self.files:
                at = (*at, name)
                continue
            source = self.passed_on.get(at, {}).get(name)
            if source is not None and source != path and depth < 8:
                return self.defined_in([*source, *path[place + 1 :]], depth + 1)
            break
        return at

    def imports(self, module: Module) -> set[Module]:
        text = self.texts[module]
        paths = [path for tree in USE.findall(text) for path in leaves(tree)]
        paths += [found.split("::") for found in PATH.findall(USE.sub("", text))]
        found = [self.absolute(module, path) for path in paths]
        return {
            target
            for target in (self.defined_in(path) for path in found if path is not None)
            if target[: len(module)] != module and module[: len(target)] != target
        }


def code_of(path: Path) -> str:
    """The text of a file without comments and tests."""
    text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
    return TEST_USE.sub("", TEST_MODULE.split(text, maxsplit=1)[0])


def circles(imports: dict[Module, set[Module]]) -> Iterator[list[Module]]:
    """Modules that reach each other, in groups (Tarjan's strongly connected components)."""
    order: dict[Module, int] = {}
    low: dict[Module, int] = {}
    stack: list[Module] = []
    found: list[list[Module]] = []

    def visit(module: Module) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for target in sorted(imports.get(module, ())):
            if target not in order:
                visit(target)
                low[module] = min(low[module], low[target])
            elif target in stack:
                low[module] = min(low[module], order[target])
        if low[module] == order[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(imports):
        if module not in order:
            visit(module)
    yield from found


def siblings(imports: dict[Module, set[Module]], above: Module) -> dict[Module, set[Module]]:
    """The modules just below one, each with all that is below it, and what of each other they import."""
    depth = len(above) + 1
    found: dict[Module, set[Module]] = {}
    for module, targets in imports.items():
        if module[: depth - 1] == above and len(module) >= depth:
            own = module[:depth]
            of_own = found.setdefault(own, set())
            inside = (it[:depth] for it in targets if it[: depth - 1] == above and len(it) >= depth)
            of_own.update(it for it in inside if it != own)
    return found


def arrows(imports: dict[Module, set[Module]], group: list[Module]) -> Iterator[str]:
    """The imports that make the circle."""
    depth = len(group[0])
    for module, targets in sorted(imports.items()):
        for target in sorted(targets):
            ends = (module[:depth], target[:depth])
            if ends[0] != ends[1] and set(ends) <= set(group):
                yield f"{'::'.join(module)} -> {'::'.join(target)}"


def wrong_imports(crate: Crate) -> Iterator[str]:
    imports = {module: crate.imports(module) for module in crate.files}
    for above in sorted({module[:depth] for module in imports for depth in range(len(module))}):
        for group in circles(siblings(imports, above)):
            yield f"{len(group)} modules import each other:"
            yield from (f"    {line}" for line in arrows(imports, group))


def wrong_inner(crate: Crate, layers: list[list[str]]) -> Iterator[str]:
    """The imports between top modules that do not go down."""
    height = {name: -at for at, layer in enumerate(layers) for name in layer}
    for module in sorted(it for it in crate.files if it):
        own = height.get(module[0])
        if own is None:
            yield f"{module[0]}: has no layer; name it in scripts/lint/layers.py"
            continue
        for target in sorted(it for it in crate.imports(module) if it and it[0] != module[0]):
            if height.get(target[0], own) >= own:
                yield f"{'::'.join(module)} imports {'::'.join(target)}, which is not below it"


def main() -> int:
    crates = packages()
    wrong = list(wrong_arrows(crates))
    for name, (folder, _) in sorted(crates.items()):
        for root in [folder / "src", *(it for it in sorted(folder.glob("src/bin/*")) if it.is_dir())]:
            wrong.extend(f"{name}: {line}" for line in wrong_imports(Crate(root)))
        inner = INNER.get(name)
        if inner is not None:
            wrong.extend(f"{name}: {line}" for line in wrong_inner(Crate(folder / "src"), inner))
    print("\n".join(wrong), file=sys.stderr) if wrong else None
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
