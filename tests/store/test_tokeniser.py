"""The words of a text: what is one, how identifiers fall into theirs, and that the quick ways give the same."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crabstore.store.bm25 import QUESTION_WORDS, Analysis, Term, query_terms
from crabstore.store.marker import Marker
from crabstore.store.tokeniser import STOP_WORDS, normal, run_pattern, run_tokens, tokens


def spans(text: str, terms: list[Term]) -> list[tuple[int, int]]:
    return Marker(terms, Analysis()).spans(text)


def marked(text: str, query: str) -> list[str]:
    return [text[start:end] for start, end in spans(text, query_terms(query))]


def by_definition(text: str) -> list[str]:
    """The tokens without any shortcut."""
    found: list[str] = []
    for match in run_pattern(ascii_only=False).finditer(normal(text)):
        run = match[0]
        pairs = match.lastgroup == "cjk"
        found += [run[at : at + 2] for at in range(len(run))] if pairs else run_tokens(run)
    return found


def test_tokens_are_words_pairs_and_nothing_else() -> None:
    assert tokens("The QUICK fox-trot v2.1 a é") == ["quick", "fox", "trot", "v2"]
    assert tokens("x" * 64 + " " + "y" * 65) == ["x" * 64]
    assert tokens("数据库abc") == ["数据", "据库", "库", "abc"]
    assert tokens("cafe\u0301 CAFÉ ＡＢ") == ["café", "café", "ab"]
    assert tokens("हिन्दी") == ["हिन्दी"]
    assert tokens("“don’t” — 🎉 go…") == ["don", "go"]


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("resolve_dirs", "resolve dirs resolvedirs"),
        ("resolveDirs", "resolve dirs resolvedirs"),
        ("ResolveDirs", "resolve dirs resolvedirs"),
        ("RESOLVE_DIRS", "resolve dirs resolvedirs"),
        ("resolve-dirs", "resolve dirs"),
        ("HTTPServer", "http server httpserver"),
        ("getHTTPResponse2", "get http response2 gethttpresponse2"),
        ("sha256Sum", "sha256 sum sha256sum"),
        ("__init__", "init"),
        ("_private", "private"),
        ("is_valid", "valid isvalid"),
        ("x_y", "xy"),
        ("URLs", "urls"),
        ("E2E", "e2e"),
        ("utf8 python3", "utf8 python3"),
        ("größe_max", "größe max größemax"),
        (
            "findUserByEmailAddressAndTenantId",
            "find user email address tenant id finduserbyemailaddressandtenantid",
        ),
        ("aGVsbG8gd29ybGQhIQxYzAbC", "agvsbg8gd29ybgqhiqxyzabc"),
    ],
)
def test_an_identifier_gives_its_words_and_itself(written: str, words: str) -> None:
    assert tokens(written) == words.split()
    assert [term.text for term in query_terms(written)] == words.split()


@given(st.text() | st.text("aB_1é数\u0301’ ｶﾞ_Z"))
@example("_\u0301abc İSTANBUL ½ ´x ＿a＿")
def test_every_shortcut_gives_what_the_definition_gives(text: str) -> None:
    assert tokens(text) == by_definition(text)


@given(st.text(st.characters(codec="ascii")))
def test_ascii_text_reads_the_same_beside_other_scripts(text: str) -> None:
    assert [*tokens(text), "é1"] == [*tokens(text + " é1")]
    both = query_terms(text + " é1")
    assert [term for term in query_terms(text) if term in both] == both[:-1]
    alone = spans(text, query_terms(text))
    beside = spans(text + " é1", query_terms(text))
    assert alone == [span for span in beside if span[1] <= len(text)]


@given(st.text())
def test_a_lone_surrogate_stands_between_words(text: str) -> None:
    spoilt = f"{text} one\udcb2two"
    assert tokens(spoilt)[-2:] == ["one", "two"]
    assert "".join(tokens(spoilt)).encode()
    assert all(term.text.encode() for term in query_terms(spoilt))
    assert marked("one\udcb2two", spoilt)[:1] == ["one"]


def test_words_of_questions_are_passed_over_unless_there_are_no_others() -> None:
    assert query_terms("What did you say about the parser?") == [Term("say"), Term("parser")]
    assert query_terms("what did you do") == [Term("what"), Term("did"), Term("you"), Term("do")]
    assert query_terms("who is who") == [Term("who")]
    assert query_terms("the the") == []
    assert query_terms("what*") == [Term("what", prefix=True)]
    assert set(tokens("who what why")) <= QUESTION_WORDS and not QUESTION_WORDS & STOP_WORDS


def test_a_star_makes_the_beginning_of_a_word_or_an_identifier() -> None:
    assert query_terms("dep* resolve_d* parse_*") == [
        Term("dep", prefix=True),
        Term("resolved", prefix=True),
        Term("parse", prefix=True),
    ]
    assert query_terms("* _* **") == []


def test_matched_words_are_marked_where_they_stand() -> None:
    assert marked("We deployed Cafe\u0301 数据库", "deploy café 据") == ["deployed", "Cafe\u0301", "据"]
    assert marked("call resolve_dirs() or resolveDirs", "resolveDirs") == ["resolve_dirs", "resolveDirs"]
    assert marked("call resolve_dirs() or resolveDirs", "dirs") == ["dirs", "Dirs"]
    assert marked("call resolve_dirs()", "resolved*") == ["resolve_dirs"]
    assert marked("nothing of it", "deploy") == []
    assert marked("ＨＴＴＰ Ｓerver ｶﾞ", "http ガ") == ["ＨＴＴＰ", "ｶﾞ"]


@given(
    st.lists(st.sampled_from(["foun", "de", "_", "De", " ", "’", "é", "foun_de", "undeNd", "É", "2", "X"])),
    st.lists(st.sampled_from(["foun", "de", "unde", "nd", "é", "found*", "x2", "foun_de"]), min_size=1),
)
def test_marks_are_the_same_whether_letters_or_words_are_looked_at_first(
    text: list[str], query: list[str]
) -> None:
    # A pair at the end makes the marker look at every word.
    plain, terms = "".join(text), query_terms(" ".join(query))
    assert spans(plain, terms) == [span for span in spans(plain + " 数", terms) if span[1] <= len(plain)]


@given(st.text(), st.text())
def test_marks_lie_inside_the_text_and_do_not_touch(text: str, more: str) -> None:
    found = spans(text, query_terms(text[: len(text) // 2] + more))
    assert all(0 <= start < end <= len(text) for start, end in found)
    assert all(a[1] < b[0] for a, b in pairwise(found))
