"""What grows with the number of messages, beside SQLite FTS5 and tantivy on the same texts in the same run?

    python -m bench.scale [--messages 10000 100000 1000000] [--text FOLDER] [--json FILE] [--plots FOLDER]
                          [--only crabstore fts5 tantivy] [--markdown] [--read]

Made conversations (see bench/corpus.py) or the paragraphs of a folder's texts. Each engine writes in a process of
its own, is asked in three others one after the other, each query first cold (the process is new; the system's
cache is warm) and then warm, and deletes in a fifth, so that every figure of memory is one engine's. Making the
texts is not timed.

Forty queries: rare, middling and common words, pairs, triples, beginnings of words, words in all their forms, with
a condition on project or time, and words that nothing holds. The best twenty are wanted; peers are given all forms
of a word, which ours finds by itself. Sessions are searched as `sessions.search` does it, windows included.

How the peers are set stands in bench/scaling/fts5.py and tantivy.py. `--json` keeps what a file holds of other
sizes and engines; `--read` measures nothing and shows what the file holds.
"""

from __future__ import annotations

import argparse
import compileall
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter

import crabdb
import crabstore

from .corpus import Corpus, FolderCorpus, Query, ZipfCorpus
from .engines import machine
from .scaling.common import Outcome
from .scaling.plots import draw
from .scaling.tables import Run, markdown, summary

ASKED = 3
"""Processes that ask all queries."""
IMPORTED = 20_000
"""Messages that `crabstore import` is given at most."""


def main() -> None:
    """Measure, print, keep and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--text", type=Path, metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plots", type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="+", choices=["crabstore", "fts5", "tantivy"])
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--read", action="store_true")
    given = parser.parse_args()
    kept = _kept(given.json)
    if not given.read:
        kept = _measured(
            given.messages, given.text, given.only or ["crabstore", "fts5", "tantivy"], kept, given.json
        )
    print(markdown(kept) if given.markdown else summary(kept))
    if given.plots:
        draw(kept, given.plots)


def _measured(
    sizes: list[int], text: Path | None, engines: list[str], kept: list[Run], file: Path | None
) -> list[Run]:
    """What was kept, with the runs of these sizes and engines new."""
    for messages in sizes:
        count = messages if text is None else sum(1 for _ in _corpus(text).texts(messages))
        for engine in engines:
            run = _run(engine, count, text)
            others = [old for old in kept if (old.engine, old.messages) != (engine, count)]
            kept = sorted([*others, run], key=lambda run: (run.messages, run.engine))
            if file:
                document = {"machine": machine(), "runs": [asdict(run) for run in kept]}
                file.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return kept


def _kept(file: Path | None) -> list[Run]:
    if file is None or not file.exists():
        return []
    return [Run(**run) for run in json.loads(file.read_text(encoding="utf-8"))["runs"]]


def _corpus(text: Path | None) -> Corpus:
    return ZipfCorpus() if text is None else FolderCorpus(text)


# -- an engine, phase after phase --


def _run(engine: str, messages: int, text: Path | None) -> Run:
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        folder = Path(directory) / "store"
        folder.mkdir()
        queries = _corpus(text).queries(messages)
        folder.with_name("queries.json").write_text(json.dumps([asdict(query) for query in queries]))

        def phase(name: str, engine: str = engine) -> Outcome:
            return _apart(engine, name, folder, messages, text)

        figures = phase("fill").figures
        run = Run(
            engine, messages, figures, [query.kind for query in queries], [query.text for query in queries]
        )
        asked = [phase("search") for _ in range(ASKED)]
        run.take(asked)
        if engine == "crabstore":
            run.take([phase("search", "crabstore sessions") for _ in range(ASKED)], "sessions_")
            figures["command_ms"] = _command(folder / "store.crmem", queries)
        figures |= phase("delete").figures
        if engine == "crabstore":
            figures["import_us"] = _imported(Path(directory), min(messages, IMPORTED), text)
    return run


def _apart(engine: str, phase: str, folder: Path, messages: int, text: Path | None) -> Outcome:
    """A phase in a process of its own."""
    command = [sys.executable, "-m", "bench.scaling.child", engine, phase, str(folder), str(messages)]
    options = ["--text", str(text)] if text else []
    found = subprocess.run([*command, *options], check=True, stdout=subprocess.PIPE)
    return Outcome(**json.loads(found.stdout))


# -- the command --


def _crabstore(*words: str) -> float:
    """Seconds from the start of a process of the command to its end."""
    start = perf_counter()
    command = Path(sys.executable).with_name("crabstore")
    subprocess.run([command, *words], check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - start


def _command(store: Path, queries: list[Query]) -> float:
    """Milliseconds of `crabstore search`, of one query of each kind."""
    # What pip installs is compiled; a checkout need not be.
    for package in (crabdb, crabstore):
        compileall.compile_dir(Path(str(package.__file__)).parent, quiet=1)
    one_each = {query.kind: query.text for query in queries}
    return median(_crabstore("search", text, "--store", str(store)) for text in one_each.values()) * 1e3


def _imported(directory: Path, messages: int, text: Path | None) -> float:
    """Microseconds a message of `crabstore import`, without what the command takes to import nothing."""
    transcripts, nothing = directory / "transcripts", directory / "nothing"
    transcripts.mkdir()
    nothing.mkdir()
    for session in _corpus(text).sessions(messages):
        shown = [{"role": message.role, "content": message.text} for message in session.messages]
        name = f"{session.handle.replace('/', '-')}.jsonl"
        (transcripts / name).write_text(json.dumps({"messages": shown}) + "\n", encoding="utf-8")
    store = directory / "imported.crmem"
    (nothing / "one.jsonl").write_text('{"role": "user", "content": "one"}\n', encoding="utf-8")
    idle = _crabstore("import", str(nothing), "--store", str(directory / "nothing.crmem"))
    spent = _crabstore("import", str(transcripts), "--store", str(store)) - idle
    shutil.rmtree(transcripts)
    return spent / messages * 1e6


if __name__ == "__main__":
    main()
