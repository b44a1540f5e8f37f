"""The file system `tierfeed://` of fsspec: ranges of objects, in memory that a node shares."""

from tierfeed.fsspec.file import TierFile
from tierfeed.fsspec.filesystem import TierFileSystem

__all__ = ["TierFile", "TierFileSystem"]
