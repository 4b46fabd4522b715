"""A script of calls to a store, and a model that knows what was acknowledged, synced or is unknown."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from tests.crabdb.crashable import CrashableFiles
from tests.crabdb.model import Contents, contents, crash
from tests.faults.tally import EARLIER, EQUAL

from crabdb import CrabDB, CrabDBError, NotCrabDB, Options, ReadFailed, StoreFailed

PATH = Path("/store")
OPTIONS = Options(compact_min=1 << 20, snapshot_at=0.25)

Changes = Mapping[tuple[int, bytes], bytes | None]
Step = Changes | str
"""What to commit, or the name of a method to call."""

SHORT: Sequence[Step] = (
    {(0, b"a"): b"alpha"},
    {(0, b"b"): b"beta"},
    "sync",
    {(1, b"x"): b"1", (1, b"y"): b"2", (0, b"a"): None},
    "checkpoint",
    {(0, b"b"): None},
    {(2, b"c"): b"gamma" * 9},
    "compact",
    {(2, b"d"): b"delta"},
    "checkpoint",
    {(2, b"c"): b"end"},
)
"""A bit of everything."""


def some_script(chance: Random, length: int) -> list[Step]:
    """A script of commits of one or several records, with now and then something else."""
    return [some_step(chance, number) for number in range(length)]


def some_step(chance: Random, number: int) -> Step:
    """One step; values are of all sizes up to a few blocks, and never the same twice."""
    if chance.random() < 0.25:
        return chance.choice(
            ["sync", "checkpoint", "compact", "reopen", "reopen after a kill", "compact while writing"]
        )
    changes: dict[tuple[int, bytes], bytes | None] = {}
    for _ in range(chance.choice([1, 1, 1, 2, 5])):
        place = chance.randrange(3), b"key %d" % chance.randrange(8)
        value = b"%d " % number + chance.randbytes(chance.choice([0, 10, 100, 1500]))
        changes[place] = value if chance.random() < 0.8 else None
    return changes


def changed(before: Contents, changes: Changes) -> Contents:
    """These contents after a commit."""
    after = {place: value for place, value in before.items() if place not in changes}
    return {**after, **{place: value for place, value in changes.items() if value is not None}}


def change(db: CrabDB, changes: Changes) -> None:
    """Commit these changes, with `put` or `delete` if it is one."""
    staged = [(col, key, value) for (col, key), value in changes.items()]
    col, key, value = staged[0]
    if len(staged) > 1:
        db.commit(staged)
    elif value is None:
        db.delete(col, key)
    else:
        db.put(col, key, value)


class Ledger:
    """Runs a script. `history` holds the contents after each commit that was tried, in order."""

    def __init__(self, files: CrashableFiles, through: Callable[[], CrabDB], *, waits: bool = False) -> None:
        self.files = files
        self._open = through
        self._waits = waits
        self.history: list[Contents] = [{}]
        self.acknowledged = self.synced = 0
        self.unknown: set[int] = set()
        """Commits in flight, or whose call said that their outcome is not known."""
        self.errors: list[CrabDBError] = []
        self.db: CrabDB | None = None

    def run(self, script: Sequence[Step]) -> None:
        """Open the store and make the calls, whatever fails; at last let go of the store."""
        self._attempt(self._reopen)
        for step in script:
            self.step(step)
        if self.db is not None:
            crash(self.db)

    def step(self, step: Step) -> None:
        """Make one call; open the store first if it is not."""
        if self.db is None:
            self._attempt(self._reopen)
        if self.db is None:
            return
        if isinstance(step, str):
            self._other(self.db, step)
        else:
            self._commit(self.db, step)

    def _reopen(self) -> None:
        db = self._open()
        found = contents(db)
        self.db = db
        assert found in self.survivors()
        # What an opening shows has been synced by it.
        self.acknowledged = self.synced = len(self.history) - 1 - self.history[::-1].index(found)
        self.unknown.clear()

    def _commit(self, db: CrabDB, changes: Changes) -> None:
        self.history.append(changed(self.history[self.acknowledged], changes))
        number = len(self.history) - 1
        self.unknown.add(number)
        if self._attempt(lambda: change(db, changes)):
            self.acknowledged = number
            self.synced = number if self._waits else self.synced
            self.unknown.clear()
        elif not isinstance(self.errors[-1], StoreFailed):
            self.unknown.discard(number)
        self._look(db)

    def _look(self, db: CrabDB) -> None:
        """What the store shows is what was acknowledged, unless it cannot be read."""
        try:
            found = contents(db)
        except ReadFailed as error:
            self.errors.append(error)
            return
        assert found == self.history[self.acknowledged]

    def _other(self, db: CrabDB, step: str) -> None:
        if step.startswith("reopen"):
            if step == "reopen":
                self._attempt(db.close)
            else:
                crash(db)
            self.db = None
            self._attempt(self._reopen)
        elif step == "compact while writing":
            self._attempt(lambda: self._compact_while_writing(db))
            self._look(db)
        else:
            if self._attempt(getattr(db, step)):
                self.synced = self.acknowledged
            self._look(db)

    def _compact_while_writing(self, db: CrabDB) -> None:
        """Commit several records at once between the steps of a compaction."""
        for number, _ in enumerate(db.compaction_steps()):
            value = None if number % 3 == 2 else b"meanwhile %d" % number
            self._commit(db, {(col, b"key %d" % (number % 8)): value for col in range(3)})

    def _attempt(self, call: Callable[[], object]) -> bool:
        try:
            call()
        except CrabDBError as error:
            self.errors.append(error)
            return False
        return True

    def survivors(self) -> list[Contents]:
        """What the end of the process may leave: what was acknowledged, or what is unknown besides."""
        return [self.history[number] for number in sorted({self.acknowledged, *self.unknown})]

    def remains(self) -> list[Contents]:
        """What a loss of power may leave: what was synced, or any later commit with all before it."""
        return self.history[self.synced :]


def outcome(files: CrashableFiles, allowed: Sequence[Contents]) -> str:
    """Open what a crash left, compare it, and go on working with it."""
    db = CrabDB.open(PATH, files=files, options=OPTIONS)
    found = contents(db)
    assert found in allowed, (found, allowed)
    db.put(9, b"more", b"still works")
    assert db.verify().ok
    crash(db)
    again = CrabDB.open(PATH, files=files, options=OPTIONS)
    assert contents(again) == {**found, (9, b"more"): b"still works"}
    crash(again)
    assert {name.name for name in files.live()} <= {"store", "store.torn-1", "store.torn-2"}
    return EQUAL if found == allowed[-1] else EARLIER


def reader_sees(files: CrashableFiles, allowed: Sequence[Contents]) -> None:
    """A reader beside may refuse what is no store yet; otherwise it sees what a writer would."""
    try:
        db = CrabDB.open(PATH, files=files, read_only=True)
    except (FileNotFoundError, NotCrabDB):
        assert {} in allowed
    else:
        assert contents(db) in allowed
