"""The command line: one file per noun, over the library alone."""

from __future__ import annotations

from .app import main, start

__all__ = ["main", "start"]
