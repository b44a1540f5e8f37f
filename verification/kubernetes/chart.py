"""Renders the Helm chart with Go's own template engine, which is all that the chart uses of Helm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "configs/kubernetes/tierfeed"


def merged(defaults: dict, changes: dict) -> dict:
    """As `helm --set` merges: maps key by key, everything else replaced."""
    both = dict(defaults)
    for key, value in changes.items():
        inner = isinstance(value, dict) and isinstance(both.get(key), dict)
        both[key] = merged(both[key], value) if inner else value
    return both


def render(folder: Path, changes: dict, release: str = "training") -> list[dict]:
    """The manifests of the chart with these changes to its values; `folder` takes what is in between."""
    values = folder / "values.json"
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    values.write_text(
        json.dumps(
            {
                "Values": merged(defaults, changes),
                "Release": {"Name": release, "Namespace": "default"},
            }
        )
    )
    shared = "".join(path.read_text() for path in sorted((CHART / "templates").glob("_*.tpl")))
    manifests = []
    for path in sorted((CHART / "templates").glob("*.yaml")):
        template, output = folder / path.name, folder / f"rendered-{path.name}"
        template.write_text(shared + path.read_text())
        # The engine ends the process on an error, so it has one of its own.
        subprocess.run(
            [
                sys.executable,
                "-c",
                "import sys, go_template; go_template.render_template(*sys.argv[1:])",
                template,
                values,
                output,
            ],
            check=True,
        )
        manifests += filter(None, yaml.safe_load_all(output.read_text()))
    return manifests
