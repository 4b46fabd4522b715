"""Runs the short script in a process of its own, which may be killed, and says what it is told.

For every step it prints `try N`, then `did N`, or `failed N` and the error's name.
"""

import sys
from collections.abc import Sequence

from tests.crabdb.model import Contents
from tests.faults.ledger import OPTIONS, SHORT, change, changed

from crabdb import CrabDB, CrabDBError

OPENING = -1
CLOSING = len(SHORT)


def main(path: str) -> None:
    """Open, run, close."""
    print("try", OPENING, flush=True)
    try:
        db = CrabDB.open(path, options=OPTIONS)
    except CrabDBError as error:
        print("failed", OPENING, type(error).__name__, flush=True)
        return
    print("did", OPENING, flush=True)
    for number, step in enumerate([*SHORT, "close"]):
        print("try", number, flush=True)
        try:
            getattr(db, step)() if isinstance(step, str) else change(db, step)
        except CrabDBError as error:
            print("failed", number, type(error).__name__, flush=True)
        else:
            print("did", number, flush=True)


def survivors(lines: Sequence[str]) -> list[Contents]:
    """What the child's store may hold, after what it said: all that it did, and what it may have done."""
    states: list[Contents] = [{}]
    for line in lines:
        word, number, *error = line.split()
        if not 0 <= int(number) < CLOSING or isinstance(step := SHORT[int(number)], str):
            continue
        if word == "try":
            states.append(changed(states[0], step))
        elif word == "did":
            states = [states[-1]]
        elif error != ["StoreFailed"]:
            del states[-1]
    return states


if __name__ == "__main__":
    main(sys.argv[1])
