"""The neutral blocks that a message of any provider consists of; none ever carries the bytes of a blob."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ..records import Json

__all__ = ["Block", "Document", "Image", "Text", "Thinking", "ToolCall", "ToolResult", "Unknown"]


class Text(msgspec.Struct, frozen=True):
    """Words that a person, a model or a harness said."""

    text: str


class Thinking(msgspec.Struct, frozen=True):
    """Reasoning of a model; `text` is empty where the provider keeps it to itself."""

    text: str


class ToolCall(msgspec.Struct, frozen=True):
    """A model asks for a tool. `arguments` is the JSON value, or the raw text where it is no JSON."""

    id: str
    name: str
    arguments: Json


class ToolResult(msgspec.Struct, frozen=True):
    """What a tool answered to the call `call_id`."""

    call_id: str
    text: str
    is_error: bool = False


class Image(msgspec.Struct, frozen=True):
    """An image was here; `url` is empty for an inline one."""

    media_type: str = ""
    url: str = ""


class Document(msgspec.Struct, frozen=True):
    """A document was here."""

    title: str = ""
    media_type: str = ""


class Unknown(msgspec.Struct, frozen=True):
    """A block whose `type` this version does not know; its content stands in the entry's message."""

    type: str = ""


Block: TypeAlias = Text | Thinking | ToolCall | ToolResult | Image | Document | Unknown
