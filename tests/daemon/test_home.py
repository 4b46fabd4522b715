"""The home: a token for its owner alone, and nothing that somebody else put there is believed."""

from __future__ import annotations

import os
import stat

import pytest

from crabstore.answers.failures import Refusal
from crabstore.daemon.home import Home


def test_a_home_and_its_token_are_their_owners_alone(home: Home) -> None:
    home.make()
    token = home.secret()
    assert stat.S_IMODE(home.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(home.token.stat().st_mode) == 0o600
    assert len(token) >= 40 and home.secret() == token


def test_a_token_stays_what_it_was_under_any_umask(home: Home) -> None:
    before = os.umask(0)
    try:
        home.make()
        home.secret()
    finally:
        os.umask(before)
    assert stat.S_IMODE(home.token.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o602])
def test_a_token_that_others_could_have_read_or_written_is_refused(home: Home, mode: int) -> None:
    home.make()
    home.secret()
    home.token.chmod(mode)
    with pytest.raises(Refusal) as caught:
        home.secret()
    assert caught.value.failure.kind == "bad-token-file"


@pytest.mark.parametrize("text", ["", "short", "\n"])
def test_a_file_without_a_token_is_refused(home: Home, text: str) -> None:
    home.make()
    home.token.write_text(text)
    home.token.chmod(0o600)
    with pytest.raises(Refusal):
        home.secret()


def test_a_link_in_the_tokens_place_is_not_followed(home: Home) -> None:
    home.make()
    target = home.path / "elsewhere"
    target.write_text("x" * 64)
    target.chmod(0o600)
    home.token.symlink_to(target)
    with pytest.raises(OSError):
        home.secret()


def test_a_pipe_in_the_tokens_place_does_not_hold_the_start(home: Home) -> None:
    home.make()
    os.mkfifo(home.token, 0o600)
    with pytest.raises(Refusal):
        home.secret()


def test_no_parent_folder_is_invented(home: Home) -> None:
    with pytest.raises(Refusal) as caught:
        Home(home.path / "deep" / "er").make()
    assert caught.value.failure.kind == "no-store"
    assert not home.path.exists()
