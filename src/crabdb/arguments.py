"""What callers may pass. Checked before any input or output, so that a refused call has touched nothing."""

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from crabdb.errors import InvalidArgument
from crabdb.files import AnyPath
from crabdb.format import BODY_LIMIT, LENGTH_LIMIT, RECORD_OVERHEAD, RESERVED

__all__ = ["check_changes", "check_key", "check_page", "check_path", "check_put", "check_size"]


def check_path(path: AnyPath) -> Path:
    """Refuse what cannot name a file. Raises `InvalidArgument`."""
    try:
        given = Path(path)
    except TypeError:
        raise InvalidArgument("path", f"must be a path, not {type(path).__name__}") from None
    if "\0" in str(given) or not given.name:
        raise InvalidArgument("path", f"must name a file, not {path!r}")
    return given


def check_key(col: int, key: bytes) -> None:
    """Refuse a column or a key that no record can have. Raises `InvalidArgument`."""
    if not (isinstance(key, bytes) and key and isinstance(col, int) and 0 <= col < RESERVED):
        _refuse(col, key)


def check_put(col: int, key: bytes, value: bytes) -> None:
    """Refuse what no record can hold. Raises `InvalidArgument`."""
    if not (isinstance(key, bytes) and key and isinstance(col, int) and 0 <= col < RESERVED):
        _refuse(col, key)
    if not isinstance(value, bytes):
        raise InvalidArgument("value", f"must be bytes, not {type(value).__name__}")
    if len(value) > LENGTH_LIMIT or len(key) > LENGTH_LIMIT:
        longer = "value" if len(value) > LENGTH_LIMIT else "key"
        raise InvalidArgument(longer, f"must have at most {LENGTH_LIMIT} bytes")


def _refuse(col: int, key: bytes) -> NoReturn:
    _check_column(col)
    if not isinstance(key, bytes):
        raise InvalidArgument("key", f"must be bytes, not {type(key).__name__}")
    raise InvalidArgument("key", "must not be empty")


def check_changes(changes: Sequence[tuple[int, bytes, bytes | None]]) -> None:
    """Refuse changes that no commit can hold: values are None for deletes. Raises `InvalidArgument`."""
    size = 0
    for col, key, value in changes:
        good = isinstance(key, bytes) and key and isinstance(col, int) and 0 <= col < RESERVED
        if not good or not (value is None or isinstance(value, bytes)):
            check_put(col, key, b"" if value is None else value)
        size += RECORD_OVERHEAD + len(key)
        if value is not None:
            size += len(value)
    if size > BODY_LIMIT:
        for col, key, value in changes:
            check_put(col, key, value or b"")
        check_size(size, len(changes))


def check_size(size: int, count: int) -> None:
    """Refuse `count` records of together `size` bytes that are too many for one commit. Raises
    `InvalidArgument`.
    """
    if size > BODY_LIMIT and count > 1:
        raise InvalidArgument("batch", f"would be {size} bytes, more than the {BODY_LIMIT} of one commit")


def check_page(col: int, prefix: bytes, after: bytes | None, limit: int | None) -> None:
    """Refuse the bounds of a scan that make no sense. Raises `InvalidArgument`."""
    _check_column(col)
    if not isinstance(prefix, bytes):
        raise InvalidArgument("prefix", f"must be bytes, not {type(prefix).__name__}")
    if after is not None and not isinstance(after, bytes):
        raise InvalidArgument("after", f"must be bytes or None, not {type(after).__name__}")
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        raise InvalidArgument("limit", f"must be None or a number from 0, not {limit!r}")


def _check_column(col: int) -> None:
    if not isinstance(col, int) or not 0 <= col < RESERVED:
        raise InvalidArgument("col", f"must be a column from 0 to {RESERVED - 1}, not {col!r}")
