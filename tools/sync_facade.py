"""Write src/crabstore/sync.py from the async interfaces: the same store without the awaits, typed, derived.

Run it after changing a public async method: ``python -m tools.sync_facade``. A test compares.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from crabstore.store.agents import Agents
from crabstore.store.backend import Backend
from crabstore.store.harnesses import Harnesses
from crabstore.store.memory import Memory
from crabstore.store.sessions import Sessions
from crabstore.store.skills import Skills
from crabstore.store.text import TextSearch

TARGET = Path(__file__).parent.parent / "src" / "crabstore" / "sync.py"

INTERFACES: dict[str, type] = {
    "agents": Agents,
    "sessions": Sessions,
    "memory": Memory,
    "skills": Skills,
    "harnesses": Harnesses,
    "text": TextSearch,
}
# A batch is staged inside a coroutine; what takes or makes one stays with the async store.
LEFT_OUT = {
    *("batch", "transact", "commit", "stage", "index", "drop", "drop_prefix"),
    *("clear", "conform", "rebuild", "rebuilding"),
}

HEADER = '''"""The store without the awaits: every call runs on one event loop in a thread of the store's own.

So it works where a loop is running already, in a notebook too. Written by tools/sync_facade.py from the async
interfaces; never edited, never a second implementation.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Collection, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import TypeVar

from . import opening
from .store import reindex as _reindex
from .store.agents import AgentConfig, Agents
from .store.backend import Backend
from .store.batch import Column
from .store.bm25 import Analysis, Bm25
from .store.errors import StoreClosed
from .store.harnesses import Harnesses
from .store.memory import Kind, Memory, MemoryEntry, MemoryHit
from .store.messages import HistoryEntry
from .store.records import Json, Record
from .store.session_index import Redact
from .store.session_records import (
    Appended,
    EventLine,
    Loaded,
    OtherEvent,
    Recent,
    SessionMeta,
    Source,
    SourceRow,
)
from .store.session_search import SessionAnswer, SessionFilter
from .store.sessions import Sessions
from .store.skills import Skills, SkillSummary
from .store.text import GroupHits, Hits, Scale, TextSearch, Where
from .store.weights import Weights

__all__ = ["SyncStore", "open_sync"]

R = TypeVar("R", bound=Record)
T = TypeVar("T")


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="crabstore", daemon=True)
        self._thread.start()

    def run(self, call: Coroutine[object, object, T]) -> T:
        """What `call` returns, or the error that it raises."""
        if self._loop.is_closed():
            call.close()
            raise StoreClosed
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def closed(self) -> bool:
        """Whether the thread has ended."""
        return self._loop.is_closed()

    def stop(self) -> None:
        """End the thread; calls after it are errors."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

'''

STORE = '''
class SyncStore:
    """A store without the awaits; see `crabstore.store.backend.Backend`."""

    def __init__(self, loop: _Loop, store: Backend) -> None:
        self._loop = loop
        self._inner = store
{attributes}
    def __enter__(self) -> SyncStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store and end its thread; closing again does nothing."""
        if self._loop.closed():
            return
        try:
            self._loop.run(self._inner.close())
        finally:
            self._loop.stop()

    def reindex(self) -> None:
        """Every index built anew from content; see `crabstore.store.reindex`."""
        self._loop.run(_reindex.reindex(self._inner))

{methods}

def open_sync(
    url: str | os.PathLike[str],
    *,
    create: bool = True,
    read_only: bool = False,
    bm25: Bm25 | None = None,
    analysis: Analysis | None = None,
    weights: Weights | None = None,
    redact: Redact | None = None,
) -> SyncStore:
    """The store at `url`, for code without an event loop; see `crabstore.open`."""

    async def connect() -> Backend:
        return await opening.open(
            url,
            create=create,
            read_only=read_only,
            bm25=bm25,
            analysis=analysis,
            weights=weights,
            redact=redact,
        )

    loop = _Loop()
    try:
        return SyncStore(loop, loop.run(connect()))
    except BaseException:
        loop.stop()
        raise
'''


def main() -> None:
    """Write the file anew."""
    TARGET.write_text(formatted(), encoding="utf-8")


def formatted() -> str:
    """The whole file as it must stand."""
    ruff = [str(Path(sys.executable).parent / "ruff"), "format", "-", "--stdin-filename", str(TARGET)]
    return subprocess.run(ruff, input=source(), text=True, capture_output=True, check=True).stdout


def source() -> str:
    """The file before formatting."""
    classes = [_interface(cls) for cls in INTERFACES.values()]
    attributes = "".join(
        f"        self.{name} = Sync{cls.__name__}(loop, store.{name})\n" for name, cls in INTERFACES.items()
    )
    methods = "\n".join(_methods(Backend, {"close", *INTERFACES}))
    return HEADER + "\n".join(classes) + STORE.format(attributes=attributes, methods=methods)


def _interface(cls: type) -> str:
    name = cls.__name__
    return (
        f'\nclass Sync{name}:\n    """`{cls.__module__}.{name}` without the awaits."""\n\n'
        f"    def __init__(self, loop: _Loop, inner: {name}) -> None:\n"
        "        self._loop = loop\n        self._inner = inner\n\n" + "\n".join(_methods(cls, set()))
    )


def _methods(cls: type, left_out: set[str]) -> list[str]:
    names = [name for base in reversed(cls.__mro__) for name in vars(base)]
    found = {name: inspect.getattr_static(cls, name) for name in dict.fromkeys(names)}
    return [
        _method(name, method)
        for name, method in found.items()
        if inspect.isfunction(method) and name[0] != "_" and name not in LEFT_OUT | left_out
    ]


def _method(name: str, method: Callable[..., object]) -> str:
    signature = inspect.signature(method)
    arguments = ", ".join(_argument(parameter) for parameter in list(signature.parameters.values())[1:])
    call = f"self._inner.{name}({arguments})"
    body = f"self._loop.run({call})" if inspect.iscoroutinefunction(method) else call
    returns = "" if signature.return_annotation == "None" else "return "
    doc = (inspect.getdoc(method) or "").split("\n\n", maxsplit=1)[0]
    return f'    def {name}{_text(signature)}:\n        """{doc}"""\n        {returns}{body}\n'


def _argument(parameter: inspect.Parameter) -> str:
    """How a call hands this parameter on."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    return (
        f"{parameter.name}={parameter.name}" if parameter.kind is parameter.KEYWORD_ONLY else parameter.name
    )


def _text(signature: inspect.Signature) -> str:
    """The signature as written: its annotations are source text already."""
    parts: list[str] = []
    starred = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        annotation = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        parts.append(f"{star}{parameter.name}{annotation}{default}")
    return f"({', '.join(parts)}) -> {signature.return_annotation}"


if __name__ == "__main__":
    main()
