"""Transcripts of other programs into a store: where they are, what they hold, and how they become sessions."""

from __future__ import annotations

from .discover import Found, Place, find, places
from .events import Problem
from .ingest import ingest, ingest_file
from .report import FileReport, Report, Status

__all__ = [
    "FileReport",
    "Found",
    "Place",
    "Problem",
    "Report",
    "Status",
    "find",
    "ingest",
    "ingest_file",
    "places",
]
