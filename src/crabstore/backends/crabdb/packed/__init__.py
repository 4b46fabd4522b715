"""Packed text search: blocks of postings in segments, for a store with one writer."""

from __future__ import annotations

from .text import PackedText

__all__ = ["PackedText"]
