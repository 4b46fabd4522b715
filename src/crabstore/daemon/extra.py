"""Whether the packages are installed that only the daemon and its clients need."""

from __future__ import annotations

from importlib.util import find_spec

from ..answers.failures import ExitCode, Refusal

__all__ = ["require_extra"]

_PACKAGES = ("h11", "starlette", "uvicorn")


def require_extra() -> None:
    """Raises Refusal unless they are."""
    if any(find_spec(name) is None for name in _PACKAGES):
        problem = "this needs further packages: pip install 'crabstore[daemon]'"
        raise Refusal(ExitCode.USAGE, "not-installed", problem)
