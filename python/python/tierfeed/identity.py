"""Refuses a process that is none of the ranks of the job."""

from __future__ import annotations

import sys
from typing import NoReturn

from tierfeed._native import Reconfigure


class IdentityError(Reconfigure, SystemExit):
    """The launcher and the job contradict each other about the ranks; the message names both sources.

    Two ranks on the same samples are a wrong training that looks right, so there is no going on without
    the agent. Uncaught, it ends the process with exit code 2.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = 2


def refuse(message: str) -> NoReturn:
    """Says why on standard error, as Python prints no uncaught `SystemExit`, and raises."""
    print(f"tierfeed: error: {message}", file=sys.stderr, flush=True)
    raise IdentityError(message)
