"""The runtime's room: what it may import, and what its page says of it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import crabstore.runtime

ROOM = Path(crabstore.runtime.__file__).parent
FILES = sorted(ROOM.rglob("*.py"))
PURE = [path for path in FILES if path.parent.name == "wire"] + [
    ROOM / name for name in ("errors.py", "tools.py", "events.py", "steering.py", "compaction.py")
]


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOM).as_posix())
def test_the_runtime_opens_no_socket_and_reads_no_environment(path: Path) -> None:
    harness_of_its_own = path.parent.name == "harness" and path.name not in (
        "base.py",
        "hooks.py",
        "scope.py",
    )
    forbidden = {"socket", "ssl", "http", "urllib", "httpx", "uvicorn", "starlette"}
    assert not imported(path) & (forbidden if harness_of_its_own else {*forbidden, "os", "subprocess"})


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.name)
def test_what_is_called_pure_does_no_input_or_output(path: Path) -> None:
    assert not imported(path) & {"os", "asyncio", "time", "pathlib", "io", "threading", "logging", "random"}


def test_an_sdk_is_loaded_only_when_it_is_used() -> None:
    code = (
        "import sys, crabstore.runtime, crabstore.runtime.providers.anthropic, crabstore.runtime.providers.openai;"
        "print(sorted({'anthropic', 'openai', 'httpx2', 'httpx', 'crabdb', 'mcp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.strip()
    # crabstore itself opens stores, so crabdb may be there; no SDK may.
    assert loaded in ("[]", "['crabdb']")


def test_every_public_name_is_documented_and_on_the_runtime_page() -> None:
    page = (Path(__file__).parents[2] / "docs/runtime.md").read_text(encoding="utf-8")
    assert sorted(crabstore.runtime.__all__) == crabstore.runtime.__all__
    for name in crabstore.runtime.__all__:
        assert getattr(crabstore.runtime, name).__doc__ or name.endswith("Event"), name
        assert f"`{name}" in page or f" {name}" in page, name
