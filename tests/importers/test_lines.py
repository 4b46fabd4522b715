"""Lines are read whatever their bytes, and what cannot be read is named with its place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.importers.writing import jsonl, stream

from crabstore.importers import lines
from crabstore.importers.lines import BadLine, JsonLine, parse, read_lines
from crabstore.store.records import Json


def read(data: bytes) -> list[JsonLine | BadLine]:
    return list(read_lines(stream(data)))


def values(data: bytes) -> list[dict[str, Json]]:
    return [line.value for line in read(data) if isinstance(line, JsonLine)]


def bad(data: bytes) -> list[BadLine]:
    return [line for line in read(data) if isinstance(line, BadLine)]


def test_only_a_newline_ends_a_line() -> None:
    row = {"text": "a\u2028b\u2029c\u0085d"}
    assert values(jsonl([row, row])) == [row, row]
    assert values(b'{"a":1}\r\n{"a":2}\r\n') == [{"a": 1}, {"a": 2}]


def test_lines_are_named_by_number_and_offset() -> None:
    found = read(b'{"a":1}\n\n{"b":2}\nnonsense\n{"c":3}')
    assert [(line.number, line.offset) for line in found] == [(1, 0), (3, 9), (4, 17), (5, 26)]
    assert [line.key for line in found if isinstance(line, JsonLine)] == ["line-1", "line-3", "line-5"]


def test_byte_order_mark_is_dropped() -> None:
    assert values(b'\xef\xbb\xbf{"a":1}\n') == [{"a": 1}]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_of_a_redirecting_shell_is_read(encoding: str) -> None:
    text = '{"a":"héllo\u2028"}\r\n{"b":"😀"}\r\n{"c":'
    data = ("\ufeff" + text).encode(encoding)
    assert values(data) == [{"a": "héllo\u2028"}, {"b": "😀"}]
    first, second, cut = read(data)
    assert [first.offset, second.offset, cut.offset] == [2, 2 + 2 * 16, 2 + 2 * (16 + 12)]


def test_bytes_that_are_no_utf8_are_replaced_and_noted() -> None:
    data = b'{"a":"\xff!"}\n'
    assert values(data) == [{"a": "\ufffd!"}]
    assert [line.note for line in bad(data)] == [True]


def test_nul_padding_is_stripped_and_a_nul_block_parts_records() -> None:
    data = b'\0\0\n{"a":1}\0\0\0\n\0\0{"b":2}\0\0{"c":3}\n'
    assert values(data) == [{"a": 1}, {"b": 2}, {"c": 3}]
    assert bad(data) == []


def test_records_glued_without_a_newline_are_parted() -> None:
    found = [line for line in read(b'{"a":1}{"a":2} {"a":3}\n') if isinstance(line, JsonLine)]
    assert [line.value["a"] for line in found] == [1, 2, 3]
    assert len({line.key for line in found}) == 3


def test_a_record_fused_onto_a_fragment_is_read_and_the_fragment_named() -> None:
    data = b'{"type":"x","n":1}\n{"type":"x","body":{"te{"type":"x","n":2}\n'
    assert values(data)[-1] == {"type": "x", "n": 2}
    assert [(line.number, line.note) for line in bad(data)] == [(2, False)]


@pytest.mark.parametrize(
    "torn",
    [
        b'{"type":"x","body":{"type":"inner","n":1}',
        b'{"type":"x","body":[{"type":"inner","n":1},{"type":"in',
        b'{"type":"x","body":{"type":"inner","n":1},"more":"te',
    ],
)
def test_an_object_inside_a_torn_line_is_no_line(torn: bytes) -> None:
    data = b'{"type":"x","n":1}\n' + torn + b'\n{"type":"x","n":2}\n'
    assert values(data) == [{"type": "x", "n": 1}, {"type": "x", "n": 2}]
    assert [line.number for line in bad(data)] == [2]


@pytest.mark.parametrize("text", [b'"massive error"', b"42", b"[1]", b"null", b"true"])
def test_a_value_that_is_no_object_is_named(text: bytes) -> None:
    (problem,) = bad(text + b"\n")
    assert "where an object was expected" in problem.reason


def test_an_unfinished_last_line_is_only_noted() -> None:
    assert [line.note for line in bad(b'{"a":1}\n{"b":')] == [True]
    assert [line.note for line in bad(b'{"a":1}\n{"b":\n')] == [False]


def test_a_last_line_without_newline_counts_when_it_is_whole() -> None:
    assert values(b'{"a":1}\n{"b":2}') == [{"a": 1}, {"b": 2}]


def test_half_an_emoji_becomes_one_replacement_and_pairs_are_joined() -> None:
    assert values(b'{"a":"x\\udcb2y","\\ud800":"\\ud83d\\ude00"}\n') == [{"a": "x\ufffdy", "\ufffd": "😀"}]


def test_conflict_markers_lose_only_themselves() -> None:
    data = b'<<<<<<< HEAD\n{"a":1}\n=======\n{"a":2}\n>>>>>>> other\n'
    assert values(data) == [{"a": 1}, {"a": 2}]
    assert len(bad(data)) == 3


@pytest.mark.parametrize("text", [b'{"a":NaN}', b'{"a":-Infinity}', b'{"a":1e999}'])
def test_numbers_that_json_lacks_become_null(text: bytes) -> None:
    assert values(text + b"\n") == [{"a": None}]


def test_raw_control_characters_are_accepted() -> None:
    assert values(b'{"a":"x\ty\x01"}\n') == [{"a": "x\ty\x01"}]


@pytest.mark.parametrize("text", [b'{"a":' + b"9" * 5000 + b"}", b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"])
def test_monsters_lose_only_their_line(text: bytes) -> None:
    data = text + b'\n{"b":1}\n'
    assert values(data) == [{"b": 1}]
    assert len(bad(data)) == 1


def test_nesting_of_hundreds_is_refused_before_it_meets_a_recursion_limit() -> None:
    nested = b'{"a":' * 300 + b"1" + b"}" * 300
    assert values(nested + b"\n") == []
    assert values(b'{"a":' * 150 + b"1" + b"}" * 150 + b"\n") != []


def test_a_line_over_the_limit_is_skipped_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_RECORD", 1000)
    data = b'{"a":1}\n{"a":"' + b"x" * 5000 + b'"}\n{"a":2}\n'
    assert values(data) == [{"a": 1}, {"a": 2}]
    (problem,) = bad(data)
    assert (problem.number, problem.offset) == (2, 8)
    assert "5009 bytes" in problem.reason


def test_a_long_utf16_line_is_skipped_and_the_next_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MAX_RECORD", 1000)
    text = '{"a":1}\n{"a":"' + "x" * 200_000 + '"}\n{"a":2}\n'
    data = b"\xff\xfe" + text.encode("utf-16-le")
    assert values(data) == [{"a": 1}, {"a": 2}]
    assert [(line.number, line.offset) for line in bad(data)] == [(2, 2 + 2 * 8)]
    assert [line.offset for line in read(data)][-1] == len(data) - 2 * 8


def test_lines_can_be_passed_over_unparsed() -> None:
    found = list(read_lines(stream(b'skip me\n{"a":1}\n'), lambda raw: raw.startswith(b"skip")))
    assert [line.number for line in found] == [2]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_an_exception(data: bytes) -> None:
    for line in read(data):
        assert isinstance(line, JsonLine | BadLine)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from("aé😀\n"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), json_values, max_size=3), max_size=6))
def test_whole_objects_come_back_as_they_are(rows: list[dict[str, Json]]) -> None:
    expected = json.loads(json.dumps(rows))
    assert values(jsonl(expected)) == expected


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), json_values, max_size=3), min_size=3, max_size=6),
    st.data(),
)
def test_one_broken_line_loses_no_other(rows: list[dict[str, Json]], data: st.DataObject) -> None:
    whole = jsonl(rows).splitlines(keepends=True)
    broken = data.draw(st.integers(0, len(whole) - 1))
    place = data.draw(st.integers(0, len(whole[broken]) - 2))
    whole[broken] = whole[broken][:place] + b"\x07" + whole[broken][place + 1 :]
    found = values(b"".join(whole))
    others = [row for n, row in enumerate(rows) if n != broken]
    at = 0
    for row in found:
        at += at < len(others) and row == others[at]
    assert at == len(others)


def test_parse_reads_a_whole_document_tolerantly() -> None:
    assert parse(b'\xef\xbb\xbf[{"a": NaN}]') == [{"a": None}]
    with pytest.raises(ValueError, match="character"):
        parse(b"[1,")
