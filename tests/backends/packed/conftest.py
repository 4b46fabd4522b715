"""Small sizes, so that a few documents fill several blocks, segments and merges."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crabstore.backends.crabdb.packed import postings, rows, scoring, sealing, segment, upkeep, writing


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "SEAL", 6)
        patch.setattr(upkeep, "FANOUT", 3)
        patch.setattr(upkeep, "_SWEEP", 7)
        patch.setattr(scoring, "_EXACT", 4)
        patch.setattr(sealing, "_STEP", 3)
        for module in (postings, writing):
            patch.setattr(module, "BLOCK", 16)
        for module in (rows, segment, sealing, writing):
            patch.setattr(module, "KEYS", 4)
        yield
