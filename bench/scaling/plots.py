"""Figures of growth as drawings: one SVG a figure, both axes logarithmic, the same bytes for the same figures."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.ticker import NullFormatter

from .tables import FIGURES, Run

__all__ = ["draw"]

_SKIPPED = {
    "text_mb",
    "content_mb",
    "other_index_mb",
    "dead_mb",
    "rss_bare_mb",
    "bulk_processor_us",
    "append_processor_us",
    "lag_processor_ms",
}
"""Figures that the tables have for what the others consist of."""
_STYLES = {"crabstore": ("#d1495b", "o"), "fts5": ("#30638e", "s"), "tantivy": ("#66a182", "^")}


def draw(runs: list[Run], folder: Path) -> None:
    """One file a figure that was measured at more than one size."""
    folder.mkdir(parents=True, exist_ok=True)
    # Text stays text, and ids do not change from one drawing to the next.
    mpl.rcParams |= {"svg.hashsalt": "crabstore", "svg.fonttype": "none", "font.size": 9}
    for name, label in FIGURES.items():
        lines = {engine: _points(runs, engine, name) for engine in _STYLES}
        if name not in _SKIPPED and any(len(points) > 1 for points in lines.values()):
            _draw(lines, label.replace("`", ""), folder / f"{name.removesuffix('_ms').replace('_', '-')}.svg")


def _points(runs: list[Run], engine: str, name: str) -> list[tuple[int, float]]:
    return [
        (run.messages, run.figures[name])
        for run in runs
        if run.engine == engine and run.figures.get(name, 0) > 0
    ]


def _draw(lines: dict[str, list[tuple[int, float]]], label: str, path: Path) -> None:
    figure, axes = plt.subplots(figsize=(4.6, 3.0), layout="constrained")
    for engine, points in lines.items():
        if points:
            color, marker = _STYLES[engine]
            axes.loglog(*zip(*points, strict=True), color=color, marker=marker, markersize=4, label=engine)
    axes.set(xlabel="messages", title=label)
    sizes = sorted({messages for points in lines.values() for messages, _ in points})
    axes.set_xticks(sizes, [f"{messages:,}" for messages in sizes])
    axes.set_xticks([], minor=True)
    low, high = axes.get_ylim()
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}" if high < 10 * low else NullFormatter())
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)
