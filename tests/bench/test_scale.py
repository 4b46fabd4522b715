"""The growth benchmark measures what it says: one corpus each time, all of it, in calls of the size asked for."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path

from bench.corpus import FolderCorpus, ZipfCorpus
from bench.scaling.common import Outcome, Stream
from bench.scaling.ours import kind_of
from bench.scaling.tables import Run, markdown
from hypothesis import given
from hypothesis import strategies as st

from crabstore.store.bm25 import tokens


def test_a_corpus_is_the_same_each_time_and_a_smaller_one_has_as_many_messages_as_asked() -> None:
    assert list(ZipfCorpus().texts(500)) == list(ZipfCorpus().texts(500))
    assert len(list(ZipfCorpus().texts(123))) == 123


def test_new_words_never_cease_to_come() -> None:
    texts = ZipfCorpus().texts(2_000)
    first = set(chain.from_iterable(map(tokens, islice(texts, 1_000))))
    second = set(chain.from_iterable(map(tokens, texts)))
    assert len(second - first) > len(first) / 3


def test_every_form_of_a_word_is_spelled_differently() -> None:
    queries = ZipfCorpus().queries(1_000)
    assert len(queries) == 40
    assert all(len(set(query.words)) == len(query.words) > 0 for query in queries)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 17)), max_size=6))
def test_a_stream_gives_every_message_once_and_in_order(steps: list[tuple[int, int]]) -> None:
    stream = Stream(ZipfCorpus().sessions(100))
    taken = [
        (part.number + at, message.text)
        for count, most in steps
        for part in stream.take(count, most)
        for at, message in enumerate(part.messages)
    ]
    assert taken == list(enumerate(islice(ZipfCorpus().texts(100), sum(count for count, _ in steps))))


def test_rows_come_in_batches_of_the_size_asked_for() -> None:
    batches = list(Stream(ZipfCorpus().sessions(100)).rows(100, 32))
    assert [len(batch) for batch in batches] == [32, 32, 32, 4]
    assert [row.number for batch in batches for row in batch] == list(range(100))


def test_a_folder_is_read_by_its_paragraphs_until_it_ends(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("first one\n\nsecond one\n \n\nthird", encoding="utf-8")
    (tmp_path / "b.bin").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "c.txt").write_text("last", encoding="utf-8")
    corpus = FolderCorpus(tmp_path)
    assert list(corpus.texts(100)) == ["first one", "second one", "third", "last"]
    assert list(corpus.texts(2)) == ["first one", "second one"]
    assert len(corpus.queries(100)) == 40


def test_rows_of_a_store_are_told_apart_by_what_does_not_vary() -> None:
    kinds = {
        b"local/session/abc/msg/000000000001": "session/msg",
        b"local/session/abc/meta": "session/meta",
        b"local/idx/recent/2026/abc": "idx/recent",
        b"local/idx/text/msg/seg/1/term/abc": "idx/text/msg/seg",
        b"local/schema": "schema",
    }
    assert {key: kind_of(key) for key in kinds} == kinds


def test_a_table_has_the_ratio_to_each_peer() -> None:
    runs = [
        Run(engine, 10, {"index_mb": 1.0, "text_mb": 2.0}, ["rare", "pair"], ["a", "b c"])
        for engine in ("crabstore", "fts5")
    ]
    for run, warm in zip(runs, (1.0, 12.0), strict=True):
        run.take([Outcome({"open_ms": 3.0}, cold=[[2.0], [2.0]], warm=[[warm], [warm, warm]])] * 2)
    text = markdown(runs)
    assert "| all |  |  | 12, 12 |" in text
    assert "| text index over text | 0.5 | 0.5 |" in text
