"""What the tests of crabdb share: a store that is verified when the test ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from crabdb import CrabDB


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's store is."""
    return tmp_path / "store.crmem"


@pytest.fixture
def db(path: Path) -> Iterator[CrabDB]:
    """A new store; at the end every byte of it must check."""
    with CrabDB.open(path) as store:
        yield store
        assert store.verify().ok
