"""Long work in short steps, for whoever has the time to take them; no lock is held from one step to the next.

Knows nothing of stores. Steps are counted out by amounts of work, never by a clock.
"""

from collections.abc import Generator
from enum import Enum
from threading import RLock
from time import sleep
from typing import Final, TypeVar

__all__ = ["PIECE", "PIECE_KEYS", "Step", "Work", "drive", "finish"]

T = TypeVar("T")

PIECE: Final = 1 << 18
"""Bytes of records in one step, unless one record is larger: about half a millisecond's work."""

PIECE_KEYS: Final = 256
"""Keys in one step: half a millisecond's to a millisecond's work."""


class Step(Enum):
    """What the next step of long work will do."""

    BRIEF = "compute or copy for a millisecond or two"
    WAITING = "wait for the medium, for as long as that takes: not on an event loop"


PAUSE: Final = 50e-6
"""Seconds in which a thread that waits for the interpreter gets it; else it would wait for five milliseconds."""

PAUSE_EVERY: Final = 4
"""Steps after which to pause: a millisecond's or two. Work of fewer steps has no need to."""


def drive(steps: Generator[object, None, T]) -> T:
    """Take all steps, and let other threads run in between; what they return."""
    taken = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        taken += 1
        if not taken % PAUSE_EVERY:
            sleep(PAUSE)


def finish(steps: Generator[object, None, T]) -> T:
    """Take all steps; what they return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class Work:
    """Steps that any thread may take, one at a time. What they raise is kept for the one who asked for them."""

    def __init__(self, steps: Generator[Step, None, None]) -> None:
        self._steps = steps
        self._taking = RLock()
        self.next = Step.BRIEF
        """What the next step will do."""
        self.over = False
        """Whether there is none."""
        self.error: BaseException | None = None
        """What the last one raised."""

    def step(self) -> None:
        """Take a step, after waiting for another thread that is taking one. Raises only what stops a thread, such
        as `KeyboardInterrupt`.
        """
        with self._taking:
            self._step()

    def step_unless_busy(self) -> None:
        """As `step`, but leave it to a thread that is taking one."""
        if self._taking.acquire(blocking=False):
            try:
                self._step()
            finally:
                self._taking.release()

    def _step(self) -> None:
        if self.over:
            return
        try:
            self.next = next(self._steps)
        except StopIteration:
            self.over = True
        except Exception as error:  # noqa: BLE001 - it is raised where the work was asked for
            self.over, self.error = True, error
        except BaseException as error:
            self.over, self.error = True, error
            raise

    def abandon(self, error: BaseException | None = None) -> None:
        """Take no more steps, unless another thread is taking one: then it is that thread's work now.

        `error` is what is to be raised where the work was asked for.
        """
        if self._taking.acquire(blocking=error is not None):
            try:
                if not self.over:
                    self.over, self.error = True, error
                    self._steps.close()
            finally:
                self._taking.release()
