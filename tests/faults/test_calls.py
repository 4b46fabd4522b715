"""Every call to the system fails, those of recovery and compaction too, once or for ever, in several ways."""

import errno
from random import Random

import pytest
from tests.crabdb.crashable import CrashableFiles
from tests.faults.failing import NEVER, AnyCallFiles, AnyFault
from tests.faults.ledger import OPTIONS, PATH, SHORT, Ledger, Step, outcome, some_script
from tests.faults.tally import FULL, Tally

from crabdb import CrabDB

SCRIPT: list[Step] = [*SHORT[:7], "reopen after a kill", *SHORT[7:9], "reopen", *SHORT[9:]]


def failing(files: CrashableFiles, fault: AnyFault) -> Ledger:
    """A ledger over a store some calls of which fail."""
    through = AnyCallFiles(files, fault)
    return Ledger(files, lambda: CrabDB.open(PATH, files=through, options=OPTIONS))


def calls_of(script: list[Step]) -> list[str]:
    """The calls that a script makes when nothing fails."""
    fault = AnyFault(NEVER)
    failing(CrashableFiles(), fault).run(script)
    return fault.calls


def check(ledger: Ledger, chance: Random, tally: Tally) -> None:
    """Neither the end of the process nor a loss of power finds anything that the model does not allow."""
    for _ in range(2):
        state = CrashableFiles(ledger.files.some_state(512, chance))
        tally.add(outcome(state, ledger.remains()))
    tally.add(outcome(ledger.files.killed(), ledger.survivors()))


@pytest.mark.parametrize("for_ever", [False, True])
@pytest.mark.parametrize("reason", [errno.EIO, errno.ENOSPC, errno.EINTR])
def test_any_failing_call_is_a_typed_error_and_loses_nothing(
    tally: Tally, reason: int, for_ever: bool
) -> None:
    tally.of(
        "any call fails, once or for ever: EIO, ENOSPC, EINTR",
        "each call of a script with recovery and compaction, before or after its effect; then kill or power loss",
    )
    calls = calls_of(SCRIPT)
    chance = Random(reason)
    ways = [(0.0, False), (0.5, False), (1.0, False), (0.0, True)]
    for number, call in enumerate(calls):
        for written, late in ways if FULL or number % 3 == 0 else ways[1:2]:
            if call != "write" and written:
                continue
            fault = AnyFault(number, reason, for_ever, written, late=late)
            ledger = failing(CrashableFiles(), fault)
            ledger.run(SCRIPT)
            check(ledger, chance, tally)


def test_two_failing_calls_of_long_scripts_lose_nothing(tally: Tally) -> None:
    tally.of(
        "two calls fail, the second perhaps while the first is dealt with",
        "random calls of long random scripts; then kill or power loss",
    )
    for seed in range(400 if FULL else 30):
        chance = Random(seed)
        script = some_script(chance, 30)
        fault = TwoFaults(chance, len(calls_of(script)))
        ledger = failing(CrashableFiles(), fault)
        ledger.run(script)
        check(ledger, chance, tally)


class TwoFaults(AnyFault):
    """Fails at a random call, and again at the next or at another one."""

    def __init__(self, chance: Random, calls: int) -> None:
        reason = chance.choice([errno.EIO, errno.ENOSPC])
        super().__init__(chance.randrange(calls), reason, written=chance.random())
        self.late = chance.random() < 0.2
        self.second = self.number + chance.choice([1, 1, 2, 3, 10])

    def check(self, name: str) -> None:
        """Count a call, and fail if it is its turn."""
        if len(self.calls) > self.number:
            self.number = self.second
        super().check(name)
