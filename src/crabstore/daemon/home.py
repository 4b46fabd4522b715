"""The daemon's folder: where its configuration, its store, its socket, its port and its token stand.

Everything in it is its owner's alone. The configuration is hand-written, and never written here.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from ..answers.failures import ExitCode, Refusal

__all__ = ["SOCKET", "STORE", "Home"]

STORE = "store.crmem"
SOCKET = "daemon.sock"
_TOKEN_BYTES = 32


class Home:
    """The folder at `path`; made by `make`, which invents no parents."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.store = path / STORE
        self.socket = path / SOCKET
        self.port = path / "daemon.port"
        """Holds the number of the TCP port while the daemon runs."""
        self.token = path / "token"

    def make(self) -> None:
        """Make the folder if it is not there. Raises Refusal if its parent is not there either."""
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
        except FileNotFoundError as error:
            problem = f"the folder {self.path.parent} does not exist: make it first, or name another home"
            raise Refusal(ExitCode.MISSING, "no-store", problem) from error

    def secret(self) -> str:
        """The bearer token, made on first use and kept. Raises Refusal for a file that others may read."""
        try:
            return self._made_token()
        except FileExistsError:
            return self._kept_token()

    def _made_token(self) -> str:
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        place = os.open(self.token, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(place, "w", encoding="ascii") as file:
            file.write(f"{token}\n")
        return token

    def _kept_token(self) -> str:
        with os.fdopen(os.open(self.token, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.geteuid():
                raise self._bad_token("could have been read, or written, by others")
            token = file.read(4096).decode("ascii", errors="replace").strip()
        if len(token) < _TOKEN_BYTES:
            raise self._bad_token("holds no token")
        return token

    def _bad_token(self, why: str) -> Refusal:
        problem = f"{self.token} {why}: remove it, and a new one is made"
        return Refusal(ExitCode.USAGE, "bad-token-file", problem, path=str(self.token))
