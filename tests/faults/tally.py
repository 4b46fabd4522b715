"""Counts what became of each injected fault, for the table that `make faults` prints."""

import os
from collections import Counter

FULL = os.environ.get("FAULTS") == "full"
"""Whether to try everything (`make faults`), or the part that a quick run of all tests has time for."""

EQUAL = "everything there"
EARLIER = "an allowed earlier state"
REFUSED = "refused with a typed error"


class Tally:
    """The faults of one kind that one test injected, and their outcomes."""

    def __init__(self) -> None:
        self.fault = self.how = ""
        self.outcomes: Counter[str] = Counter()

    def of(self, fault: str, how: str) -> None:
        """Say which row of the table this is."""
        self.fault, self.how = fault, how

    def add(self, outcome: str, times: int = 1) -> None:
        """Count an outcome."""
        self.outcomes[outcome] += times
