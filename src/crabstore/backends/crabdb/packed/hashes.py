"""What keys and groups are found by: fixed-width hashes in arrays, so that no table of names is held. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from ....store.text import group_of
from .arrays import Ints

__all__ = ["Hashes", "group_hash", "group_hashes", "group_runs", "key_hashes"]

Hashes = npt.NDArray[np.uint64]


def key_hashes(docs: Sequence[bytes]) -> npt.NDArray[np.uint32]:
    """What documents' keys are first looked up by, 32 bits each: the key itself decides."""
    return np.fromiter(map(zlib.crc32, docs), np.uint32, len(docs))


def group_hash(group: bytes) -> int:
    """What a group is told apart by: the first 8 bytes of BLAKE2b of its name."""
    return int.from_bytes(blake2b(group, digest_size=8).digest(), "little")


def group_hashes(docs: Sequence[bytes], depth: int) -> Hashes | None:
    """The hash of each document's group, which the first `depth` parts of its key name; None without groups."""
    if not depth:
        return None
    return np.array([group_hash(group_of(doc, depth)) for doc in docs], np.uint64)


def group_runs(names: Iterable[bytes]) -> tuple[Ints, Hashes]:
    """Where runs of the same name start, and their hashes. One name after the other, as documents stand."""
    starts: list[int] = []
    hashes: list[int] = []
    last: bytes | None = None
    for at, name in enumerate(names):
        if name != last:
            starts.append(at)
            hashes.append(group_hash(name))
            last = name
    return np.array(starts, np.int64), np.array(hashes, np.uint64)
