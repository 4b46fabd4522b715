"""What a store can tell about itself: its numbers, and whether every byte of it is what was written."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from crabdb.format import LOCATION
from crabdb.log import Journal, Log
from crabdb.opening import Found
from crabdb.recovery import Recovered, replay_steps
from crabdb.steps import PIECE_KEYS, Step

__all__ = ["Stats", "Verification", "verify_log"]

Difference = tuple[tuple[int, bytes], int, str]
"""A key, the offset of its record, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Stats:
    """The numbers of an open store, sizes in bytes.

    `size` is the log with its header; `live` the records that can be read; `dead` what a compaction would
    drop; `tail` what the next opening would replay; `durable` how much is known to be on the medium;
    `snapshot` the one in use. `torn` is what was cut off at the opening (or, read-only, is ignored), kept
    in `torn_saved` if there was room. `damage` lists, for a damaged store that was opened read-only, the
    offsets of what was stepped over.
    """

    path: Path
    size: int
    keys: int
    live: int
    dead: int
    tail: int
    durable: int
    snapshot: int
    torn: int
    torn_saved: Path | None
    damage: tuple[int, ...]
    spoiled_snapshots: int
    compactions: int
    compaction_error: Exception | None
    failure: BaseException | None
    read_only: bool

    @classmethod
    def of(
        cls,
        log: Log,
        found: Found,
        *,
        read_only: bool,
        compactions: int,
        compaction_error: Exception | None,
    ) -> "Stats":
        """The numbers of a log and of how it was opened."""
        return cls(
            path=log.path,
            size=log.end,
            keys=len(log.index),
            live=log.index.live,
            dead=log.dead,
            tail=log.tail,
            durable=log.durable,
            snapshot=log.snapshot.size if log.snapshot else 0,
            torn=found.torn,
            torn_saved=found.torn_saved,
            damage=found.damage,
            spoiled_snapshots=found.spoiled_snapshots + log.index.spoiled,
            compactions=compactions,
            compaction_error=compaction_error,
            failure=log.failure or log.halfway,
            read_only=read_only,
        )


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found. `problems` is empty for a sound store; each is an offset and a sentence.

    `torn` are the bytes behind the log, which is no problem: the next opening for writing cuts them off. Beside
    a live writer they may be a commit that is being written.
    """

    size: int
    frames: int
    records: int
    keys: int
    problems: tuple[tuple[int, str], ...]
    torn: int = 0

    @property
    def ok(self) -> bool:
        """Whether every byte is what was written."""
        return not self.problems


def verify_log(log: Log, appending: Lock, torn: int = 0) -> Generator[Step, None, Verification]:
    """Replay a log up to this moment, and compare with its index, in steps; others may change both meanwhile.
    `torn` is what lies behind the log.
    """
    journal: Journal = {}
    with appending:
        end, keys = log.whole_end, len(log.index)
        log.journals.append(journal)
    try:
        recovered = yield from _replayed(log, end)
        differences = yield from _differences(log, recovered)
        with appending:
            # What was changed meanwhile may differ.
            wrong = [(offset, problem) for key, offset, problem in differences if key not in journal]
    finally:
        log.journals[:] = [other for other in log.journals if other is not journal]
    problems = [(damage.offset, damage.problem) for damage in recovered.damage]
    if recovered.torn is not None:
        problems.append((recovered.torn.offset, recovered.torn.problem))
    if recovered.spoiled > recovered.abandoned:
        problems.append((0, "the snapshot of the index is damaged"))
    problems += wrong
    return Verification(end, recovered.frames, recovered.records, keys, tuple(sorted(problems)), torn)


def _replayed(log: Log, end: int) -> Generator[Step, None, Recovered]:
    steps = replay_steps(log.file, end)
    while True:
        try:
            next(steps)
        except StopIteration as over:
            recovered: Recovered = over.value
            return recovered
        yield Step.BRIEF


def _differences(log: Log, recovered: Recovered) -> Generator[Step, None, list[Difference]]:
    """Where the log and the index in memory disagree. Takes the maps of `recovered` apart."""
    found: list[Difference] = []
    for page in log.index.pages(PIECE_KEYS):
        for col, key, location in page:
            if recovered.maps[col].pop(key, None) != location:
                offset = LOCATION.unpack(location)[0]
                problem = f"the log does not have {key!r} of column {col} as the index says"
                found.append(((col, key), offset, problem))
        yield Step.BRIEF
    for col, left in enumerate(recovered.maps[:-1]):
        for key, location in left.items():
            problem = f"the index has lost {key!r} of column {col}"
            found.append(((col, key), LOCATION.unpack(location)[0], problem))
    return found
