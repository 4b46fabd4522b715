"""A home for every test that wants one, and a daemon that the tests of a module share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crabstore.daemon.home import Home

from .scene import Held, held, short_home


@pytest.fixture
def home() -> Iterator[Home]:
    with short_home() as made:
        yield made


@pytest.fixture(scope="module")
def shared() -> Iterator[Held]:
    with held() as there:
        yield there
