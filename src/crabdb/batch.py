"""Records staged for one commit."""

from zlib import crc32

from crabdb.arguments import check_key, check_put
from crabdb.errors import InvalidArgument
from crabdb.format import BODY_LIMIT, encode_delete, encode_put
from crabdb.log import Staged

__all__ = ["Batch"]


class Batch:
    """Puts and deletes that are committed together when the `with` block ends, or dropped if it raises.

    Reading the store inside the block shows it without them. Of two changes to one key the later one counts.
    """

    def __init__(self) -> None:
        self.staged: list[Staged] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self.staged)

    def put(self, col: int, key: bytes, value: bytes) -> None:
        """Stage a put. Raises `InvalidArgument`, also if the batch outgrows 64 MiB."""
        check_put(col, key, value)
        self._stage((col, key, encode_put(col, key, value), len(value), crc32(value)))

    def delete(self, col: int, key: bytes) -> None:
        """Stage a delete; of a key that is not there it is nothing. Raises `InvalidArgument`."""
        check_key(col, key)
        self._stage((col, key, encode_delete(col, key), None, 0))

    def _stage(self, staged: Staged) -> None:
        size = self._size + len(staged[2])
        if size > BODY_LIMIT and self.staged:
            raise InvalidArgument("batch", f"would be {size} bytes, more than the {BODY_LIMIT} of one commit")
        self.staged.append(staged)
        self._size = size
