"""`tierfeed://` addresses, for pipelines of TensorFlow that open files by themselves."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tierfeed import program
from tierfeed._native import Reconfigure
from tierfeed.tensorflow.library import PATH, library


class FilesRead(NamedTuple):
    """What this process read by `tierfeed://` addresses."""

    opened: int
    """Files that were opened."""
    foreseen: int
    """Those of which reading began before they were opened."""


def register_files(
    *, endpoint: str | None = None, region: str | None = None, anonymous: bool = False
) -> None:
    """Makes `tierfeed:///data/train/0.tfrecord` mean that file, for all of TensorFlow in this process,
    and `tierfeed://s3/bucket/train/0.tfrecord` that object.

    The addresses are for reading. Files are read ahead in large blocks, and those that followed in the
    pass before, while one is read; objects are read in large blocks. Credentials of buckets come from
    the environment; the arguments mean what they mean in a job file. A second call only changes them.
    """
    given = {"--endpoint": endpoint, "--region": region}
    options = [it for name, value in given.items() if value for it in (name, value)]
    options += ["--anonymous"] if anonymous else []
    access = {"exe": program.executable(), "options": options}
    library().ask({"buckets": access}, "done")
    try:
        tf.experimental.register_filesystem_plugin(str(PATH))
    except tf.errors.AlreadyExistsError:
        return
    except tf.errors.OpError as error:
        raise Reconfigure(f"this TensorFlow takes no file system of {PATH.name}: {error}") from error


def files_read() -> FilesRead:
    """What was read so far."""
    return FilesRead(**library().ask("files", "files"))
