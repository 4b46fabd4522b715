"""One phase of one engine in this process, which imports nothing of the other engines; the outcome as JSON.

python -m bench.scaling.child ENGINE PHASE FOLDER MESSAGES [--text FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from ..corpus import FolderCorpus, Query, ZipfCorpus
from .common import Engine, Outcome


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=["crabstore", "crabstore sessions", "fts5", "tantivy"])
    parser.add_argument("phase", choices=["fill", "search", "delete"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("messages", type=int)
    parser.add_argument("--text", type=Path)
    given = parser.parse_args()
    engine = _engine(given.engine, given.folder)
    json.dump(asdict(_outcome(engine, given.phase, given.messages, given.text)), sys.stdout)


def _outcome(engine: Engine, phase: str, messages: int, text: Path | None) -> Outcome:
    corpus = ZipfCorpus() if text is None else FolderCorpus(text)
    if phase == "fill":
        return engine.fill(corpus, messages)
    if phase == "delete":
        return engine.delete(corpus, messages)
    rows = json.loads(engine.folder.with_name("queries.json").read_text(encoding="utf-8"))
    return engine.search([Query(**row | {"words": tuple(row["words"])}) for row in rows])


def _engine(name: str, folder: Path) -> Engine:
    if name.startswith("crabstore"):
        from .ours import Crabstore, CrabstoreSessions

        return Crabstore(folder) if name == "crabstore" else CrabstoreSessions(folder)
    if name == "fts5":
        from .fts5 import FTS5

        return FTS5(folder)
    from .tantivy import Tantivy

    return Tantivy(folder)


if __name__ == "__main__":
    main()
