"""Any string is a query: an answer, or an honest empty list."""

from __future__ import annotations

import asyncio

import pytest

import crabstore
from crabstore import HistoryEntry

SAID = {
    "foo-bar": "the option is called foo-bar in the manual",
    ".env": "put the key into .env and ignore it",
    "rm -rf": "never run rm -rf on a mounted disk",
    "--force": "git push --force overwrote the branch",
    "src/a.py": "the bug is in src/a.py near the top",
    "user@host": "ssh user@host asks for a passphrase",
    "#123": "this closes #123 at last",
    "50%": "the disk is at 50% again",
    "don't": "don't trust the clock",
    "[br]": "the template prints [br] literally",
    "NEAR": "NEAR is no operator here",
    "数": "我们的数据库索引坏了",
    "数据": "我们的数据库索引坏了",
    "数据库索": "我们的数据库索引坏了",
    "数据库abc": "我们的数据库索引坏了",
    "cafe\u0301": "meet at the café",
    "CAFÉ": "meet at the café",
    "שלום": "שלום לכולם",
    "مرحبا": "قال مرحبا بكم",
    "a\udcb2 passphrase": "ssh user@host asks for a passphrase",
    "naïve 🎉": "a naïve attempt 🎉",
}
EMPTY = [
    "",
    " ",
    '"',
    "*",
    "**",
    "(",
    ")",
    "C++",
    "x\\y",
    "a",
    "Z",
    "7",
    "🎉",
    "\x00",
    "\udcb2",
    "\ud800\udfff",
]
EMPTY += [
    "the of and",
    "' OR 1=1",
    "zzzzzz",
    "字",
    "%",
    "--",
    "a" * 5000,
    "\u202e",
    "\u0301",
    "_",
    "NOT",
    "AND OR",
]


async def filled() -> crabstore.Backend:
    store = await crabstore.open(":memory:")
    for number, text in enumerate(dict.fromkeys(SAID.values())):
        handle = f"s{number}"
        await store.sessions.open(handle, agent="A", created_by="me")
        await store.sessions.append_messages(handle, [HistoryEntry.user(text)])
    return store


@pytest.mark.parametrize("query", SAID)
def test_what_was_said_is_found_by_any_piece_of_it(query: str) -> None:
    async def run() -> None:
        store = await filled()
        hit = (await store.sessions.search(query)).hits[0]
        assert hit.window[0].text == SAID[query] and hit.window[0].spans
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("query", EMPTY)
def test_a_string_that_says_nothing_finds_nothing_and_says_so(query: str) -> None:
    async def run() -> None:
        store = await filled()
        answer = await store.sessions.search(query)
        assert answer.hits == [] and answer.complete
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "query", ["resolve_dirs", "resolveDirs", "ResolveDirs", "resolve-dirs", "resolve dirs"]
)
def test_each_way_of_writing_an_identifier_finds_the_others_and_itself_first(query: str) -> None:
    written = ["resolve_dirs", "resolveDirs", "ResolveDirs", "resolve-dirs", "resolve dirs"]

    async def run() -> None:
        store = await crabstore.open(":memory:")
        for number, name in enumerate([*written, "resolve", "dirs"]):
            await store.sessions.open(f"s{number}", agent="A", created_by="me")
            entry = HistoryEntry.user(f"please look at {name} in the walker")
            await store.sessions.append_messages(f"s{number}", [entry])
        hits = (await store.sessions.search(query)).hits
        found = [hit.meta.handle for hit in hits]
        assert set(found[:5]) == {f"s{number}" for number in range(5)} and len(found) == 7
        if "_" in query or "D" in query:
            assert set(found[:3]) == {"s0", "s1", "s2"}
        await store.close()

    asyncio.run(run())
