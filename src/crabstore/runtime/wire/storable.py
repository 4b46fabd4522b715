"""Half surrogate pairs, which servers and tools let slip and no store or JSON text can hold. Pure."""

from __future__ import annotations

import msgspec

from ...store.records import Json

__all__ = ["clean", "storable"]


def clean(text: str) -> str:
    """`text` with its halves joined where two belong together, and replaced where one stands alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def storable(value: Json) -> Json:
    """`value` with every text in it clean; the very same object if it is so already."""
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return _cleaned(value)
    return value


def _cleaned(value: Json) -> Json:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {clean(name): _cleaned(item) for name, item in value.items()}
    return value
