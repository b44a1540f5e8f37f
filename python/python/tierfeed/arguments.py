"""Writes the keyword arguments of a loader as a job file. The `tierfeed` program reads and checks it."""

from __future__ import annotations

import difflib
import hashlib
import inspect
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from tierfeed._native import DATASET_KEYS as _KEYS
from tierfeed._native import Reconfigure
from tierfeed.transforms import as_mapping

# The keys below `dataset` and `order`, which are arguments of their own here, and those of the job
# (docs/job-file.md).
INDEX_KEYS = tuple(it for it in _KEYS if it != "source")
DATASET_KEYS = (*INDEX_KEYS, "index", "emulate", "page_cache", "patience", "limited_by")
ORDER_KEYS = (
    "shuffle",
    "seed",
    "epochs",
    "drop_last",
    "start",
    "version",
    "generator",
    "persistent_workers",
    "buffer",
    "global_seed",
    "reshuffle",
    "second_seed",
    "algorithm",
    "shard_samples",
    "canonical_nodes",
    "shuffle_block",
    "window",
)
JOB_KEYS = (
    "name",
    "batch_size",
    "world",
    "step_time",
    "policy",
    "deepmemory",
    "lobster",
    "deli",
    "nopfs",
    "chunk",
    "prefetch",
    "transform",
    "threads",
    "on_error",
    "verify",
    "network",
    "tiers",
    "pause",
    "datasets",
)
KEYS = (*JOB_KEYS, *DATASET_KEYS, *ORDER_KEYS)

# The keys of the order may also stand in a mapping: some mean something else as arguments of others.
ARGUMENTS = (*KEYS, "order")

# A job file takes these relative to its own directory, arguments relative to the working directory.
PATH_KEYS = ("source", "index", "manifest", "path")

# With two slashes behind, a URL; with fewer, a mistake.
SCHEMES = ("s3:", "gs:", "az:", "https:", "http:", "file:")

# The name of a job has at most 64 characters; a digest of 8 distinguishes jobs over one dataset.
NAME_CHARS_MAX = 48


def refuse_unknown(
    names: Iterable[str],
    known: Collection[str] = ARGUMENTS,
    *,
    of: str,
    elsewhere: Mapping[str, str] | None = None,
) -> None:
    """Raises a `TypeError` that says what to do instead, if some of the names are not known.

    `elsewhere` has the advice for arguments of other loaders.
    """
    advice = {name: _instead(name, known, of, elsewhere or {}) for name in names if name not in known}
    if advice:
        raise TypeError("; ".join(f"{of} takes no {name}=: {it}" for name, it in advice.items()))


def _instead(name: str, known: Collection[str], of: str, elsewhere: Mapping[str, str]) -> str:
    if name in elsewhere:
        return elsewhere[name]
    if name in KEYS:
        section = "order." if name in ORDER_KEYS else "dataset." if name in DATASET_KEYS else ""
        first = f'{of}("/data/train", {name}=...)'
        return f"the job file says it: {section}{name}; or name the dataset first, {first}"
    if close := difflib.get_close_matches(name, known, n=1):
        return f"did you mean {close[0]}=?"
    keys = "the keys of a job (docs/job-file.md)" if set(KEYS) <= set(known) else ""
    own = ", ".join(it for it in known if not keys or it not in KEYS)
    return f"it takes {' and '.join(filter(None, [own, keys])) or 'none'}"


def own_arguments(function: Callable[..., Any]) -> list[str]:
    """The keyword arguments of a function that are no keys of a job."""
    parameters = inspect.signature(function).parameters.values()
    return [it.name for it in parameters if it.kind is it.KEYWORD_ONLY and it.name not in KEYS]


def job_file(source: str | os.PathLike[str], keys: Mapping[str, Any]) -> str:
    """The text of the job file that says the same as the arguments of a loader.

    What a loader of PyTorch has no argument for gets the value that its user expects: an image folder,
    shuffled as by `DistributedSampler`; those of `datasets` are not shuffled. `shuffle=True` and
    `shuffle=False` mean what they mean there.
    """
    refuse_unknown(keys, of="a loader")
    given = {**keys, **_usual(keys, shuffle=True)}
    if isinstance(further := keys.get("datasets"), Mapping):
        given["datasets"] = {
            name: _further(it) if isinstance(it, Mapping) else it
            for name, it in further.items()
        }
    given |= _transform(keys)
    job = {
        **_chosen(given, JOB_KEYS),
        "dataset": {"source": os.fsdecode(source), **_chosen(given, DATASET_KEYS)},
        "order": {**_chosen(given, ORDER_KEYS), **_order(keys)},
    }
    job = plain(job)
    job.setdefault("name", _name(job))
    return "# The arguments of a loader, as a job file.\n" + _json(job) + "\n"


def _further(keys: Mapping[str, Any]) -> dict[str, Any]:
    return {**keys, **_usual(keys, shuffle=False), **_transform(keys)}


def _transform(keys: Mapping[str, Any]) -> dict[str, Any]:
    transform = keys.get("transform")
    return {} if transform is None else {"transform": as_mapping(transform)}


def _usual(keys: Mapping[str, Any], *, shuffle: bool) -> dict[str, Any]:
    """The format and the shuffle of a dataset, as a job file names them."""
    shuffled = keys.get("shuffle", shuffle)
    if isinstance(shuffled, bool):
        shuffled = "torch-distributed" if shuffled else "sequential"
    return {"shuffle": shuffled, "format": keys.get("format", "image-folder")}


def _order(keys: Mapping[str, Any]) -> Mapping[str, Any]:
    order = keys.get("order", {})
    if not isinstance(order, Mapping):
        raise TypeError(f'order is {order!r}; it has keys of the order, such as {{"drop_last": True}}')
    if twice := [name for name in order if keys.get(name) is not None]:
        raise TypeError(f"{twice[0]}= is given twice: as an argument, and in order=")
    return order


def _chosen(given: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: given[name] for name in names if given.get(name) is not None}


def plain(value: Any, key: str = "") -> Any:
    """The value in types of JSON, with absolute paths."""
    if isinstance(value, Mapping):
        return {str(name): plain(entry, str(name)) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, os.PathLike):
        value = os.fsdecode(value)
    if isinstance(value, str) and not _is_text(value):
        raise Reconfigure(
            f"{key} is {value!r}, which is not UTF-8 as a job file is: link to it by another name"
        )
    if isinstance(value, str) and key in PATH_KEYS and _is_plain_path(value):
        return os.path.abspath(value)
    if isinstance(value, (str, int, float)):
        return value
    if hasattr(value, "__index__"):
        return int(value)
    raise TypeError(f"{key} is {value!r}; a job file has text, numbers, lists and mappings")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_plain_path(value: str) -> bool:
    """Whether it is a path, and no URL or mistake: of those the check of a job file says more."""
    is_mistake = not value or value == "~" or value.startswith(("~/", *SCHEMES))
    return not is_mistake and "://" not in value


def _name(job: Mapping[str, Any]) -> str:
    """The last part of the source, and a digest of all arguments: the same in every rank."""
    last = str(job["dataset"]["source"]).rstrip("/").rpartition("/")[2]
    last = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-.") or "dataset"
    digest = hashlib.sha256(_json(job).encode()).hexdigest()[:8]
    return f"{last[:NAME_CHARS_MAX]}-{digest}"


def _json(job: Mapping[str, Any]) -> str:
    # JSON is YAML, and with a key on each line an error names its line.
    return json.dumps(job, indent=2, ensure_ascii=False)
