"""The command `crabstore`: its nouns, and what happens to a command line that is none."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, cast

import typer
from typer.main import get_command

from . import agents, memory, sessions, skills
from .call import JsonOption, StoreOption, command, report, take_globals
from .demo import demo
from .failures import ExitCode, Failure
from .importing import import_transcripts
from .maintenance import compact, reindex, stats, verify
from .rescue import backup, repair
from .search import search

__all__ = ["app", "main"]

# Typer releases stand on different clicks: what the public BadParameter derives from is the one in use.
_UsageError = cast("type[Exception]", typer.BadParameter.__mro__[2])

app = typer.Typer(
    name="crabstore",
    help="Every agent session in one file, found again by what was said.",
    add_completion=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - slow to import, seldom needed

        typer.echo(f"crabstore {version('crabstore')}")
        raise typer.Exit


@app.callback()
def root(
    parsed: typer.Context,
    store: StoreOption = None,
    json: JsonOption = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    take_globals(parsed, store, json)


command(app, "import")(import_transcripts)
command(app, "search")(search)
app.add_typer(sessions.app, name="sessions")
app.add_typer(agents.app, name="agents")
app.add_typer(memory.app, name="memory")
app.add_typer(skills.app, name="skills")
command(app, "stats")(stats)
command(app, "verify")(verify)
command(app, "compact")(compact)
command(app, "backup")(backup)
command(app, "repair")(repair)
command(app, "reindex")(reindex)
command(app, "demo")(demo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments` (default: this process's); the exit code (see `ExitCode`)."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    _accept_any_text()
    try:
        code = get_command(app).main(words, prog_name="crabstore", standalone_mode=False)
    except _UsageError as error:
        report(_usage(error), json="--json" in words)
        return ExitCode.USAGE
    return int(code or 0)


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
