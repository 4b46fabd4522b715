"""Every byte flipped, every length cut, every page zeroed or doubled, in stores of every history; and user values
that look like the format. What opens shows the contents of some moment; what does not raises a typed error.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from tests.crabdb.crashable import CrashableFiles
from tests.crabdb.model import Contents, contents, crash
from tests.crabdb.test_damage import BUILDS, PATH, check_outcome, files_with, history
from tests.crabdb.version1 import Version1
from tests.faults.tally import EARLIER, EQUAL, FULL, REFUSED, Tally

from crabdb import CrabDB, CrabDBError
from crabdb.format import (
    PUT,
    Identity,
    encode_attestation,
    encode_frame,
    encode_header,
    encode_identity,
    encode_put,
    encode_records,
)


def appended_by_another(file: Version1) -> Iterator[Contents]:
    """Another program appends, overwrites, deletes, writes an index of its own; what it has after each step."""
    file.put(1, b"theirs", b"their value")
    yield file.contents()
    file.put(7, b"b/3", b"overwritten")
    yield file.contents()
    file.delete(7, b"b/2")
    yield file.contents()
    file.checkpoint()
    file.put(1, b"behind", b"their index")
    yield file.contents()


def compacted_by_another(file: Version1) -> Iterator[Contents]:
    """Another program rewrites the file in order of keys, which moves our frames as if they were keys."""
    yield from appended_by_another(file)
    file.compact()
    keys = sorted(file.contents())
    for length in range(len(keys)):
        yield {key: file.contents()[key] for key in keys[:length]}
    file.put(1, b"after", b"their compaction")
    yield file.contents()


@cache
def shared(theirs: Callable[[Version1], Iterator[Contents]]) -> tuple[bytes, list[Contents]]:
    """A store of ours to which another program did something, and which we opened and wrote to again."""
    with TemporaryDirectory() as directory:
        path = Path(directory) / "store"
        states: list[Contents] = [{}]
        with CrabDB.open(path) as db:
            for number in range(3):
                db.put(7, b"b/%d" % (number + 1), b"%d" % number)
                states.append(contents(db))
        file = Version1.of(path)
        states += theirs(file)
        path.write_bytes(file.data)
        db = CrabDB.open(path)
        states.append(contents(db))
        db.put(0, b"ours", b"again")
        states.append(contents(db))
        db.sync()
        db.put(0, b"last", b"one")
        states.append(contents(db))
        crash(db)
        return path.read_bytes(), states


@cache
def store(name: str) -> tuple[bytes, list[Contents]]:
    """The bytes and the history of a store."""
    builds = {build.__name__: build for build in BUILDS}
    if name in builds:
        data, states, _ = history(builds[name])
        return data, states
    return shared({build.__name__: build for build in (appended_by_another, compacted_by_another)}[name])


SHARED = ["appended_by_another", "compacted_by_another"]
"""Damage that takes away all that vouches for another writer's records leaves a file without checksums."""

STORES = [*(build.__name__ for build in BUILDS), *SHARED]

OUTCOMES = {"opened": "some state of its history", "damaged record": "Corrupted when it is read"}


def count(tally: Tally, data: bytes, states: list[Contents]) -> None:
    """Open damaged bytes, and count what happened."""
    outcome = check_outcome(data, states)
    tally.add(OUTCOMES.get(outcome, REFUSED))


def places(length: int) -> range:
    """Every place, or in a quick run some of them."""
    return range(length) if FULL else range(length % 11, length, 11)


@pytest.mark.parametrize("name", STORES)
def test_flipped_byte_never_makes_a_wrong_value(tally: Tally, name: str) -> None:
    tally.of(
        "every byte flipped: one bit, the top bit, all bits, or made zero",
        "stores of six histories in memory",
    )
    data, states = store(name)
    for place in places(len(data)):
        for byte in {data[place] ^ 1, data[place] ^ 0x80, data[place] ^ 0xFF, 0} - {data[place]}:
            count(tally, data[:place] + bytes([byte]) + data[place + 1 :], states)


@pytest.mark.parametrize("name", STORES)
def test_cut_at_any_length_never_makes_a_wrong_value(tally: Tally, name: str) -> None:
    tally.of("every length cut, with and without zeros instead", "stores of six histories in memory")
    data, states = store(name)
    for length in places(len(data)):
        if length:
            count(tally, data[:length], states)
            if name not in SHARED:
                count(tally, data[:length] + bytes(len(data) - length), states)


@pytest.mark.parametrize("name", STORES)
def test_zeroed_page_never_makes_a_wrong_value(tally: Tally, name: str) -> None:
    tally.of(
        "every page zeroed, or holding what another page holds", "pages of 16 to 512 bytes, six histories"
    )
    data, states = store(name)
    for page in (16,) if name in SHARED else (16, 64, 100, 512):
        for at in range(0, len(data), page):
            for other in (bytes(page), data[at + page : at + 2 * page].ljust(page, b"\0")):
                damaged = (data[:at] + other + data[at + page :])[: len(data)]
                count(tally, damaged, states)


def lookalikes(db: CrabDB, data: bytes) -> list[bytes]:
    """Values that are pieces of this very file, or what its own writer would write next, but for the salt."""
    end = db.stats().size
    body = encode_records([(1, b"ghost", b"never written")])
    frames = [
        encode_frame(body, at, 0, end, salt)[0] for at in (0, end, end + 57, end + 100) for salt in (0, 1)
    ]
    attests = [encode_attestation(n, 0, at=end + n, prev_crc=0, durable=0, salt=0)[0] for n in (0, 57, 67)]
    return [
        data,
        data[32:],
        body * 20,
        encode_put(255, b"f", bytes(36)),
        encode_identity(Identity(b"x" * 16, 0, 0)),
        encode_header(end, end, 0),
        bytes([PUT]) * 600,
        *frames,
        *attests,
    ]


def test_values_that_look_like_the_format_stay_values_behind_any_cut(tally: Tally) -> None:
    tally.of("values made of records, frames, identities and headers", "cut or lost at random behind them")
    chance = Random(3)
    for _ in range(60 if FULL else 6):
        files = CrashableFiles()
        db = CrabDB.open(PATH, files=files)
        states: list[Contents] = [{}]
        for number in range(6):
            data = bytes(files.live()[PATH].data)
            db.put(0, b"%d" % number, chance.choice(lookalikes(db, data)))
            states.append(contents(db))
        data = bytes(files.live()[PATH].data)
        crash(db)
        for _ in range(40):
            at, until = sorted((chance.randrange(115, len(data)), chance.randrange(115, len(data))))
            torn = data[:at] + bytes(until - at) + data[until:] if chance.random() < 0.5 else data[:at]
            with CrabDB.open(PATH, files=files_with(torn)) as again:
                found = contents(again)
                assert found in states
                tally.add(EQUAL if found == states[-1] else EARLIER)


@pytest.mark.parametrize("theirs", [appended_by_another, compacted_by_another])
def test_damage_in_the_file_of_another_writer_is_typed_and_bounded(
    tally: Tally, theirs: Callable[[Version1], Iterator[Contents]]
) -> None:
    tally.of("every byte flipped in a file without checksums", "files of another version-1 writer in memory")
    file = Version1()
    for number in range(3):
        file.put(7, b"b/%d" % (number + 1), b"%d" % number)
    list(theirs(file))
    data = bytes(file.data)
    for place in places(len(data)):
        for mask in (1, 0x80, 0xFF):
            damaged = data[:place] + bytes([data[place] ^ mask]) + data[place + 1 :]
            tally.add(_use(damaged))


def _use(data: bytes) -> str:
    """Open and use whatever opens; nothing but a typed error may come of it."""
    try:
        with CrabDB.open(PATH, files=files_with(data)) as db:
            contents(db)
            db.put(0, b"k", b"v")
            db.compact()
            assert db.verify().ok
    except CrabDBError:
        return REFUSED
    return "opened"
