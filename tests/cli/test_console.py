"""What reaches a terminal, and how it looks there and in a pipe."""

from __future__ import annotations

import io
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from crabstore.answers.failures import ExitCode
from crabstore.cli.console import Column, Screen, clean, count, excerpt, one_line, size

from .conftest import HOSTILE, Run

BIDI = set("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class Tty(io.StringIO):
    """A terminal of 80 columns, as far as rich can tell."""

    def isatty(self) -> bool:
        return True


def steers(text: str) -> set[str]:
    """The characters of `text` that could steer a terminal."""
    return {char for char in text if (unicodedata.category(char) == "Cc" and char != "\n") or char in BIDI}


@given(st.text())
def test_cleaned_text_cannot_steer_a_terminal_and_keeps_its_length(text: str) -> None:
    assert steers(clean(text)) <= {"\t"}
    assert len(clean(text)) == len(text)
    assert clean(text).encode().decode() == clean(text)
    assert "\n" not in one_line(text)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), st.data())
def test_an_excerpt_is_one_safe_line_about_its_first_span(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=6, unique=True).map(sorted))
    spans = list(zip(cuts[::2], cuts[1::2], strict=False))
    most = data.draw(st.integers(20, 80))
    drawn = excerpt(text, spans, most, terminal=False).plain
    assert steers(drawn) == set() and "\n" not in drawn
    assert len(drawn) <= most + 4 + 2 * len(spans)


@pytest.mark.parametrize("place", [0, 40, 300, 590])
def test_an_excerpt_holds_the_match_wherever_it_stands(place: int) -> None:
    text = "word " * 120
    text = f"{text[:place]}needle{text[place + 6 :]}"
    drawn = excerpt(text, [(place, place + 6)], 60, terminal=False).plain
    assert "*needle*" in drawn


def test_words_that_stand_together_are_marked_together() -> None:
    drawn = excerpt("use exponential backoff here", [(4, 15), (16, 23)], 100, terminal=False)
    assert drawn.plain == "use *exponential backoff* here"


def test_marks_on_a_terminal_are_styles() -> None:
    drawn = excerpt("use backoff", [(4, 11)], 100, terminal=True)
    assert drawn.plain == "use backoff" and [span.style for span in drawn.spans] == ["bold red"]


def screen_of(monkeypatch: pytest.MonkeyPatch) -> tuple[Screen, Tty]:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Tty()
    return Screen(stream), stream


def test_a_table_fits_a_terminal_and_only_flexible_columns_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    screen, stream = screen_of(monkeypatch)
    columns = [Column("handle"), Column("size", right=True), Column("title", flexible=True)]
    screen.table(columns, [("h" * 30, "5", "日本語" * 40), ("i", "10", "[red]short[/red]")])
    lines = [Text.from_ansi(line).plain for line in stream.getvalue().splitlines()]
    assert len(lines) == 3 and max(map(cell_len, lines)) <= 80
    assert "h" * 30 in lines[1] and lines[1].endswith("…")
    assert lines[2].split() == ["i", "10", "[red]short[/red]"]
    assert "\x1b[1m" in stream.getvalue()


def test_a_table_in_a_pipe_is_plain_and_never_cut() -> None:
    stream = io.StringIO()
    Screen(stream).table([Column("a"), Column("b", flexible=True)], [("1", "long " * 100)])
    assert stream.getvalue() == f"a  b\n1  {('long ' * 100).strip()}\n"


READING = [
    ["search", "retry"],
    ["search", "backoff", "--context", "9"],
    ["sessions", "list"],
    ["sessions", "show", "aaa-hostile"],
    ["agents", "list"],
    ["memory", "list"],
    ["memory", "show", "deploys"],
    ["memory", "search", "deploy"],
    ["stats"],
]


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_hostile_content_reaches_no_reader_raw(run: Run, filled: Path, words: list[str]) -> None:
    done = run(*words, "--store", filled)
    assert done.code == ExitCode.DONE
    assert steers(done.out) == set()
    as_json = run(*words, "--json", "--store", filled)
    assert as_json.out.isascii() and steers(as_json.out) == set()


def test_markup_in_content_is_shown_and_not_obeyed(run: Run, filled: Path) -> None:
    assert "[red]markup[/red]" in run("sessions", "list", "--store", filled).out
    titles = [row["title"] for row in run("sessions", "list", "--json", "--store", filled).json["sessions"]]
    assert HOSTILE in titles


def test_a_terminal_gets_styles_but_no_escape_of_the_content(
    run: Run, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    for words in READING:
        out = run(*words, "--store", filled).out
        plain = [Text.from_ansi(line).plain for line in out.splitlines()]
        assert max(map(cell_len, plain)) <= 80
        assert not any("\x1b" in line for line in plain)
        assert "\x1b[2J" not in out and "\x1b[31mred" not in out and "\x07" not in out


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1024, "1.0 KiB"), (5 << 20, "5.0 MiB"), (1 << 50, "1,024.0 TiB")],
)
def test_sizes_are_in_the_unit_that_people_read(number: int, text: str) -> None:
    assert size(number) == text


def test_counts_agree_with_their_nouns() -> None:
    assert [count(number, "entry") for number in (0, 1, 2000)] == ["0 entries", "1 entry", "2,000 entries"]
