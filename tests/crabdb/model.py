"""What a store must do, said with a dict."""

from crabdb import CrabDB

Contents = dict[tuple[int, bytes], bytes]


def page(
    model: Contents,
    col: int,
    prefix: bytes,
    *,
    after: bytes | None = None,
    limit: int | None = None,
    reverse: bool = False,
) -> list[tuple[bytes, bytes]]:
    """The answer to a scan."""
    found = sorted((key, value) for (c, key), value in model.items() if c == col and key.startswith(prefix))
    if reverse:
        found.reverse()
    if after is not None:
        found = [(key, value) for key, value in found if (key < after if reverse else key > after)]
    return found[:limit]


def contents(db: CrabDB) -> Contents:
    """Everything in a store."""
    return {(col, key): value for col in db.columns() for key, value in db.scan(col)}


def live_bytes(model: Contents) -> int:
    """The length of all records of these contents."""
    return sum(10 + len(key) + len(value) for (_, key), value in model.items())


def crash(db: CrabDB) -> None:
    """Let go of a store as a killed process does: nothing is synced, no snapshot is written."""
    db._log = db._writing = None
    if db._lock is not None:
        db._lock.release()
