"""What other processes of this machine write into the store while the daemon holds it: whole commits.

Only over the socket: whoever reaches it may write the file itself, when no daemon holds it.
"""

from __future__ import annotations

import base64

from ...answers.documents import Document
from ...store.errors import Conflict
from ..application import Daemon
from ..commits import Commit
from .operations import Ask, Nothing, Operations

__all__ = ["operations"]

operations = Operations()


@operations.add("POST", "/v1/store/commit", Nothing, Commit)
async def commit(daemon: Daemon, ask: Ask[Nothing, Commit]) -> Document:
    """Write a batch; or nothing of it, and say where, if the store does not hold what it expects."""
    try:
        await daemon.store.commit(ask.body.stage(daemon.store.batch()))
    except Conflict as error:
        return {"conflict": {"col": error.col, "key": base64.b64encode(error.key).decode()}}
    return {"conflict": None}
