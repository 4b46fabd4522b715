"""Harnesses: how tools, context and state reach an agent's runs. The seam and its composite."""

from __future__ import annotations

from .base import Context, Harness, PartlyResolved
from .hooks import Hooks
from .scope import Scope
from .standard import standard_harnesses

__all__ = ["Context", "Harness", "Hooks", "PartlyResolved", "Scope", "standard_harnesses"]
