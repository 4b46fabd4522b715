"""Harness images: bytes addressed by the sha256 of their content, and names that point at them.

Harness  image/{digest}   the image
         name/{name}      digest
"""

from __future__ import annotations

import hashlib

from .batch import Batch, Column
from .errors import InvalidArgument, NotFound
from .kv import KVStorage
from .names import require_name

__all__ = ["Harnesses"]


class Harnesses:
    """The harness images of a store. Names are content: an image cannot tell what it was called."""

    def __init__(self, kv: KVStorage) -> None:
        self._kv = kv

    async def put(self, image: bytes, name: str | None = None) -> str:
        """Store an image, and let `name` point at it; its digest (sha256, lower-case hex)."""
        if not isinstance(image, bytes):
            raise InvalidArgument("harness image", type(image).__name__, "must be bytes")
        digest = hashlib.sha256(image).hexdigest()
        batch = self._kv.batch()
        batch.put(Column.HARNESS, self._kv.key("image", digest), image)
        if name is not None:
            batch.put(Column.HARNESS, self._name(name), digest.encode())
        await self._kv.commit(batch)
        return digest

    async def get(self, digest: str) -> bytes | None:
        """The image with this digest, or None."""
        return await self._kv.get(Column.HARNESS, self._kv.key("image", digest))

    async def set_name(self, name: str, digest: str) -> None:
        """Let `name` point at a stored image. Raises NotFound if no image has this digest."""
        await self._kv.transact(lambda batch: self._stage_name(batch, name, digest))

    async def resolve(self, name: str) -> str | None:
        """The digest that `name` points at, or None."""
        digest = await self._kv.get(Column.HARNESS, self._kv.key("name", name))
        return None if digest is None else digest.decode()

    async def names(self) -> dict[str, str]:
        """Every name and its digest, in the order of the names. Reads no image."""
        rows = await self._kv.scan(Column.HARNESS, self._kv.prefix("name"))
        return {self._kv.parts(key)[-1]: digest.decode() for key, digest in rows}

    async def digests(self) -> list[str]:
        """Every stored image's digest, ascending. Reads no image."""
        keys = await self._kv.scan_keys(Column.HARNESS, self._kv.prefix("image"))
        return [self._kv.parts(key)[-1] for key in keys]

    async def delete(self, digest: str) -> bool:
        """Remove an image and every name that points at it; whether it was there."""
        return await self._kv.transact(lambda batch: self._stage_delete(batch, digest))

    async def _stage_name(self, batch: Batch, name: str, digest: str) -> None:
        if not await self._has(digest):
            raise NotFound("harness image", digest)
        batch.put(Column.HARNESS, self._name(name), digest.encode())

    async def _stage_delete(self, batch: Batch, digest: str) -> bool:
        for name, target in (await self.names()).items():
            if target == digest:
                batch.delete(Column.HARNESS, self._kv.key("name", name))
        batch.delete(Column.HARNESS, self._kv.key("image", digest))
        return await self._has(digest)

    async def _has(self, digest: str) -> bool:
        image = self._kv.key("image", digest)  # megabytes: its key is looked for, its bytes are not read
        return await self._kv.page_keys(Column.HARNESS, image, limit=1) == [image]

    def _name(self, name: str) -> bytes:
        return self._kv.key("name", require_name("harness", name))
