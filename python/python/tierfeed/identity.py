"""Refuses a process that is none of the ranks of the job."""

from __future__ import annotations

import sys
from typing import NoReturn

from tierfeed._native import Reconfigure


class IdentityError(Reconfigure, SystemExit):
    """The launcher and the job contradict each other about the ranks; the message names both sources.

    Two ranks on the same samples are a wrong training that looks right, so this process must not read
    without the agent either. Uncaught, the error ends the process with exit code 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = 2


def refuse(message: str) -> NoReturn:
    """Raises, and prints the message, as Python does not print an uncaught `SystemExit`."""
    print(f"tierfeed: error: {message}", file=sys.stderr, flush=True)
    raise IdentityError(message)
