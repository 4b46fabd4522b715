"""The crabdb backend: a store in one append-only file."""

from __future__ import annotations

from .backend import CrabBackend

__all__ = ["CrabBackend"]
