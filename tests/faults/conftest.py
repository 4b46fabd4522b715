"""Hands every test of faults a tally, and sends it to the table, also from another process."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.faults.tally import Tally


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """What this test injected and what happened."""
    counted = Tally()
    yield counted
    row = [counted.fault, counted.how, request.node.originalname, dict(counted.outcomes)]
    request.node.user_properties.append(("faults", json.dumps(row)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the test's store is."""
    return tmp_path / "store.crmem"
