"""The command line: one file per noun, over the library alone."""

from __future__ import annotations

from .app import main

__all__ = ["main"]
