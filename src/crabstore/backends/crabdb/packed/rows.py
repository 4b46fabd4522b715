"""The rows of packed search, by name: what an index keeps under ``idx/text/{ix}/``, and how each reads.

    segs                  Manifest: the segments that are the index, and nothing else is
    new/{doc}             Fresh: a document that is not in a segment yet, written in its own commit
    gone/one/{doc}        a document that segments may hold and that is no more
    gone/all/{prefix}     the same for every document whose key starts with the prefix
    seg/{id}/keys/{n}     64 document keys, ascending; a document's ordinal is its place among all of them
    seg/{id}/hash         crc32 of each key, ascending, and whose it is
    seg/{id}/docs         length and weight of each document
    seg/{id}/groups       the groups: first ordinal and hash of each
    seg/{id}/attr/{name}  a column of attribute values
    seg/{id}/terms        the first term of each block of postings
    seg/{id}/post/{n}     a block of postings
    seg/{id}/dead         ordinals of documents that are no more

``{doc}`` is a document's own key without the realm, as it stands. All integers are little-endian.
"""

from __future__ import annotations

from ....store.errors import BadRecord
from ....store.records import Record

__all__ = [
    "ALL",
    "KEYS",
    "NEW",
    "ONE",
    "Fresh",
    "Manifest",
    "SegmentRow",
    "keys_row",
    "post_row",
    "segment_home",
    "segment_of",
]

NEW, ONE, ALL = b"new/", b"gone/one/", b"gone/all/"

KEYS = 64
"""Keys in a row: one is unpacked to name one hit."""


class Fresh(Record, omit_defaults=True):
    """A document as it waits to be sealed."""

    terms: dict[str, int]
    weight: float = 1.0
    group: int = 0
    attrs: dict[str, str] = {}


class SegmentRow(Record):
    """A segment as the manifest names it."""

    id: int
    docs: int
    """Documents, dead ones included."""
    length: int
    """Terms in them, repetitions included."""
    postings: int
    """How much work merging it is."""
    attrs: list[str]
    """The attributes it has a column of."""


class Manifest(Record):
    """The one switch of an index: a segment that is not listed does not exist."""

    group: int = 0
    """How many parts of its key name a document's group; 0: there are none."""
    next: int = 0
    """The least number that no segment has had."""
    segments: list[SegmentRow] = []


def keys_row(block: int) -> bytes:
    """The name of a row of document keys within its segment."""
    return b"keys/%08d" % block


def post_row(block: int) -> bytes:
    """The name of a row of postings within its segment."""
    return b"post/%08d" % block


def segment_home(number: int) -> bytes:
    """What the names of a segment's rows start with."""
    return b"seg/%08d/" % number


def segment_of(name: bytes) -> int:
    """The segment that a row is of. Raises BadRecord if its name is none of a segment's row."""
    try:
        return int(name.split(b"/", 2)[1])
    except ValueError as error:
        raise BadRecord(name, "no row of a segment") from error
