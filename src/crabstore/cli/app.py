"""The command `crabstore`: its nouns, and what happens to a command line that is none.

A command's module is imported when the command line begins with its name: most of what one command needs, no other
does, and every start of the process would pay for it.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Annotated, cast

import typer
from typer.main import get_command

from ..answers.failures import ExitCode, Failure
from .call import JsonOption, StoreOption, command, report, take_globals

__all__ = ["build", "main", "start"]

COMMANDS = {
    "import": "importing:import_transcripts",
    "search": "search:search",
    "sessions": "sessions:app",
    "agents": "agents:app",
    "memory": "memory:app",
    "skills": "skills:app",
    "stats": "maintenance:stats",
    "verify": "maintenance:verify",
    "compact": "maintenance:compact",
    "backup": "rescue:backup",
    "repair": "rescue:repair",
    "reindex": "maintenance:reindex",
    "serve": "serve:serve",
    "chat": "chat:chat",
    "run": "run:run",
    "steer": "run:steer",
    "cancel": "run:cancel",
    "demo": "demo:demo",
}
"""Where each command stands, or the group of a noun's commands."""

# Typer releases stand on different clicks: what the public BadParameter derives from is the one in use.
_UsageError = cast("type[Exception]", typer.BadParameter.__mro__[2])


def build(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with these commands."""
    app = typer.Typer(
        name="crabstore",
        help="Every agent session in one file, found again by what was said.",
        add_completion=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    for name in names:
        module, _, attribute = COMMANDS[name].partition(":")
        found = getattr(import_module(f".{module}", __package__), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            command(app, name)(found)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - slow to import, seldom needed

        typer.echo(f"crabstore {version('crabstore')}")
        raise typer.Exit


def _root(
    parsed: typer.Context,
    store: StoreOption = None,
    json: JsonOption = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    take_globals(parsed, store, json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: this process's); the exit code (see `ExitCode`)."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    _accept_any_text()
    # An option that stands first may have a value that is a command's name; then all are there.
    app = build(words[:1] if words[0] in COMMANDS else COMMANDS)
    try:
        code = get_command(app).main(words, prog_name="crabstore", standalone_mode=False)
    except _UsageError as error:
        report(_usage(error), json="--json" in words)
        return ExitCode.USAGE
    return int(code or 0)


def start() -> int:
    """`main`, in a process of its own."""
    # What was imported stays until the end. Looking through it for garbage is a tenth of a short command's time.
    gc.freeze()
    return main()


def _usage(error: Exception) -> Failure:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "crabstore"
    problem = getattr(error, "format_message", lambda: str(error))().rstrip(".")
    return Failure(ExitCode.USAGE, "usage", f"{problem}; see `{command} --help`")


def _accept_any_text() -> None:
    """A locale that cannot show a character gets a question mark, and not a crash."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
