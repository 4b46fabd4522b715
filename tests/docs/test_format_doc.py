"""docs/format.md shows a whole file: it is the file that crabdb makes, and every number in it is what it says."""

import re
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import crabdb
from crabdb import CrabDB
from crabdb.files import MemoryFiles

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| (\d+) \| `([0-9a-f ]+)` \| ([a-z_: ]+) \| (.*) \|$", re.MULTILINE)


class Row(NamedTuple):
    """One line of a table of bytes."""

    at: int
    data: bytes
    field: str
    value: str


def rows() -> list[Row]:
    """All lines of all tables of bytes, in order."""
    text = (DOCS / "format.md").read_text(encoding="utf-8")
    return [Row(int(at), bytes.fromhex(data), field, value) for at, data, field, value in ROW.findall(text)]


class Predictable(MemoryFiles):
    """A file system without chance."""

    def random(self, length: int) -> bytes:
        return bytes(range(0x10, 0x10 + length))


def example() -> bytes:
    """The file that the page describes."""
    files, path = Predictable(), Path("/store")
    db = CrabDB.open(path, files=files)
    db.put(1, b"key", b"value")
    with db.batch() as batch:
        batch.put(1, b"a", b"1")
        batch.delete(1, b"key")
    db.checkpoint()
    db.put(2, b"t", b"")
    return bytes(files.table[path].data)


def test_the_tables_are_the_file() -> None:
    data = b""
    for row in rows():
        assert row.at == len(data)
        data += row.data
    assert data == example()


def test_every_value_is_that_of_its_bytes() -> None:
    for row in rows():
        if row.value.startswith("`"):
            assert row.value == f'`"{row.data.decode()}"`'
        elif row.value:
            assert int(row.value.replace(",", ""), 0) == int.from_bytes(row.data, "little")
        else:
            assert row.field in {"magic", "file_id"}


def named(field: str, count: int = 1) -> list[Row]:
    """The lines of one field, of which there must be so many."""
    found = [row for row in rows() if row.field == field]
    assert len(found) == count
    return found


def number(row: Row) -> int:
    """A line's bytes as an integer."""
    return int.from_bytes(row.data, "little")


def test_every_checksum_is_what_the_page_says_it_covers() -> None:
    data = example()
    salt = number(named("salt")[0])
    previous = 0
    heads, sizes = named("head_crc", 5), named("body_len", 5)
    for place, (head, body_crc, prev_crc, at, size) in enumerate(
        zip(heads, named("body_crc", 5), named("prev_crc", 5), named("at", 5), sizes, strict=True)
    ):
        assert number(at) == head.at - 11
        assert number(head) == crc32(data[head.at + 4 : head.at + 36], salt)
        start = head.at + 36 if place else number(at) - number(size)
        assert number(body_crc) == crc32(data[start : start + number(size)], salt)
        assert number(prev_crc) == previous
        previous = number(head)


def test_the_trailer_is_what_the_page_says() -> None:
    data = example()
    salt = number(named("foot: salt")[0])
    index_at = number(named("index_at")[0])
    position, block, fences = (named(field)[0] for field in ("table: position", "block: crc", "fence: col"))
    foot, root = named("foot: fences_len")[0], named("foot: root")[0]
    assert number(root) == crc32(data[foot.at : root.at], salt)
    assert number(named("foot: sum")[0]) == crc32(data[fences.at : foot.at], salt)
    entry = data[index_at + number(position) : position.at]
    assert number(block) == crc32(data[position.at : fences.at], crc32(entry, salt))
    assert number(named("table: val_crc")[0]) == crc32(b"1")
    header = bytearray(data[:32])
    header[12:16] = root.data
    assert number(named("sum")[0]) == crc32(header)


def test_every_error_is_in_the_page_about_failures_and_every_name_there_exists() -> None:
    text = (DOCS / "durability.md").read_text(encoding="utf-8")
    errors = {name for name in crabdb.__all__ if name in crabdb.errors.__all__}
    for name in errors:
        assert f"`{name}`" in text
    for name in re.findall(r"`([A-Z][A-Za-z]+[a-z])`", text):
        assert name in crabdb.__all__
