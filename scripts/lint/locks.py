"""Compares the lock files of the product and of `benchmarks/`, which share a target folder.

A crate that both have in compatible versions must have the same one, or it would be compiled twice, and
what is measured would not be what is shipped.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

PRODUCT, BENCHMARKS = Path("Cargo.lock"), Path("benchmarks/Cargo.lock")


def compatible_part(version: str) -> str:
    """The numbers that versions of one kind share: up to the first one that is not 0."""
    major, minor, *_ = version.split(".")
    return major if major != "0" else f"0.{minor}"


def versions(lock: Path) -> dict[tuple[str, str], str]:
    packages = tomllib.loads(lock.read_text(encoding="utf-8"))["package"]
    return {(it["name"], compatible_part(it["version"])): it["version"] for it in packages}


def main() -> int:
    product, benchmarks = versions(PRODUCT), versions(BENCHMARKS)
    wrong = [
        f"{BENCHMARKS}: {name} {version}, but {product[name, part]} in {PRODUCT}: "
        f"cargo update --manifest-path benchmarks/Cargo.toml "
        f"--precise {product[name, part]} {name}@{version}"
        for (name, part), version in benchmarks.items()
        if product.get((name, part), version) != version
    ]
    print("\n".join(wrong), file=sys.stderr) if wrong else None
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
