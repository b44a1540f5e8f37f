"""The seccomp profile that container engines apply by default, for a process without capabilities."""

from __future__ import annotations

import json
from pathlib import Path

# Debian's golang-github-containers-common; Docker's and containerd's descend from the same list.
PROFILE = Path("/usr/share/containers/seccomp.json")


def without_capabilities() -> dict:
    """The rules that hold for a process without any capability on this architecture."""
    profile = json.loads(PROFILE.read_text())
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile.get("defaultErrnoRet", 1),
        "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [
            {
                key: rule[key]
                for key in ("names", "action", "args", "errnoRet")
                if rule.get(key) is not None
            }
            for rule in profile["syscalls"]
            if applies(rule)
        ],
    }


def applies(rule: dict) -> bool:
    includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
    return (
        not includes.get("caps")
        and "amd64" in includes.get("arches", ["amd64"])
        and "amd64" not in excludes.get("arches", [])
    )
