"""Does the right session come first? Conversations with questions and evidence, all in one store.

    python -m bench.quality [PATH ...] [--json FILE]

PATH is a file or a folder of the LoCoMo or the LongMemEval shape (see bench/conversations.py); without one, the
small set is read that was written for this project, bench/data/quality.json. A question is asked as it stands.
For each way of ranking, in per cent: hit@1 and hit@5, the share of questions of which a session with evidence
comes first or among the first five; recall@5, the share of their sessions among the first five; MRR, the mean of
one over the first one's rank. The last lines are the whole ranking by category of question.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import mean

import crabstore
from crabstore import Analysis, HistoryEntry, Weights
from crabstore.store.records import Json

from .conversations import Question, Talk, Turn, read

__all__ = ["OWN", "WAYS", "Row", "Way", "main", "measure", "row"]

OWN = Path(__file__).parent / "data" / "quality.json"
DEPTH = 50
"""Sessions read for a question; one that comes later counts as not found."""


@dataclass(frozen=True)
class Way:
    """A way of ranking."""

    name: str
    weights: Weights = field(default_factory=Weights)
    analysis: Analysis = field(default_factory=Analysis)


WAYS = [
    Way("best message alone", Weights(session=0.0), Analysis(fold=False)),
    Way("+ the session as one document", Weights(), Analysis(fold=False)),
    Way("+ folding: the whole ranking"),
    Way("without speakers", Weights(speakers=False)),
    Way("without dates", Weights(dates=False)),
]


@dataclass(frozen=True)
class Row:
    """The figures of some questions, asked in one way. Shares from 0 to 1."""

    name: str
    questions: int
    hit_1: float
    hit_5: float
    recall_5: float
    mrr: float

    def __str__(self) -> str:
        figures = (self.hit_1, self.hit_5, self.recall_5, self.mrr)
        return f"{self.name:<32} {self.questions:>6}" + "".join(
            f"{100 * figure:>10.1f}" for figure in figures
        )


def main() -> None:
    """Ask everything in every way and print the table."""
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("paths", type=Path, nargs="*")
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    talks, questions = read(given.paths or [OWN])
    messages = sum(len(talk.turns) for talk in talks)
    print(f"{len(questions)} questions over {len(talks)} sessions of {messages} messages, in one store")
    print(f"{'':<32} {'asked':>6}{'hit@1':>10}{'hit@5':>10}{'recall@5':>10}{'MRR':>10}")
    rows = asyncio.run(measure(talks, questions, WAYS))
    for line in rows:
        print(line)
    if given.json:
        given.json.write_text(json.dumps([vars(line) for line in rows], indent=1), encoding="utf-8")


async def measure(talks: Sequence[Talk], questions: Sequence[Question], ways: Sequence[Way]) -> list[Row]:
    """A row for each way, and one for each category of the questions, asked in the way of the defaults."""
    rows: list[Row] = []
    by_category: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for way in ways:
            ranked = await _ask(await _filled(Path(folder), talks, way), way, questions)
            pairs = list(zip(questions, ranked, strict=True))
            rows.append(row(way.name, pairs))
            if (way.weights, way.analysis) == (Weights(), Analysis()):
                pairs.sort(key=lambda pair: pair[0].category)
                groups = groupby(pairs, key=lambda pair: pair[0].category)
                by_category = [row(f"category {category}", list(group)) for category, group in groups]
    return rows + by_category


def row(name: str, answers: Sequence[tuple[Question, list[str]]]) -> Row:
    """The figures of questions with the handles that each found, best first."""
    ranks = [
        next((rank for rank, handle in enumerate(found, 1) if handle in question.evidence), 0)
        for question, found in answers
    ]
    return Row(
        name,
        len(answers),
        hit_1=_mean(rank == 1 for rank in ranks),
        hit_5=_mean(1 <= rank <= 5 for rank in ranks),
        recall_5=_mean(
            len(question.evidence & set(found[:5])) / len(question.evidence) for question, found in answers
        ),
        mrr=_mean(1 / rank if rank else 0.0 for rank in ranks),
    )


async def _filled(folder: Path, talks: Sequence[Talk], way: Way) -> Path:
    """A store of all talks, indexed with these weights."""
    path = folder / f"{abs(hash(way.weights))}.crmem"
    if not path.exists():
        async with crabstore.open(path, weights=way.weights) as store:
            for talk in talks:
                await store.sessions.open(talk.handle, agent="reader", created_by="reader")
                await store.sessions.append_messages(talk.handle, _entries(talk))
    return path


def _entries(talk: Talk) -> list[HistoryEntry]:
    return [HistoryEntry(message=_message(turn), format="openai-chat", ts=turn.ts) for turn in talk.turns]


def _message(turn: Turn) -> dict[str, Json]:
    message: dict[str, Json] = {"role": turn.role, "content": turn.text}
    return message | {"name": turn.speaker} if turn.speaker else message


async def _ask(path: Path, way: Way, questions: Sequence[Question]) -> list[list[str]]:
    """For each question the handles that it finds, best first."""
    async with crabstore.open(path, weights=way.weights, analysis=way.analysis) as store:
        return [
            [
                hit.meta.handle
                for hit in (await store.sessions.search(question.text, DEPTH, before=0, after=0)).hits
            ]
            for question in questions
        ]


def _mean(values: Iterable[float]) -> float:
    return mean(list(values) or [0.0])


if __name__ == "__main__":
    main()
