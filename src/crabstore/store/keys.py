"""Keys as bytes: how parts become a key and back, and where a prefix range ends. Pure.

A key is its parts joined by ``/``, the realm first. A part never holds a raw ``/``: the characters that
would make keys ambiguous or unprintable are percent-encoded, and an empty part is a lone ``%``, which no
other part can be. Parts without such characters stand in the key as they are.
"""

from __future__ import annotations

import re

from .errors import InvalidArgument

__all__ = ["INDEX_WIDTH", "join", "position", "prefix_end", "quote", "split", "unquote"]

INDEX_WIDTH = 12
"""Digits of a message or event position: keys sort as bytes, and "10" would otherwise come before "2"."""

_RESERVED = re.compile(r"[/%\x00-\x1f\x7f]")
_PLAIN = re.compile(r"[^/%\x00-\x1f\x7f]+(?:/[^/%\x00-\x1f\x7f]+)*")
_ESCAPE = re.compile(r"%([0-9A-F]{2})")
_EMPTY = "%"


def quote(part: str) -> str:
    """`part` as it stands in a key: ``/``, ``%``, control characters and emptiness are percent-encoded."""
    if _RESERVED.search(part):
        return _RESERVED.sub(lambda match: f"%{ord(match[0]):02X}", part)
    return part or _EMPTY


def unquote(part: str) -> str:
    """The inverse of `quote`."""
    if "%" not in part:
        return part
    return "" if part == _EMPTY else _ESCAPE.sub(lambda match: chr(int(match[1], 16)), part)


def join(*parts: str) -> bytes:
    """The key of these parts.

    Raises InvalidArgument for a part that is no text, or that UTF-8 cannot hold (a lone surrogate).
    """
    try:
        text = "/".join(parts)
    except TypeError as error:
        raise InvalidArgument("name", parts, "must be text") from error
    if not _PLAIN.fullmatch(text) or text.count("/") != len(parts) - 1:
        text = "/".join([quote(part) for part in parts])
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument("key", text, f"is not valid Unicode text ({error.reason})") from error


def split(key: bytes) -> list[str]:
    """The parts of `key`, the inverse of `join`."""
    return [unquote(part) for part in key.decode().split("/")]


def position(index: int) -> str:
    """A message or event position as a key part."""
    return f"{index:0{INDEX_WIDTH}}"


def prefix_end(prefix: bytes) -> bytes | None:
    """The least key above every key that starts with `prefix`; None if no key is above them all."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None
