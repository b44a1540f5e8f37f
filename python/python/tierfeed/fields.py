"""The other fields of samples of which a transform took one, as Python has them.

`docs/transforms.md` says which encoding becomes what; what is not known stays bytes. Nothing is
unpickled: samples may come from strangers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tierfeed._native import Pipeline, Reconfigure, Sample

Fields = dict[str, Any]
"""The fields of one sample by name."""

Columns = dict[str, list[Any]]
"""The fields of a batch by name, a value for each sample; None where a sample lacks it."""


def fields_of(pipeline: Pipeline, sample: Sample) -> Fields:
    """The fields of a sample beside the one that became its row."""
    decoded = {}
    for name, encoding, value in pipeline.fields(sample.stored):
        try:
            decoded[name] = _decoded(name, encoding, value)
        except (ValueError, struct.error) as error:
            raise ValueError(f"field {name} of sample {sample.id}: {error}") from error
    return decoded


def columns_of(pipeline: Pipeline, samples: Iterable[Sample]) -> Columns:
    """The fields of all samples of a batch, in their order."""
    rows = [_checked(sample.id, fields_of(pipeline, sample)) for sample in samples]
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _checked(sample: int, fields: Fields) -> Fields:
    """The fields themselves; raises if a number does not fit the tensors that columns become."""
    for name, value in fields.items():
        numbers = value if isinstance(value, list) else [value]
        for number in numbers:
            if isinstance(number, int) and not -(2**63) <= number < 2**63:
                raise Reconfigure(
                    f"field {name} of sample {sample} is {number}, and numbers of a batch are int64:"
                    " store it as text, such as a member .txt instead of .cls or .id"
                )
    return fields


def is_numeric(column: list[Any]) -> bool:
    """Whether a value for each sample is there, a number or as many numbers as in the others."""
    if all(isinstance(value, list) for value in column):
        first = len(column[0])
        return all(len(value) == first and all(map(_is_number, value)) for value in column)
    return all(map(_is_number, column))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _decoded(name: str, encoding: str, value: Any) -> Any:
    if encoding == "list":
        return value[0] if len(value) == 1 else value
    is_member = encoding == "member"
    decode = _MEMBERS.get(name.rpartition(".")[2]) if is_member else _ENCODINGS.get(encoding)
    return value if decode is None else decode(value)


def _text(value: bytes) -> str:
    return value.decode("utf-8")


def _class(value: bytes) -> int | str:
    """A number, as `webdataset` reads it; a name, if it is none."""
    text = _text(value).strip()
    try:
        return int(text)
    except ValueError:
        return text


def _packed(form: str) -> Callable[[bytes], Any]:
    return lambda value: struct.unpack("<" + form, value)[0]


# As `basichandlers` of `webdataset/autodecode.py`, without what it unpickles.
_MEMBERS: Mapping[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("txt", "text", "transcript"), _text),
    **dict.fromkeys(("cls", "cls2", "class", "count", "index", "inx", "id"), _class),
    **dict.fromkeys(("json", "jsn"), json.loads),
}

# As `streaming/base/format/mds/encodings.py`, without pickle, and without arrays.
_ENCODINGS: Mapping[str, Callable[[bytes], Any]] = {
    "str": _text,
    "str_int": int,
    "str_float": float,
    "json": json.loads,
    "int": _packed("q"),
    **{
        f"{sign}int{8 * size}": _packed(letter.upper() if sign else letter)
        for size, letter in [(1, "b"), (2, "h"), (4, "i"), (8, "q")]
        for sign in ("", "u")
    },
    "float16": _packed("e"),
    "float32": _packed("f"),
    "float64": _packed("d"),
}
