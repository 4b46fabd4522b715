"""Which daemon a call means: the one that holds the call's store, or would. Cheap to import."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ..answers.failures import ExitCode, Refusal
from ..daemon.home import STORE, Home
from ..opening import file_of
from .call import Call

__all__ = ["home_of", "require_extra"]


def home_of(call: Call) -> Home:
    """The folder of the call's store. Raises Refusal for a store that no daemon can hold."""
    path = file_of(call.url)
    if path is None or Path(path).name != STORE:
        problem = (
            f"a daemon serves a folder with a file {STORE} in it: name that file with --store, not {call.url}"
        )
        raise Refusal(ExitCode.USAGE, "usage", problem)
    return Home(Path(path).absolute().parent)


def require_extra() -> None:
    """Raises Refusal unless what serving needs is installed."""
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        problem = "this needs further packages: pip install 'crabstore[daemon]'"
        raise Refusal(ExitCode.USAGE, "not-installed", problem)
