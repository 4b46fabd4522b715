"""The `schema` row: which keyspace, text layout and tokeniser a store was written with.

A store of a newer keyspace is refused before any write; one whose text index is of another kind asks for a
reindex instead of answering wrongly.
"""

from __future__ import annotations

from .batch import Column
from .errors import SchemaMismatch
from .kv import KVStorage
from .records import Record

__all__ = ["KEYSPACE", "TOKENISER", "Schema", "read_schema", "require_keyspace"]

KEYSPACE = 1
"""The version of the key table. It is raised when an older program would misread or damage what a newer wrote."""

TOKENISER = "words-2"
"""The name of what `tokeniser.tokens` does. It changes when the same text would give other terms."""

_REINDEX = "run reindex (`crabstore reindex`, or `await crabstore.store.reindex(store)`)"


class Schema(Record):
    """Config row `schema`."""

    text: str
    keyspace: int = KEYSPACE
    tokeniser: str = TOKENISER
    rebuilding: bool = False

    def require_text(self, layout: str) -> None:
        """Raises SchemaMismatch unless the text index is whole and of this layout and tokeniser."""
        if self.rebuilding:
            raise SchemaMismatch("text index", "half rebuilt", "whole", _REINDEX)
        if self.text != layout:
            raise SchemaMismatch("text layout", self.text, layout, _REINDEX)
        if self.tokeniser != TOKENISER:
            raise SchemaMismatch("tokeniser", self.tokeniser, TOKENISER, _REINDEX)


async def read_schema(kv: KVStorage) -> Schema | None:
    """The store's schema row; None in a store that was never indexed."""
    return await kv.get_json(Column.CONFIG, kv.key("schema"), Schema)


async def require_keyspace(kv: KVStorage) -> None:
    """Raises SchemaMismatch if the store was written by a newer program than this one can write for."""
    row = await read_schema(kv)
    if row is not None and row.keyspace > KEYSPACE:
        raise SchemaMismatch("keyspace version", row.keyspace, KEYSPACE, "upgrade crabstore to open it")
