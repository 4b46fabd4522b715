"""Rendering: how an answer looks on a terminal, and in a pipe.

On a terminal there are styles, and tables fit its width; in a pipe there is plain text, never cut or wrapped.
What comes out of a store was written by strangers: no control character of it reaches a terminal, and nothing
in it is read as markup. Nothing here opens a store.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

__all__ = [
    "Column",
    "Screen",
    "clean",
    "count",
    "day",
    "excerpt",
    "minute",
    "one_line",
    "size",
    "to_json",
]

_PIPE_WIDTH = 1 << 20
"""So wide that rich never wraps or cuts."""

_LINE_CONTROLS = "\n\t"
# C0 controls have visible pictures; C1 controls and what reorders text (Trojan Source, CVE-2021-42574) have none.
_PICTURES = {code: 0x2400 + code for code in range(0x20) if chr(code) not in _LINE_CONTROLS} | {0x7F: 0x2421}
_HIDDEN = dict.fromkeys(
    [*range(0x80, 0xA0), 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD
)
_HALVES = dict.fromkeys(range(0xD800, 0xE000), 0xFFFD)
_SAFE = _PICTURES | _HIDDEN | _HALVES

_BREAKS = dict.fromkeys(map(ord, "\t\n\r\f\v\x85\u2028\u2029"), " ")

_WORD = 20
"""How far an excerpt gives way so that it ends at a word."""

Span = tuple[int, int]
"""(start, end) in characters."""


def clean(text: str) -> str:
    """`text` with every character that could steer a terminal made visible; as many characters as before."""
    return text.translate(_SAFE)


def one_line(text: str) -> str:
    """`text` on one line, safe for a terminal."""
    return clean(" ".join(text.split()))


def to_json(document: Mapping[str, object]) -> str:
    """The document as JSON in ASCII, which no terminal and no locale can misread."""
    return json.dumps(document, separators=(",", ":"))


def minute(ts: str) -> str:
    """A stored time as people read it, in UTC: ``2026-03-01 14:05``."""
    return clean(ts[:16].replace("T", " "))


def day(ts: str) -> str:
    """The date of a stored time."""
    return clean(ts[:10])


def count(number: int, noun: str) -> str:
    """``1 session``, ``2,000 sessions``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {_plural(noun)}"


def size(number: int) -> str:
    """Bytes in the unit that people read: ``512 B``, ``3.4 MiB``."""
    amount = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:,.0f} B" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} TiB"


class Column:
    """A column of a table: `flexible` ones give way where a terminal is narrow."""

    def __init__(self, head: str, *, right: bool = False, flexible: bool = False) -> None:
        self.head = head
        self.right = right
        self.flexible = flexible


class Screen:
    """Where a command's answer goes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        found = Console(file=self._stream)
        self.terminal = found.is_terminal
        """Whether a person looks at it right now."""
        self._width = found.width if self.terminal else _PIPE_WIDTH

    def show(self, *items: RenderableType) -> None:
        """Print each of `items`; a string stands as it is."""
        drawn = io.StringIO()
        console = self._canvas(drawn)
        for item in items:
            console.print(Text(item) if isinstance(item, str) else item)
        # Rich pads with spaces: nobody wants them in a pipe, or in a copied line.
        self._stream.write("".join(f"{line.rstrip()}\n" for line in drawn.getvalue().splitlines()))

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> None:
        """Print rows under the columns' heads."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for column in columns:
            justify: JustifyMethod = "right" if column.right else "left"
            table.add_column(column.head, justify=justify, no_wrap=not column.flexible)
        for row in rows:
            table.add_row(*(_cell(value) for value in row))
        self.show(table)

    def facts(self, facts: Iterable[tuple[str, str | Text]]) -> None:
        """Print names and values, one pair a line."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, style="dim")
        grid.add_column(overflow="fold")
        for name, value in facts:
            grid.add_row(name, value if isinstance(value, Text) else Text(one_line(value)))
        self.show(grid)

    def text(self, text: str) -> None:
        """Print a document as it stands, but for what could steer a terminal."""
        self._stream.write(clean(text).removesuffix("\n") + "\n")

    def indented(self, lines: Iterable[str]) -> None:
        """Print lines, each a little to the right, however often it has to be wrapped."""
        grid = Table.grid()
        grid.add_column(width=2)
        grid.add_column(overflow="fold")
        for line in lines:
            grid.add_row("", Text(one_line(line)))
        self.show(grid)

    def _canvas(self, file: TextIO) -> Console:
        return Console(
            file=file,
            force_terminal=self.terminal,
            width=self._width,
            markup=False,
            highlight=False,
            emoji=False,
        )


def excerpt(text: str, spans: Sequence[Span], most: int, *, terminal: bool) -> Text:
    """About `most` characters of `text` around its first span, on one line, with the spans marked.

    On a terminal a mark is a style, in a pipe a pair of asterisks.
    """
    flat = clean(text.translate(_BREAKS))
    start = _start(flat, spans, most)
    stop = _stop(flat, spans, start + most)
    marked = Text("… " if start else "")
    at = start
    for begin, end in _joined(flat, spans):
        if begin >= at and end <= stop:
            marked.append(_narrow(flat[at:begin]))
            marked.append_text(_mark(flat[begin:end], terminal=terminal))
            at = end
    marked.append(_narrow(flat[at:stop]).rstrip())
    return marked.append(" …") if stop < len(flat) else marked


def _start(flat: str, spans: Sequence[Span], most: int) -> int:
    """Where to begin so that a quarter of the excerpt stands before the first span, at a word."""
    first = spans[0][0] if spans else 0
    start = max(0, min(first - most // 4, len(flat) - most))
    return flat.find(" ", start, first) + 1 or start if start else 0


def _stop(flat: str, spans: Sequence[Span], end: int) -> int:
    """Where to end so that the first span is whole, at a word."""
    if end >= len(flat):
        return len(flat)
    first = spans[0][1] if spans else 0
    space = flat.rfind(" ", max(first, end - _WORD), end)
    return space if space >= 0 else end


def _joined(flat: str, spans: Iterable[Span]) -> list[Span]:
    """The spans, those with nothing but space between them as one: words that stand together stay together."""
    joined: list[Span] = []
    for begin, end in spans:
        if joined and not flat[joined[-1][1] : begin].strip():
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


def _mark(words: str, *, terminal: bool) -> Text:
    return Text(words, style="bold red") if terminal else Text(f"*{words}*")


def _narrow(text: str) -> str:
    return re.sub(" {2,}", " ", text)


def _cell(value: str | Text) -> Text:
    """A cell that is cut, and not wrapped, where its column has to give way."""
    cell = value if isinstance(value, Text) else Text(one_line(value))
    cell.no_wrap, cell.overflow = True, "ellipsis"
    return cell


def _plural(noun: str) -> str:
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
