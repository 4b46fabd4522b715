"""`crabstore serve`: the daemon in the foreground, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Annotated

import typer

from ..answers.failures import ExitCode
from ..daemon.extra import require_extra
from .call import Call
from .console import count

__all__ = ["serve"]


def serve(
    call: Call,
    check: Annotated[
        bool, typer.Option("--check", help="Only read config.toml, and say whether it can be used.")
    ] = False,
) -> ExitCode | None:
    """Hold the store, run its agents, and serve other programs, until SIGTERM or Ctrl-C."""
    require_extra()
    if check:
        _check(call)
        return None
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    asyncio.run(_serve(call))
    return None


async def _serve(call: Call) -> None:
    from ..daemon.serving import serving  # noqa: PLC0415 - an extra
    from .daemon import home_of  # noqa: PLC0415

    home = home_of(call)
    async with serving(home, os.environ) as served:
        served.heed_signals()
        document = {"serving": {"home": str(home.path), "socket": str(home.socket), "port": served.port}}
        tcp = f" and http://127.0.0.1:{served.port}" if served.port else ""
        call.answer(document, lambda screen: screen.show(f"serving {home.path} at {home.socket}{tcp}"))
        sys.stdout.flush()
        await served.stopped()
        call.note("stopping: runs get a while to end; stop again to cancel them")


def _check(call: Call) -> None:
    from ..daemon.config import load  # noqa: PLC0415
    from ..daemon.providers import build_providers  # noqa: PLC0415
    from .daemon import home_of  # noqa: PLC0415

    home = home_of(call)
    providers = build_providers(load(home.config), home, os.environ)
    names = sorted(filter(None, providers))
    document = {"config": {"path": str(home.config), "found": home.config.exists(), "providers": names}}
    words = (
        f"{home.config}: sound, {count(len(names), 'provider')}"
        if home.config.exists()
        else f"{home.config}: not there"
    )
    call.answer(document, lambda screen: screen.show(words))
