"""One call of the command line: its global options, the store it works on, and how its answer leaves.

`command` registers a function as a command: it gives it the global options, reports its errors as one line,
and turns them into an exit code.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Concatenate, ParamSpec, TypeVar

import typer

import crabdb

from ..answers.failures import EXPECTED, ExitCode, Failure, Refusal, explain, failure_document
from ..daemon.extra import require_extra
from ..daemon.home import SOCKET, STORE
from ..opening import file_of
from ..opening import open as open_store
from ..store.backend import Backend
from .console import Screen, one_line, to_json

if TYPE_CHECKING:
    from ..daemon.remote import DaemonStore

__all__ = [
    "Call",
    "Globals",
    "JsonOption",
    "StoreOption",
    "command",
    "from_home",
    "group",
    "home",
    "report",
    "take_globals",
]

T = TypeVar("T")
P = ParamSpec("P")

VARIABLE = "CRABSTORE_URL"
_HOME = "CRABSTORE_HOME"
_DEFAULT = Path(".crabstore") / "store.crmem"

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help=f"The store: a path or a URL. Else ${VARIABLE}, else {_DEFAULT.name} in ${_HOME}, else ~/{_DEFAULT}.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer with one JSON document.")]


def home() -> Path:
    """The person's home directory. Raises Refusal if the system knows none."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise Refusal(
            ExitCode.USAGE, "usage", "there is no home directory here: name the store with --store"
        ) from error


def from_home(path: str) -> str:
    """`path`, where a shell has not replaced the tilde at its beginning."""
    return str(home() / path[2:]) if path.startswith("~/") else path


@dataclass
class Globals:
    """The global options as far as they were read: they may stand before a subcommand and after it."""

    store: str | None = None
    json: bool = False

    def take(self, store: str | None, json: bool) -> None:
        """Add what stands further right, which wins."""
        self.store = store or self.store
        self.json = json or self.json


class Call:
    """What a command works with."""

    def __init__(self, options: Globals) -> None:
        self._options = options
        self.json = options.json
        """Whether to answer with one JSON document."""

    @cached_property
    def url(self) -> str:
        """The store's URL."""
        given = self._options.store or os.environ.get(VARIABLE)
        if given:
            return from_home(given)
        folder = os.environ.get(_HOME)
        return str(Path(from_home(folder)) / _DEFAULT.name if folder else home() / _DEFAULT)

    @cached_property
    def screen(self) -> Screen:
        """Where the answer goes."""
        return Screen()

    def read(self, task: Callable[[Backend], Awaitable[T]]) -> T:
        """What `task` returns over the store, which is opened beside any writer and never made."""
        return asyncio.run(self._over(task, create=False, read_only=True))

    def write(self, task: Callable[[Backend], Awaitable[T]], *, create: bool = False) -> T:
        """What `task` returns over the store; what it wrote is on the disk then, power loss or not."""
        if create:
            self._make_home()

        async def lasting(store: Backend) -> T:
            result = await task(store)
            await store.sync()
            return result

        return asyncio.run(self._over(lasting, create=create, read_only=False))

    def answer(self, document: Mapping[str, object], draw: Callable[[Screen], None]) -> None:
        """Give the answer: `document` with ``--json``, else what `draw` draws."""
        if self.json:
            sys.stdout.write(to_json(document) + "\n")
        else:
            draw(self.screen)

    def note(self, message: str) -> None:
        """Tell a person something beside the answer."""
        if not self.json:
            sys.stderr.write(f"{one_line(message)}\n")

    def again(self, *words: str) -> str:
        """A command line that works on the same store as this one."""
        store = ("--store", self._options.store) if self._options.store else ()
        return shlex.join(["crabstore", *words, *store])

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on only if a person agrees. Raises Refusal if there is nobody to ask, or the answer is no."""
        if yes:
            return
        if self.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Refusal(ExitCode.USAGE, "needs-yes", f"{question} Nobody can be asked here: say --yes")
        try:
            agreed = typer.confirm(one_line(question), err=True)
        except typer.Abort:  # Ctrl-C, or the end of the input
            raise KeyboardInterrupt from None
        if not agreed:
            raise Refusal(ExitCode.PARTIAL, "declined", "nothing was changed")

    async def _over(self, task: Callable[[Backend], Awaitable[T]], *, create: bool, read_only: bool) -> T:
        try:
            held = None if read_only else await self._held()
            async with held or open_store(self.url, create=create, read_only=read_only) as store:
                return await task(store)
        except crabdb.NotFound as error:
            if create:
                raise _no_folder(error.path.parent) from error
            raise

    async def _held(self) -> DaemonStore | None:
        """The store for writing, as a daemon holds it; None if none does."""
        path = Path(file_of(self.url) or "")
        socket = path.with_name(SOCKET) if path.name == STORE else None
        if socket is None or not socket.exists():
            return None
        require_extra()
        from ..daemon.remote import DaemonStore  # noqa: PLC0415 - only where there is a daemon

        return await DaemonStore.reach(socket, path)

    def _make_home(self) -> None:
        """Make the default store's directory; no other directory is invented."""
        if not (self._options.store or os.environ.get(VARIABLE)):
            Path(self.url).parent.mkdir(mode=0o700, exist_ok=True)


Body = Callable[Concatenate[Call, P], ExitCode | None]


def command(app: typer.Typer, name: str) -> Callable[[Body[P]], Body[P]]:
    """Register a function of a Call as the command `name`; it returns an exit code, None for DONE."""

    def register(body: Body[P]) -> Body[P]:
        app.command(name)(_with_globals(body))
        return body

    return register


def group(help: str) -> typer.Typer:
    """A noun: a group of commands that takes the global options too."""
    return typer.Typer(help=help, callback=take_globals, rich_markup_mode=None)


def take_globals(parsed: typer.Context, store: StoreOption = None, json: JsonOption = False) -> None:
    """Take the global options that stand here."""
    parsed.ensure_object(Globals).take(store, json)


def report(failure: Failure, *, json: bool) -> None:
    """Print a failure on stderr: one line, or one JSON object."""
    if json:
        sys.stderr.write(to_json(failure_document(failure)) + "\n")
    else:
        sys.stderr.write(f"crabstore: {one_line(failure.message)}\n")


def _with_globals(body: Body[P]) -> Callable[..., None]:
    """`body` as typer takes it: with the context and the global options among its parameters."""

    @wraps(body)
    def run(*, parsed: typer.Context, store: str | None, json: bool, **given: object) -> None:
        options = parsed.ensure_object(Globals)
        options.take(store, json)
        raise typer.Exit(_guarded(body, Call(options), given))

    own = [*inspect.signature(body, eval_str=True).parameters.values()][1:]
    added = [*inspect.signature(take_globals, eval_str=True).parameters.values()]
    every = [added[0], *own, *added[1:]]
    # Typer reads these two to learn what a command takes.
    run.__dict__["__signature__"] = inspect.Signature(
        [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in every]
    )
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    return run


def _guarded(body: Callable[..., ExitCode | None], call: Call, given: Mapping[str, object]) -> ExitCode:
    """Run a command; its exit code. What may go wrong is reported, what may not is raised."""
    try:
        code = body(call, **given) or ExitCode.DONE
        sys.stdout.flush()
    except BrokenPipeError:
        _detach_stdout()
        return ExitCode.PIPE
    except KeyboardInterrupt:
        report(Failure(ExitCode.INTERRUPTED, "interrupted", "interrupted"), json=call.json)
        return ExitCode.INTERRUPTED
    except EXPECTED as error:
        failure = explain(error)
        report(failure, json=call.json)
        return failure.code
    return code


def _no_folder(folder: Path) -> Refusal:
    problem = f"the directory {folder} does not exist: make it first, or name another store with --store"
    return Refusal(ExitCode.MISSING, "no-store", problem)


def _detach_stdout() -> None:
    """Let the interpreter's own flush at its end go nowhere, since the reader is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
