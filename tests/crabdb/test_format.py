"""Bytes to values and back, and what is refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabdb import format as fmt
from crabdb.format import Identity, Malformed, Newer

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
ENTRIES = st.dictionaries(
    st.tuples(st.integers(0, 254), st.binary(min_size=1, max_size=6)), st.tuples(U64, U32, U32), max_size=80
)


@given(U64, U64, U32)
def test_header_comes_back(index_at: int, index_len: int, root: int) -> None:
    header = fmt.decode_header(fmt.encode_header(index_at, index_len, root))
    assert (header.index_at, header.index_len) == (index_at, index_len)
    assert header.sum == fmt.header_sum(index_at, index_len, root) != 0


@pytest.mark.parametrize(
    "data", [b"", b"CRMEM", b"CRMEM\0", b"crmem\0" + bytes(26), b"CRMEM\0\1" + bytes(24)]
)
def test_header_of_something_else_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        fmt.decode_header(data)


@given(st.binary(min_size=16, max_size=16), U32)
def test_identity_comes_back(file_id: bytes, salt: int) -> None:
    identity = Identity(file_id, salt, 0)
    record = fmt.encode_identity(identity)
    assert len(record) == fmt.IDENTITY_RECORD_SIZE
    assert fmt.decode_identity(record[12:]) == identity
    assert fmt.decode_identity(record[12:] + b"added later") == identity
    with pytest.raises(Newer):
        fmt.decode_identity(file_id + bytes(4) + b"\1\0\0\0")
    with pytest.raises(Malformed):
        fmt.decode_identity(record[13:])


@given(st.binary(max_size=50), st.tuples(U64, U32, U64), U32, st.integers(0, 46), st.integers(1, 255))
def test_frame_comes_back_and_no_flipped_one_does(
    body: bytes, fields: tuple[int, int, int], salt: int, place: int, mask: int
) -> None:
    at, prev_crc, durable = fields
    data, head_crc = fmt.encode_frame(body, at, prev_crc, durable, salt)
    frame = fmt.decode_frame(b"xyz" + data, 3, salt)
    assert frame is not None
    assert (frame.head_crc, frame.at, frame.prev_crc, frame.durable) == (head_crc, *fields)
    assert frame.body_len == len(body)
    assert not fmt.is_damaged_frame(data, 0, at, salt)
    flipped = bytearray(data)
    flipped[place] ^= mask
    assert fmt.decode_frame(bytes(flipped), 0, salt) is None
    assert fmt.is_damaged_frame(bytes(flipped), 0, at, salt)
    assert fmt.decode_frame(data, 0, salt ^ 1) is None


def encode_snapshot(
    entries: list[tuple[int, bytes, bytes]], identity_at: int, salt: int, page: int = 7
) -> tuple[bytes, int]:
    """A snapshot of these entries, added some at a time."""
    encoder = fmt.SnapshotEncoder(identity_at, salt)
    for start in range(0, len(entries), page):
        encoder.add(entries[start : start + page])
    parts, foot = encoder.finish()
    return b"".join(parts), foot.root


@given(ENTRIES, U32, U64)
def test_snapshot_comes_back(
    places: dict[tuple[int, bytes], tuple[int, int, int]], salt: int, identity_at: int
) -> None:
    entries = [(col, key, fmt.LOCATION.pack(*places[col, key])) for col, key in sorted(places)]
    data, root = encode_snapshot(entries, identity_at, salt)
    foot = fmt.decode_foot(data[-fmt.FOOT_SIZE :])
    assert foot is not None
    live = sum(10 + len(key) + val_len for (_, key), (_, val_len, _) in places.items())
    assert (foot.root, foot.live, foot.identity_at, foot.salt) == (root, live, identity_at, salt)
    assert list(fmt.decode_snapshot(data, foot, 2**80)) == entries
    bare = [(col, key, places[col, key][0]) for col, key in sorted(places)]
    assert list(fmt.decode_index(data)) == bare


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_an_index_or_malformed(data: bytes) -> None:
    with suppress(Malformed):
        assert len(list(fmt.decode_index(data))) <= len(data)
    assert fmt.decode_foot(data[-fmt.FOOT_SIZE :]) is None or len(data) >= fmt.FOOT_SIZE


@given(ENTRIES, st.lists(st.tuples(st.integers(0, 10**4), st.integers(0, 255)), min_size=1, max_size=4))
def test_forged_snapshot_with_good_sums_is_a_snapshot_or_malformed(
    places: dict[tuple[int, bytes], tuple[int, int, int]], forgeries: list[tuple[int, int]]
) -> None:
    entries = [(col, key, fmt.LOCATION.pack(*places[col, key])) for col, key in sorted(places)]
    data, _ = encode_snapshot(entries, 32, 1)
    forged = bytearray(data)
    for place, byte in forgeries:
        forged[place % len(data)] = byte
    foot = fmt.decode_foot(data[-fmt.FOOT_SIZE :])
    assert foot is not None
    with pytest.MonkeyPatch.context() as patch, suppress(Malformed):
        patch.setattr(fmt, "crc32", lambda *_: foot.sum)
        patch.setattr(
            fmt,
            "_block_sums",
            lambda *_: bytes(forged[-fmt.FOOT_SIZE - 4 * -(-len(entries) // 32) : -fmt.FOOT_SIZE]),
        )
        assert len(list(fmt.decode_snapshot(bytes(forged), foot, 2**80))) == foot.count


def test_size_of_a_snapshot_is_known_in_advance() -> None:
    entries = [(1, b"key %05d" % number, bytes(16)) for number in range(1000)]
    data, _ = encode_snapshot(entries, 32, 1)
    assert fmt.snapshot_size(1000, 9000) == len(data)
    assert fmt.snapshot_size(0, 0) == len(encode_snapshot([], 32, 1)[0])
