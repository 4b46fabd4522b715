"""The errors of the store: each says whose fault it is, what to do next, and carries its data."""

from __future__ import annotations

__all__ = [
    "BadRecord",
    "Conflict",
    "InvalidArgument",
    "NameTaken",
    "NotFound",
    "OutsideRealm",
    "SchemaMismatch",
    "StoreClosed",
    "StoreError",
    "WrongLoop",
]


class StoreError(Exception):
    """Everything that the store itself raises; an engine's own errors (disk, lock) pass through unchanged."""


class InvalidArgument(StoreError, ValueError):
    """The caller passed something that no store can hold; nothing was read or written."""

    def __init__(self, what: str, value: object, why: str) -> None:
        super().__init__(f"{what} {value!r}: {why}")
        self.what = what
        self.value = value
        self.why = why


class OutsideRealm(InvalidArgument):
    """A raw call named a key that does not open with the store's realm."""

    def __init__(self, key: bytes, realm: str) -> None:
        super().__init__("key", key, f"is outside the realm {realm!r}: build keys with store.key(...)")
        self.key = key
        self.realm = realm


class NotFound(StoreError, LookupError):
    """Something was addressed that the store does not hold."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"there is no {kind} {name!r}")
        self.kind = kind
        self.name = name


class NameTaken(StoreError):
    """A name that must be unique is another record's."""

    def __init__(self, kind: str, name: str, owner: str) -> None:
        super().__init__(f"{kind} name {name!r} belongs to {owner}: choose another or rename that one first")
        self.kind = kind
        self.name = name
        self.owner = owner


class Conflict(StoreError):
    """A batch expected another value than the store holds; nothing was written. Read again and retry."""

    def __init__(self, col: int, key: bytes, expected: bytes | None, found: bytes | None) -> None:
        super().__init__(f"column {col} key {key!r} changed since it was read; nothing was written")
        self.col = col
        self.key = key
        self.expected = expected
        self.found = found


class BadRecord(StoreError):
    """A stored value is not what its key promises: damage, or a writer that is not this library."""

    def __init__(self, key: bytes, why: str) -> None:
        super().__init__(f"the value of {key!r} cannot be read: {why}")
        self.key = key
        self.why = why


class SchemaMismatch(StoreError):
    """The store was written with other choices than this program's; nothing was written."""

    def __init__(self, what: str, found: object, known: object, advice: str) -> None:
        super().__init__(f"the store's {what} is {found!r}, this program's is {known!r}: {advice}")
        self.what = what
        self.found = found
        self.known = known


class StoreClosed(StoreError, ValueError):
    """The store was closed; open it again."""

    def __init__(self) -> None:
        super().__init__("this store was closed: open it again")


class WrongLoop(StoreError, RuntimeError):
    """A store belongs to the event loop that used it first."""

    def __init__(self) -> None:
        super().__init__(
            "this store is in use by another event loop: open one store a loop, or use crabstore.open_sync()"
        )
