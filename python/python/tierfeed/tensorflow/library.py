"""The native half, `tierfeed/_tensorflow.so`: its ops, and the function by which Python opens feeds."""

from __future__ import annotations

import ctypes
import functools
import json
from pathlib import Path
from typing import Any

import tensorflow as tf

from tierfeed._native import Bug, Reconfigure

PATH = Path(__file__).parents[1] / "_tensorflow.so"


class Library:
    """The library, loaded into TensorFlow and this process."""

    def __init__(self) -> None:
        if not PATH.exists():
            raise Reconfigure(f"{PATH} is missing: install tierfeed again, or run `make build`")
        self.ops = tf.load_op_library(str(PATH))
        loaded = ctypes.CDLL(str(PATH))
        self._call = loaded.tierfeed_tensorflow_call
        self._call.argtypes, self._call.restype = [ctypes.c_char_p], ctypes.c_void_p
        self._free = loaded.tierfeed_tensorflow_free
        self._free.argtypes, self._free.restype = [ctypes.c_void_p], None

    def ask(self, request: Any, name: str) -> Any:
        """The answer of that name. Raises `Reconfigure` with the reason if there is another one."""
        address = self._call(json.dumps(request).encode())
        try:
            answer = json.loads(ctypes.string_at(address))
        finally:
            self._free(address)
        if answer == name:
            return None
        if "wrong" in answer:
            raise Reconfigure(answer["wrong"])
        if name not in answer:
            raise Bug(f"{PATH.name} answered {answer} to {request}")
        return answer[name]


@functools.cache
def library() -> Library:
    """Loads the library at the first call."""
    loaded = Library()
    loaded.ask("check", "done")
    return loaded
