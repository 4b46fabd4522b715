"""Measuring a store: what it holds, and what its bytes are spent on. Reads everything, writes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from crabdb import Corrupted, Stats

from ..answers.documents import Document
from ..backends.crabdb import CrabBackend
from ..store.backend import Backend
from ..store.batch import Column
from ..store.errors import BadRecord
from ..store.memory import MemoryEntry
from ..store.messages import HistoryEntry
from ..store.records import decode
from ..store.session_records import SessionMeta
from .console import minute, size
from .verdict import LastVerdict, read_verdict

__all__ = ["Measures", "measure"]

_PAGE = 4096
"""Keys held at once."""


@dataclass(frozen=True)
class Measures:
    """The numbers of a store, sizes in bytes."""

    counts: Mapping[str, int]
    columns: Mapping[str, tuple[int, int]]
    """Per kind: keys, and the bytes of their records."""
    text: int
    """Bytes of text that can be searched."""
    file: Stats | None
    """None where the store is not a file."""
    verified: LastVerdict | None

    @property
    def index(self) -> int:
        """Bytes of the text index."""
        return self.columns.get("text", (0, 0))[1]

    @property
    def ratio(self) -> float | None:
        """Bytes of index for a byte of text."""
        return round(self.index / self.text, 3) if self.text else None

    def document(self) -> Document:
        """As ``--json`` gives it."""
        return {
            "counts": dict(self.counts),
            "kinds": {kind: {"keys": keys, "bytes": held} for kind, (keys, held) in self.columns.items()},
            "text": {"text_bytes": self.text, "index_bytes": self.index, "ratio": self.ratio},
            "file": _file_document(self.file) if self.file else None,
            "verified": _verdict_document(self.verified),
        }

    def facts(self) -> list[tuple[str, str]]:
        """As a person reads it."""
        facts = [
            (name, f"{number:,}") for name, number in self.counts.items() if number or name != "unreadable"
        ]
        ratio = "" if self.ratio is None else f", {self.ratio:.2f} for a byte of text"
        facts += [("text", size(self.text)), ("text index", f"{size(self.index)}{ratio}")]
        return facts + (_file_facts(self.file, self.verified) if self.file else [])


async def measure(store: Backend) -> Measures:
    """Measure `store`; what is damaged is counted, and stops nothing."""
    found: Counter[str] = Counter()
    text = 0
    for col, prefix in ((Column.SESSION, store.prefix("session")), (Column.MEMORY, store.prefix("memory"))):
        async for key in _keys(store, col, prefix):
            kind = store.parts(key)[2] if col is Column.SESSION else "memory"
            found[kind] += 1
            try:
                text += await _text(store, col, key, kind)
            except (Corrupted, BadRecord):
                found["unreadable"] += 1
    counts = {
        "sessions": found["meta"],
        "messages": found["msg"],
        "events": found["evt"],
        "memory": found["memory"],
        "skills": await _count(store, Column.SKILL, store.prefix("skill", "body")),
        "agents": await _count(store, Column.AGENT, store.prefix("agent")),
        "harnesses": await _count(store, Column.HARNESS, store.prefix("image")),
        "unreadable": found["unreadable"],
    }
    file = store.db.stats() if isinstance(store, CrabBackend) else None
    verified = read_verdict(file.path) if file else None
    return Measures(counts, await _columns(store), text, file, verified)


async def _text(store: Backend, col: Column, key: bytes, kind: str) -> int:
    """Bytes of text that a search finds this row by. Raises Corrupted or BadRecord for a damaged one."""
    row = await store.get(col, key) if kind in ("msg", "meta", "memory") else None
    if row is None:
        return 0
    if kind == "msg":
        words = decode(HistoryEntry, row, key).indexable()
    elif kind == "meta":
        meta = decode(SessionMeta, row, key)
        words = meta.title + meta.summary
    else:
        entry = decode(MemoryEntry, row, key)
        words = "\n".join([entry.content, *entry.aliases])
    return len(words.encode(errors="surrogatepass"))


async def _count(store: Backend, col: Column, prefix: bytes) -> int:
    return len(await store.scan_keys(col, prefix))


async def _columns(store: Backend) -> dict[str, tuple[int, int]]:
    if isinstance(store, CrabBackend):
        held = store.db.columns()
        return {col.name.lower(): held[col] for col in Column if col in held}
    columns: dict[str, tuple[int, int]] = {}
    for col in Column:
        rows = await store.scan(col, store.prefix())
        if rows:
            columns[col.name.lower()] = (len(rows), sum(len(key) + len(row) for key, row in rows))
    return columns


async def _keys(store: Backend, col: Column, prefix: bytes) -> AsyncIterator[bytes]:
    after: bytes | None = None
    while page := await store.page_keys(col, prefix, after=after, limit=_PAGE):
        for key in page:
            yield key
        after = page[-1]


def _file_document(file: Stats) -> Document:
    return {
        "path": str(file.path),
        "size": file.size,
        "live": file.live,
        "dead": file.dead,
        "synced": file.durable,
        "not_synced": file.size - file.durable,
        "snapshot": file.snapshot,
        "tail": file.tail,
        "torn": file.torn,
        "damage": list(file.damage),
    }


def _verdict_document(verified: LastVerdict | None) -> Document | None:
    return {"at": verified.at, "ok": verified.ok, "size": verified.size} if verified else None


def _file_facts(file: Stats, verified: LastVerdict | None) -> list[tuple[str, str]]:
    share = file.dead / file.size if file.size else 0.0
    facts = [
        ("file", str(file.path)),
        ("size", size(file.size)),
        ("live", size(file.live)),
        ("dead", f"{size(file.dead)}, {share:.0%} of the file"),
        ("synced", f"{size(file.durable)}, {size(file.size - file.durable)} not yet"),
        ("verified", _verified(file, verified)),
    ]
    if file.torn:
        facts.append(("torn", f"{size(file.torn)} at the end, which the next writer cuts off"))
    if file.damage:
        facts.append(("damaged", f"at byte {', '.join(map(str, file.damage[:5]))}: see crabstore verify"))
    return facts


def _verified(file: Stats, verified: LastVerdict | None) -> str:
    if verified is None:
        return "never"
    grown = file.size - verified.size
    since = f"{size(grown)} written since" if grown >= 0 else "rewritten since"
    return f"{minute(verified.at)} UTC, {'sound' if verified.ok else 'damaged'}; {since}"
