"""Changes staged for one commit."""

from crabdb.arguments import check_key, check_put, check_size
from crabdb.format import BODY_LIMIT, RECORD_OVERHEAD
from crabdb.index import Change

__all__ = ["Batch"]


class Batch:
    """Puts and deletes that are committed together when the `with` block ends, or dropped if it raises.

    Reading the store inside the block shows it without them. Of two changes to one key the later one counts.
    """

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self.changes)

    def put(self, col: int, key: bytes, value: bytes) -> None:
        """Stage a put. Raises `InvalidArgument`, also if the batch outgrows 64 MiB."""
        check_put(col, key, value)
        size = self._size + RECORD_OVERHEAD + len(key) + len(value)
        if size > BODY_LIMIT:
            check_size(size, len(self.changes) + 1)
        self.changes.append((col, key, value))
        self._size = size

    def delete(self, col: int, key: bytes) -> None:
        """Stage a delete; of a key that is not there it is nothing. Raises as `put`."""
        check_key(col, key)
        size = self._size + RECORD_OVERHEAD + len(key)
        check_size(size, len(self.changes) + 1)
        self.changes.append((col, key, None))
        self._size = size
