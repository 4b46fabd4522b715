"""A home for every test that wants one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crabstore.daemon.home import Home

from .scene import short_home


@pytest.fixture
def home() -> Iterator[Home]:
    with short_home() as made:
        yield made
