"""Power is lost after every call that changes anything, in every way there is; then the store is opened again."""

from dataclasses import replace
from functools import partial
from itertools import islice
from random import Random

import pytest
from tests.crabdb.crashable import CrashableFiles
from tests.crabdb.model import crash
from tests.faults.ledger import OPTIONS, PATH, SHORT, Ledger, Step, outcome, reader_sees, some_script
from tests.faults.tally import FULL, Tally

from crabdb import CrabDB
from crabdb.format import decode_header


def crashing(script: list[Step], files: CrashableFiles) -> Ledger:
    """A ledger over a store on these files."""
    return Ledger(files, lambda: CrabDB.open(PATH, files=files, options=OPTIONS))


@pytest.mark.parametrize("page", [512, 128, 97, 73, 64, 61, 50] if FULL else [512, 64])
def test_loss_of_power_after_any_call_leaves_what_was_synced_and_whole_commits(
    tally: Tally, page: int
) -> None:
    tally.of("loss of power after any call", "every crash state of a file system in memory, short script")
    files = CrashableFiles()
    ledger = crashing([*SHORT], files)
    seen: set[tuple[int, object]] = set()

    def cut(call: str) -> None:
        allowed = ledger.remains()
        for state in files.states(PATH, page):
            key = ledger.synced, frozenset(state.items())
            if key not in seen:
                seen.add(key)
                reader_sees(CrashableFiles(state), allowed)
                tally.add(outcome(CrashableFiles(state), allowed))

    files.after = cut
    ledger.run(SHORT)
    assert not ledger.errors


def test_commit_that_waited_for_the_medium_survives_any_loss_of_power(tally: Tally) -> None:
    tally.of(
        'loss of power with `sync="always"`',
        "random crash states of a file system in memory, long random scripts",
    )
    for seed in range(15 if FULL else 3):
        chance = Random(seed)
        files = CrashableFiles()
        options = replace(OPTIONS, sync="always")
        ledger = Ledger(files, partial(CrabDB.open, PATH, files=files, options=options), waits=True)
        files.after = partial(_cut, ledger, chance, tally)
        ledger.run(some_script(chance, 40))
        assert not ledger.errors


def _cut(ledger: Ledger, chance: Random, tally: Tally, call: str) -> None:
    for page in (512, 4096, 64):
        state = CrashableFiles(ledger.files.some_state(page, chance))
        tally.add(outcome(state, ledger.remains()))


def test_end_of_the_process_after_any_call_loses_nothing_acknowledged(tally: Tally) -> None:
    tally.of("end of the process after any call", "copies of a file system in memory, long random scripts")
    for seed in range(40 if FULL else 4):
        files = CrashableFiles()
        script = some_script(Random(seed), 40)
        ledger = crashing(script, files)
        files.after = partial(_kill, ledger, tally)
        ledger.run(script)
        assert not ledger.errors


def _kill(ledger: Ledger, tally: Tally, call: str) -> None:
    tally.add(outcome(ledger.files.killed(), ledger.survivors()))


def test_loss_of_power_at_random_in_long_scripts_leaves_what_was_synced(tally: Tally) -> None:
    tally.of(
        "loss of power after any call", "random crash states of a file system in memory, long random scripts"
    )
    for seed in range(40 if FULL else 5):
        chance = Random(seed)
        files = CrashableFiles()
        script = some_script(chance, 40)
        ledger = crashing(script, files)

        files.after = partial(_cut, ledger, chance, tally)
        ledger.run(script)
        assert not ledger.errors


def test_loss_of_power_during_recovery_from_a_loss_of_power_loses_nothing_more(tally: Tally) -> None:
    tally.of("loss of power during recovery from one", "random crash states of a recovery from a crash state")
    for seed in range(40 if FULL else 4):
        chance = Random(seed)
        files = CrashableFiles()
        script = some_script(chance, 25)
        ledger = crashing(script, files)

        def cut(call: str, ledger: Ledger = ledger, chance: Random = chance) -> None:
            _cut_twice(CrashableFiles(ledger.files.some_state(512, chance)), ledger, chance, tally)

        files.after = cut
        ledger.run(script)


def _cut_twice(files: CrashableFiles, ledger: Ledger, chance: Random, tally: Tally) -> None:
    def again(call: str) -> None:
        tally.add(outcome(CrashableFiles(files.some_state(512, chance)), ledger.remains()))

    files.after = again
    crash(CrabDB.open(PATH, files=files, options=OPTIONS))


def test_nothing_is_renamed_or_pointed_at_before_it_is_synced(tally: Tally) -> None:
    tally.of("write order", "an assertion at every rename and every write of the header, long random scripts")
    for seed in range(20 if FULL else 5):
        files = CrashableFiles()
        script = some_script(Random(seed), 60)
        ledger = crashing(script, files)
        files.after = partial(_check_order, ledger, tally)
        ledger.run(script)
        assert not ledger.errors


def _check_order(ledger: Ledger, tally: Tally, call: str) -> None:
    """A file that has the store's name is synced up to what its header points at; one that has just got it, as far
    as the file before it.
    """
    file = ledger.files.live().get(PATH)
    if file is None or call not in ("write", "replace"):
        return
    for version in islice(file.versions, 1, None):
        header = decode_header(version[:32])
        assert header.index_at + header.index_len <= len(file.versions[0])
    if call == "replace":
        outcome(CrashableFiles({PATH: file.versions[0]}), ledger.remains())
    tally.add("in order")
