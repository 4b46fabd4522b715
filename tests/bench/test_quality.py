"""The benchmark of quality: the shapes it reads, the figures it computes, and that the shipped set is sound."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.conversations import Question, read

from bench import quality

ROOT = Path(__file__).parents[2]
LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bo",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ann", "dia_id": "D1:1", "text": "I bought a kayak."},
                {"speaker": "Bo", "dia_id": "D1:2", "text": "Which colour?"},
            ],
            "session_2": [{"speaker": "Bo", "dia_id": "D2:1", "text": "The oven is broken.", "img_url": []}],
        },
        "qa": [
            {"question": "What did Ann buy?", "evidence": ["D1:1"], "category": 4},
            {"question": "Both?", "evidence": ["D1:1; D:2:1"], "category": 1},
            {"question": "No evidence?", "evidence": [], "category": 5},
            {"question": "Evidence elsewhere?", "evidence": ["D9:1"], "category": 5},
        ],
    }
]
LONGMEMEVAL = [
    {
        "question_id": "q1",
        "question_type": "single-session-user",
        "question": "Which colour is my kayak?",
        "question_date": "2023/06/01 (Thu) 10:00",
        "answer": "red",
        "answer_session_ids": ["s2"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 03:00"],
        "haystack_session_ids": ["s1", "s2"],
        "haystack_sessions": [
            [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}],
            [{"role": "user", "content": "My kayak is red.", "has_answer": True}],
        ],
    }
]


def test_both_shapes_are_read_from_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(LOCOMO), encoding="utf-8")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.json").write_text(json.dumps(LONGMEMEVAL), encoding="utf-8")
    talks, questions = read([tmp_path])
    assert [talk.handle for talk in talks] == ["a-conv-1-1", "a-conv-1-2", "s1", "s2"]
    first, second = talks[0].turns
    assert (first.speaker, first.role, first.ts) == ("Ann", "user", "2023-05-08T13:56:00.000000Z")
    assert (second.role, second.ts) == ("assistant", "2023-05-08T13:57:00.000000Z")
    assert talks[2].turns[0].ts == "2023-05-20T02:21:00.000000Z" and not talks[2].turns[0].speaker
    assert questions == [
        Question("What did Ann buy?", frozenset({"a-conv-1-1"}), "4"),
        Question("Both?", frozenset({"a-conv-1-1", "a-conv-1-2"}), "1"),
        Question("Which colour is my kayak?", frozenset({"s2"}), "single-session-user"),
    ]


def test_a_file_of_another_shape_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"messages": []}]', encoding="utf-8")
    with pytest.raises(ValueError, match=r"a\.json"):
        read([tmp_path])


def test_figures_are_those_of_their_definitions() -> None:
    one, two = (Question(name, frozenset(evidence), "") for name, evidence in (("1", "a"), ("2", "bc")))
    row = quality.row("x", [(one, ["a", "b"]), (two, [*"defghb"]), (two, [*"xb"]), (one, [])])
    assert (row.hit_1, row.hit_5, row.recall_5) == (0.25, 0.5, (1 + 0 + 0.5 + 0) / 4)
    assert row.mrr == pytest.approx((1 + 1 / 6 + 1 / 2 + 0) / 4)
    assert quality.row("none", []).questions == 0


def test_the_shipped_set_is_whole_and_each_way_ranks_it() -> None:
    talks, questions = read([quality.OWN])
    asked = sum(len(item["qa"]) for item in json.loads(quality.OWN.read_text(encoding="utf-8")))
    assert len(questions) == asked >= 60 and len(talks) >= 24
    rows = asyncio.run(quality.measure(talks, questions, quality.WAYS))
    assert [row.name for row in rows[: len(quality.WAYS)]] == [way.name for way in quality.WAYS]
    assert sum(row.questions for row in rows[len(quality.WAYS) :]) == asked
    for row in rows[: len(quality.WAYS)]:
        # No tuned figures: that ranking by words finds most of what is asked by words, and counts add up.
        assert 0.5 < row.hit_1 <= row.hit_5 <= 1 and row.hit_1 <= row.mrr and row.recall_5 <= row.hit_5
    page = (ROOT / "docs" / "search.md").read_text(encoding="utf-8")
    assert f"{asked} questions over {len(talks)} sessions" in page
    for row in rows[: len(quality.WAYS)]:
        figures = (row.hit_1, row.hit_5, row.recall_5, row.mrr)
        line = " | ".join((row.name, *(f"{100 * figure:.1f}" for figure in figures)))
        assert f"| {line} |" in page, f"docs/search.md should say: | {line} |"


def test_the_command_prints_a_table_and_writes_its_figures(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(LONGMEMEVAL), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "bench.quality", tmp_path / "a.json", "--json", tmp_path / "out.json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 questions over 2 sessions of 3 messages" in done.stdout and "hit@1" in done.stdout
    assert {row["hit_1"] for row in json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))} == {1.0}
