"""Numbers that the daemon keeps about itself, as Prometheus reads them (text format 0.0.4). No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

__all__ = ["CONTENT_TYPE", "Counts", "Histogram", "exposition", "gauge"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LAG_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Seconds."""


class Counts:
    """A counter, by the value of one label."""

    def __init__(self, name: str, help: str, label: str) -> None:
        self.name = name
        self._help = help
        self._label = label
        self.values: Counter[str] = Counter()

    def add(self, value: str, amount: int = 1) -> None:
        """Count `amount` more under this value of the label."""
        self.values[value] += amount

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self._help, "counter")
        for value, amount in sorted(self.values.items()):
            yield f'{self.name}{{{self._label}="{_escaped(value)}"}} {amount}'


class Histogram:
    """How often an amount was how large."""

    def __init__(self, name: str, help: str, buckets: Sequence[float] = LAG_BUCKETS) -> None:
        self.name = name
        self._help = help
        self._bounds = tuple(buckets)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0
        self.largest = 0.0

    def observe(self, amount: float) -> None:
        """Take one in."""
        self._counts[bisect_left(self._bounds, amount)] += 1
        self._sum += amount
        self.largest = max(self.largest, amount)

    def lines(self) -> Iterator[str]:
        yield from _head(self.name, self._help, "histogram")
        total = 0
        for bound, number in zip([*map(str, self._bounds), "+Inf"], self._counts, strict=True):
            total += number
            yield f'{self.name}_bucket{{le="{bound}"}} {total}'
        yield f"{self.name}_sum {self._sum}"
        yield f"{self.name}_count {total}"


def gauge(name: str, help: str, value: float) -> Iterator[str]:
    """One number as it is now."""
    yield from _head(name, help, "gauge")
    yield f"{name} {value}"


def exposition(*parts: Iterator[str]) -> str:
    """The lines of all parts as one page."""
    return "".join(f"{line}\n" for part in parts for line in part)


def _head(name: str, help: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
