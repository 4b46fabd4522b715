"""Conversations with questions and their evidence, read from files of the LoCoMo or the LongMemEval shape.

LoCoMo (Maharana et al., Evaluating Very Long-Term Conversational Memory of LLM Agents, 2024): a list of
``{sample_id, conversation: {speaker_a, speaker_b, session_1: [{speaker, dia_id, text}], session_1_date_time}, qa:
[{question, evidence: ["D1:3"], category}]}``. LongMemEval (Wu et al., 2024): a list of ``{question_id,
question_type, question, haystack_session_ids, haystack_dates, haystack_sessions: [[{role, content}]],
answer_session_ids}``. Says nothing about search.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from crabstore.store.records import rfc3339

__all__ = ["Question", "Talk", "Turn", "read"]

Item = dict[str, Any]
"""An element of a file, as JSON."""

_DATES = ("%I:%M %p on %d %B, %Y", "%Y/%m/%d (%a) %H:%M", "%Y/%m/%d")
_EVIDENCE = re.compile(r"D:?(\d+):\d+")
_START = datetime(2023, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Turn:
    """Something said."""

    speaker: str
    """A name; "" if only the role is known."""
    role: str
    """user or assistant."""
    text: str
    ts: str
    """UTC RFC 3339."""


@dataclass(frozen=True)
class Talk:
    """One session."""

    handle: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Question:
    """What is asked, and the sessions that hold the answer."""

    text: str
    evidence: frozenset[str]
    category: str


def read(paths: Iterable[Path]) -> tuple[list[Talk], list[Question]]:
    """Everything in these files and folders, each session once. Questions without evidence are left out.

    Raises ValueError for a file of another shape.
    """
    talks: dict[str, Talk] = {}
    questions: list[Question] = []
    for path in paths:
        for file in sorted(path.rglob("*.json")) if path.is_dir() else [path]:
            for number, item in enumerate(_items(file)):
                found, asked = _item(file, number, item)
                talks.update({talk.handle: talk for talk in found if talk.handle not in talks})
                questions += asked
    return list(talks.values()), [
        question for question in questions if question.evidence and question.evidence <= talks.keys()
    ]


def _items(file: Path) -> list[Item]:
    data = json.loads(file.read_text(encoding="utf-8"))
    items: list[Item] = data if isinstance(data, list) else [data]
    return items


def _item(file: Path, number: int, item: Item) -> tuple[list[Talk], list[Question]]:
    if isinstance(item, dict) and "conversation" in item and "qa" in item:
        name = f"{file.stem}-{item.get('sample_id', number)}"
        return list(_locomo_talks(name, item["conversation"])), list(_locomo_questions(name, item["qa"]))
    if isinstance(item, dict) and "haystack_sessions" in item and "answer_session_ids" in item:
        return list(_longmemeval_talks(item)), [_longmemeval_question(item)]
    raise ValueError(f"{file}: element {number} is neither of the LoCoMo nor of the LongMemEval shape")


def _locomo_talks(name: str, conversation: Item) -> Iterator[Talk]:
    for key, turns in conversation.items():
        if match := re.fullmatch(r"session_(\d+)", key):
            start = _date(conversation.get(f"{key}_date_time", ""))
            yield Talk(
                f"{name}-{match[1]}",
                tuple(
                    Turn(
                        turn["speaker"],
                        "user" if turn["speaker"] == conversation["speaker_a"] else "assistant",
                        turn.get("text", ""),
                        _minutes(start, number),
                    )
                    for number, turn in enumerate(turns)
                ),
            )


def _locomo_questions(name: str, asked: list[Item]) -> Iterator[Question]:
    for item in asked:
        evidence = {number for text in item.get("evidence", []) for number in _EVIDENCE.findall(str(text))}
        handles = frozenset(f"{name}-{int(number)}" for number in evidence)
        yield Question(str(item["question"]), handles, str(item.get("category", "")))


def _longmemeval_talks(item: Item) -> Iterator[Talk]:
    dates = item.get("haystack_dates") or [""] * len(item["haystack_sessions"])
    rows = zip(item["haystack_session_ids"], dates, item["haystack_sessions"], strict=True)
    for handle, date, turns in rows:
        start = _date(date)
        yield Talk(
            str(handle),
            tuple(
                Turn("", turn["role"], turn["content"], _minutes(start, number))
                for number, turn in enumerate(turns)
            ),
        )


def _longmemeval_question(item: Item) -> Question:
    evidence = frozenset(map(str, item["answer_session_ids"]))
    return Question(str(item["question"]), evidence, str(item.get("question_type", "")))


def _date(text: str) -> datetime:
    for pattern in _DATES:
        try:
            return datetime.strptime(text, pattern).replace(tzinfo=UTC)
        except ValueError:
            continue
    return _START


def _minutes(start: datetime, number: int) -> str:
    return rfc3339(start + timedelta(minutes=number))
