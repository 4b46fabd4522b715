"""When a store is to be compacted, and who takes the steps: the one long work that is under way at a time.

Reads and writes no file; what a compaction is, it is told. The rule is looked at closely only when a number that a
commit compares anyway says that it may be met.
"""

import math
from collections.abc import Callable, Generator
from threading import Lock

from crabdb.errors import CrabDBError, forget_frames
from crabdb.log import Log
from crabdb.options import Options
from crabdb.steps import PIECE, Step, Work

__all__ = ["Steps", "Upkeep"]

Steps = Generator[Step, None, None]
"""Long work; each yield says what the next step will do."""

Compaction = Callable[[], Steps]
"""Begins a compaction. It is not kept: it belongs to the store, which must be able to go when nobody holds it."""


def _is_worth_compacting(log: Log, options: Options) -> bool:
    """Whether enough of the file is dead (`Options.compact_at`, `Options.compact_min`) to compact it."""
    freed = log.end - log.size_compacted()
    return log.dead >= options.compact_at * log.end and freed >= max(options.compact_min, 1)


class Upkeep:
    """Decides for one store. Any method from any thread; no lock is held while a step is taken."""

    def __init__(self, log: Log, options: Options) -> None:
        self._options = options
        self._guard = Lock()
        self._work: Work | None = None
        self._own: Work | None = None
        """The compaction that was due, as opposed to work that somebody asked for."""
        self._ended: Exception | None = None
        self._paced_at = 0
        self.compactions = 0
        self.error: Exception | None = None
        """Why the last compaction that was due failed."""
        self.look_at(log)

    def look_at(self, log: Log) -> None:
        """Compute how many bytes must be dead, counting the snapshot and the like, before a closer look can be
        worth it.
        """
        dead = log.end - log.index.live
        missing = max(
            self._options.compact_at * log.end - log.dead,
            # What a compaction frees grows at most twice as fast: a delete also shrinks the snapshot.
            (self._options.compact_min - (log.end - log.size_compacted())) / 2,
        )
        self._set_alarm(dead + max(missing, 0))

    def _set_alarm(self, due_at: float) -> None:
        self._due_at = due_at
        self.alarm = due_at
        """How many bytes a commit leaves dead before it has to call anybody."""
        if self._options.maintenance == "caller":
            self.alarm = math.inf
        if self._options.sync == "always":
            self.alarm = -1

    # Work that was asked for

    def alone(self, steps: Steps) -> Steps:
        """The steps of long work, after those of other work that is under way. Raises what they raise."""
        work = Work(steps)
        while other := self._take_turn(work):
            other.step()
            yield other.next
        try:
            while not work.over:
                work.step()
                if not work.over:
                    yield work.next
        finally:
            if not work.over:
                work.abandon()
            self._forget(work)
        if work.error is not None:
            raise work.error

    def if_idle(self, steps: Steps) -> Steps:
        """The same, or nothing if there is other work under way."""
        if not self.is_busy:
            yield from self.alone(steps)

    def _forget(self, work: Work) -> None:
        with self._guard:
            if work.over and self._work is work:
                self._work = None

    def _take_turn(self, work: Work) -> Work | None:
        """Let this be the work that is under way; or the one that is."""
        with self._guard:
            if self._ended is not None:
                raise self._ended
            if self.is_busy:
                return self._work
            self._work = work
            return None

    @property
    def is_busy(self) -> bool:
        """Whether long work is under way."""
        return self._work is not None and not self._work.over

    # The compaction that is due

    def is_due(self, log: Log) -> bool:
        """Whether `steps` may have something to do; costs next to nothing."""
        return log.end - log.index.live > self._due_at

    def steps(self, log: Log, compaction: Compaction) -> Steps:
        """The steps that are left of a compaction that is due; none if none is. What they raise is noted."""
        work = self._due_work(log, compaction)
        while work is not None and not work.over:
            work.step()
            if not work.over:
                yield work.next
        self._raise_defect(work)

    def pace(self, log: Log, compaction: Compaction) -> None:
        """Take a few steps, so many that a compaction advances faster than commits do."""
        work = self._due_work(log, compaction)
        if work is None:
            return
        written = max(log.end - self._paced_at, 0)
        self._paced_at = log.end
        for _ in range(1 + 2 * written // PIECE):
            if not work.over:
                work.step_unless_busy()
        self._raise_defect(work)

    @staticmethod
    def _raise_defect(work: Work | None) -> None:
        """Nothing but what the medium does is noted: anything else is an error in this program."""
        if work is not None and work.error is not None:
            raise work.error

    def _due_work(self, log: Log, compaction: Compaction) -> Work | None:
        with self._guard:
            if self._own is not None and not self._own.over:
                return self._own
            if self.is_busy or self._ended is not None or not self.is_due(log):
                return None
            if not _is_worth_compacting(log, self._options):
                self.look_at(log)
                return None
            self._paced_at = log.end
            self._own = self._work = Work(self._noting_errors(log, compaction))
            return self._own

    def _noting_errors(self, log: Log, compaction: Compaction) -> Steps:
        """A compaction whose failure does not reach who takes its steps: the write that led there succeeded."""
        try:
            yield from compaction()
            self.error = None
        except CrabDBError as error:
            self.error = error
            forget_frames(error)
            # Not again before as much as the file holds now has been written once more.
            self._set_alarm(2 * log.end)

    def end(self, error: Exception) -> None:
        """Finish a compaction that was due, for in a program that only ever opens the store for a moment it would
        never end otherwise; and end other work, which raises `error` where it was asked for. No more is begun.
        """
        with self._guard:
            self._ended = error
        while self._own is not None and not self._own.over:
            self._own.step()
        work = self._work
        if work is not None:
            work.abandon(error)
