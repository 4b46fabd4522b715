"""What the peers' measurements share: filling and asking, by a function of theirs for one call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

from ..corpus import Corpus, Query
from .common import BULK, REPEATS, Clock, Outcome, Row, Stream, resident

__all__ = ["asked", "filled", "stored"]


def filled(corpus: Corpus, messages: int, single: int, write: Callable[[list[Row]], None]) -> Outcome:
    """All messages written, most in bulk, the last ones each by itself."""
    stream, bulk, alone = Stream(corpus.sessions(messages)), Clock(), Clock()
    for clock, count, most in ((bulk, messages - single, BULK), (alone, single, 1)):
        for rows in stream.rows(count, most):
            with clock:
                write(rows)
    return Outcome(
        {
            "bulk_us": bulk.seconds / (messages - single) * 1e6,
            "bulk_processor_us": bulk.processor / (messages - single) * 1e6,
            "append_processor_us": alone.processor / single * 1e6,
            "append_us": alone.seconds / single * 1e6,
            "append_p50_us": median(alone.spent) * 1e6,
            "text_mb": stream.bytes / 1e6,
        }
    )


def asked(queries: list[Query], ask: Callable[[Query], None], opening: Clock, bare: float) -> Outcome:
    """Every query once, then each again and again."""
    opened = resident()
    cold, warm = ([_timed(ask, query, runs) for query in queries] for runs in (1, REPEATS))
    memory = {"rss_bare_mb": bare, "rss_open_mb": opened, "rss_mb": resident()}
    return Outcome({"open_ms": opening.seconds * 1e3, **memory}, cold, warm)


def _timed(ask: Callable[[Query], None], query: Query, runs: int) -> list[float]:
    clock = Clock()
    for _ in range(runs):
        with clock:
            ask(query)
    return clock.milliseconds


def stored(folder: Path) -> float:
    """Megabytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
