"""What ranks a session, what it is found by beside its words, and what a page costs to read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from crabstore.backends.volatile import VolatileBackend
from crabstore.store.messages import HistoryEntry
from crabstore.store.reindex import reindex
from crabstore.store.session_search import SessionAnswer
from crabstore.store.text import Scale
from crabstore.store.weights import Weights

from .counting import CountingBackend

MARCH, JUNE = "2026-03-01T10:00:00.000000Z", "2025-06-30T23:59:59.000000Z"


def said(text: str, name: str, ts: str = MARCH) -> HistoryEntry:
    return HistoryEntry(message={"role": "user", "content": text, "name": name}, format="openai-chat", ts=ts)


async def fill(store: VolatileBackend, talks: Mapping[str, Sequence[HistoryEntry]]) -> None:
    for handle, entries in talks.items():
        await store.sessions.open(handle, agent="A", created_by="me")
        await store.sessions.append_messages(handle, entries)


def handles(answer: SessionAnswer) -> list[str]:
    return [hit.meta.handle for hit in answer.hits]


TALKS = {
    "ada": [said("the kiln is cold", "Ada", MARCH), said("then light it", "Grace", MARCH)],
    "grace": [said("the kiln is warm", "Grace", JUNE)],
    "helper": [HistoryEntry.assistant("the kiln is off", agent="stoker", ts=JUNE)],
}


def test_who_spoke_and_when_is_found_beside_what_was_said() -> None:
    async def run() -> None:
        store = VolatileBackend()
        await fill(store, TALKS)
        assert handles(await store.sessions.search("Ada")) == ["ada"]
        assert handles(await store.sessions.search("what did Ada say of the kiln"))[0] == "ada"
        assert handles(await store.sessions.search("stoker")) == ["helper"]
        assert handles(await store.sessions.search("in March 2026")) == ["ada"]
        assert set(handles(await store.sessions.search("june"))) == {"grace", "helper"}
        [hit] = (await store.sessions.search("Ada")).hits
        assert hit.position == 0 and all(excerpt.spans == [] for excerpt in hit.window)
        # Neither stands on a message that says nothing, nor is the one who opened the session a word of it.
        await fill(store, {"silent": [said("", "Mute", "1999-12-01T00:00:00.000000Z")]})
        assert (await store.sessions.search("Mute 1999 me")).hits == []

    asyncio.run(run())


@pytest.mark.parametrize(
    ("weights", "found"), [(Weights(speakers=False), ["march"]), (Weights(dates=False), ["Ada"])]
)
def test_speakers_and_dates_can_be_left_out_by_a_reindex(weights: Weights, found: list[str]) -> None:
    async def run() -> None:
        store = VolatileBackend()
        store.weights = weights
        await fill(store, TALKS)
        await reindex(store)
        assert [query for query in ("Ada", "march") if (await store.sessions.search(query)).hits] == found

    asyncio.run(run())


def test_a_speakers_name_goes_through_redaction() -> None:
    async def run() -> None:
        store = VolatileBackend()
        store.redact = lambda text: text.replace("Ada", "somebody")
        await fill(store, TALKS)
        assert handles(await store.sessions.search("Ada")) == []
        assert handles(await store.sessions.search("somebody")) == ["ada"]

    asyncio.run(run())


def test_words_spread_over_a_talk_count_as_well_as_one_sentence() -> None:
    async def run(weights: Weights) -> list[str]:
        store = VolatileBackend()
        store.weights = weights
        spread = ["the kiln is cold", "we need clay", "and a glaze", "the kiln again", "more clay"]
        talks = {
            "spread": [HistoryEntry.user(text, ts=MARCH) for text in spread],
            "one": [HistoryEntry.user("kiln clay " + "and other things entirely " * 9, ts=MARCH)],
        }
        noise = {f"n{n}": [HistoryEntry.user("nothing of the kind", ts=MARCH)] * 5 for n in range(9)}
        await fill(store, {**talks, **noise})
        return handles(await store.sessions.search("kiln clay glaze"))

    assert asyncio.run(run(Weights())) == ["spread", "one"]
    assert asyncio.run(run(Weights(message=0.0, session=1.0))) == ["spread", "one"]


def test_a_sessions_score_is_the_sum_of_its_three_parts() -> None:
    async def run() -> None:
        store = VolatileBackend()
        await fill(store, TALKS)
        await store.sessions.update("ada", title="kiln notes", summary="about the kiln")
        weights, group = store.sessions.config(), store.key("session", "ada")
        scales = [Scale("msg", weights.message, weights.session), Scale("meta")]
        [talk] = [hit for hit in (await store.text.rank("kiln", scales[:1], 9)).hits if hit.group == group]
        [title] = [hit for hit in (await store.text.rank("kiln", scales[1:], 9)).hits if hit.group == group]
        [alone, *_] = (await store.text.search("meta", "kiln", 9)).hits
        hit = (await store.sessions.search("kiln")).hits[0]
        assert hit.meta.handle == "ada"
        assert hit.score == talk.score + title.score and title.score == alone.score

    asyncio.run(run())


def test_a_search_reads_the_rows_of_its_page_and_no_others() -> None:
    async def run() -> None:
        store = CountingBackend()
        await fill(store, {f"s{n:02}": [HistoryEntry.user(f"kiln {n}")] * 9 for n in range(30)})
        store.reset()
        answer = await store.sessions.search("kiln", limit=4, before=1, after=2)
        assert len(answer.hits) == 4 and not answer.complete
        read = [key for key in store.read.elements() if key.startswith(store.prefix("session"))]
        shown = sum(len(hit.window) for hit in answer.hits)
        assert len(read) == 4 + shown <= 4 + 4 * 4

    asyncio.run(run())
