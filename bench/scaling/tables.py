"""Figures of growth as text: what a run found, each beside its peers', as Markdown or for a terminal."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import chain, groupby
from statistics import geometric_mean, median

from .common import Figures, Outcome

__all__ = ["FIGURES", "Run", "markdown", "summary"]

FIGURES = {
    "bulk_us": "index in bulk, 256 a call, µs a message",
    "bulk_processor_us": "the same, processor time, µs a message",
    "append_us": "append one message, µs",
    "append_processor_us": "the same, processor time, µs",
    "append_p99_us": "append one message, p99, µs",
    "import_us": "`crabstore import`, µs a message",
    "lag_ms": "longest block of the event loop, a message a call, ms",
    "lag_processor_ms": "the same, this thread's processor time, ms",
    "lag_bulk_ms": "longest block of the event loop, 256 a call, ms",
    "close_s": "checkpoint and close after the bulk, s",
    "file_mb": "file, MB",
    "text_mb": "text, MB",
    "content_mb": "file: content, MB",
    "index_mb": "file: text index, MB",
    "other_index_mb": "file: other indexes, MB",
    "dead_mb": "file: dead bytes and frames, MB",
    "index_ratio": "text index over text",
    "rss_bare_mb": "resident memory before opening, imports done, MB",
    "rss_mb": "resident memory, opened and asked, MB",
    "open_ms": "open, ms",
    "warm_p50_ms": "text search, warm, p50, ms",
    "warm_p99_ms": "text search, warm, p99, ms",
    "cold_p50_ms": "text search, cold, p50, ms",
    "cold_p99_ms": "text search, cold, p99, ms",
    "sessions_warm_p50_ms": "session search, warm, p50, ms",
    "sessions_warm_p99_ms": "session search, warm, p99, ms",
    "sessions_cold_p50_ms": "session search, cold, p50, ms",
    "sessions_cold_p99_ms": "session search, cold, p99, ms",
    "command_ms": "`crabstore search` from process start, ms",
    "delete_ms": "delete a session, ms",
}
"""What is shown of each run, in this order."""

OURS = "crabstore"


@dataclass
class Run:
    """One engine at one size."""

    engine: str
    messages: int
    figures: Figures
    kinds: list[str]
    """Of each query of the mix, what it is."""
    texts: list[str]
    warm: list[float] = field(default_factory=list)
    """Of each query, the median in milliseconds."""
    sessions_warm: list[float] = field(default_factory=list)

    def take(self, asked: list[Outcome], prefix: str = "") -> None:
        """Add what the processes found that asked every query."""
        each = zip(*(outcome.warm for outcome in asked), strict=True)
        medians = [median(chain(*runs)) for runs in each]
        if prefix:
            self.sessions_warm = medians
        else:
            self.warm = medians
        for name in ("cold", "warm"):
            times = sorted(time for outcome in asked for runs in getattr(outcome, name) for time in runs)
            self.figures[f"{prefix}{name}_p50_ms"] = median(times)
            self.figures[f"{prefix}{name}_p99_ms"] = times[math.ceil(0.99 * len(times)) - 1]
        for name in asked[0].figures:
            self.figures[prefix + name] = median(outcome.figures[name] for outcome in asked)
        self.figures["index_ratio"] = self.figures["index_mb"] / self.figures["text_mb"]


def markdown(runs: list[Run]) -> str:
    """A table of the figures and one of the queries by kind, for each size."""
    return "\n\n".join(
        f"### {messages:,} messages\n\n{_figures(some)}\n\n{_queries(some)}"
        for messages, some in _by_size(runs)
    )


def summary(runs: list[Run]) -> str:
    """As `markdown`, and the rows of our file by kind."""
    kinds = [
        f"{run.messages:,} messages, {name}: {size:.2f} MB"
        for run in runs
        for name, size in run.figures.items()
        if name.startswith("kind ")
    ]
    return "\n".join((markdown(runs), "", *kinds))


def _by_size(runs: list[Run]) -> list[tuple[int, list[Run]]]:
    ordered = sorted(runs, key=lambda run: (run.messages, run.engine))
    return [(messages, list(some)) for messages, some in groupby(ordered, lambda run: run.messages)]


def _figures(runs: list[Run]) -> str:
    rows = [
        [label, *(_short(run.figures.get(name)) for run in runs)]
        for name, label in FIGURES.items()
        if any(name in run.figures for run in runs)
    ]
    return _table(["", *(run.engine for run in runs)], rows)


def _queries(runs: list[Run]) -> str:
    """The median query of each kind, and how many times ours the peers take: least, and geometric mean."""
    ours = next((run for run in runs if run.engine == OURS), None)
    rows = []
    for kind in dict.fromkeys(runs[0].kinds):
        places = [place for place, each in enumerate(runs[0].kinds) if each == kind]
        cells = [_short(median(run.warm[place] for place in places)) for run in runs]
        rows.append([kind, *cells, *_times(ours, runs, places)])
    rows.append(["all", *["" for _ in runs], *_times(ours, runs, list(range(len(runs[0].kinds))))])
    peers = [run.engine for run in runs if ours and run is not ours]
    heads = [f"{peer} / {OURS}, least, mean" for peer in peers]
    return _table(["warm, ms", *(run.engine for run in runs), *heads], rows)


def _times(ours: Run | None, runs: list[Run], places: list[int]) -> list[str]:
    if ours is None:
        return []
    cells = []
    for run in runs:
        if run is not ours:
            ratios = [run.warm[place] / ours.warm[place] for place in places]
            cells.append(f"{_short(min(ratios))}, {_short(geometric_mean(ratios))}")
    return cells


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _short(figure: float | None) -> str:
    """Three significant digits."""
    if figure is None:
        return ""
    if figure >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.3g}"
