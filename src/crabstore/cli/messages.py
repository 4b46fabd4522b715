"""How one message looks: on a screen, and as Markdown. Draws what it is given, reads nothing."""

from __future__ import annotations

import json
import re

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..store.messages import Block, Document, HistoryEntry, Image, Thinking, ToolCall, ToolResult
from ..store.messages import Text as Words
from .console import clean, minute, one_line

__all__ = ["draw_entry", "markdown"]

_CALL, _RESULT = 200, 400
"""Characters shown of a tool call's arguments, and of its result."""


def draw_entry(position: int, entry: HistoryEntry, *, best: bool = False) -> list[RenderableType]:
    """A message: who and when, then what, indented."""
    head = Text(f"[{position}] {_headline(entry)}", style="bold reverse" if best else "bold")
    grid = Table.grid()
    grid.add_column(width=4)
    grid.add_column(overflow="fold")
    for block in entry.blocks:
        grid.add_row("", _draw_block(block))
    return [head, grid, ""]


def markdown(entry: HistoryEntry) -> str:
    """A message as a section of Markdown."""
    parts = [f"## {_headline(entry)}", *(_markdown_block(block) for block in entry.blocks)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _headline(entry: HistoryEntry) -> str:
    notes = [entry.mark, "" if entry.active else "abandoned branch"]
    marks = "".join(f" ({note})" for note in notes if note)
    return one_line(f"{entry.role or 'unknown'} · {minute(entry.ts) or 'no time'}{marks}")


def _draw_block(block: Block) -> Text:
    match block:
        case Words():
            return Text(clean(block.text))
        case ToolCall():
            return Text(f"→ {one_line(block.name)} {_cut(_arguments(block), _CALL)}", style="cyan")
        case ToolResult():
            mark = "✗" if block.is_error else "←"
            return Text(f"{mark} {_cut(clean(block.text), _RESULT)}", style="dim")
        case _:
            return Text(f"({one_line(_label(block))})", style="dim")


def _markdown_block(block: Block) -> str:
    match block:
        case Words():
            return block.text
        case ToolCall():
            return f"**{block.name}**\n\n" + _fenced(_arguments(block, indent=2), "json")
        case ToolResult():
            return _fenced(block.text, "")
        case _:
            return f"*({_label(block)})*"


def _label(block: Block) -> str:
    """What stands for a block without words."""
    match block:
        case Thinking():
            return f"thinking, {len(block.text):,} characters"
        case Image():
            return f"image {block.url or block.media_type}".rstrip()
        case Document():
            return f"document {block.title}".rstrip()
        case _:
            return f"block of the unknown type {getattr(block, 'type', '')!r}"


def _arguments(call: ToolCall, indent: int | None = None) -> str:
    if isinstance(call.arguments, str):
        return clean(call.arguments)
    return clean(json.dumps(call.arguments, ensure_ascii=False, indent=indent))


def _cut(text: str, most: int) -> str:
    rest = len(text) - most
    return text if rest <= 0 else f"{text[:most]} … ({rest:,} more characters)"


def _fenced(text: str, language: str) -> str:
    """`text` as a code block whose fence no line of it can close."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
