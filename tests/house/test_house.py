"""The house keeps its order: layers, pure rooms, exports, sizes, and what is derived."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools import sync_facade

import crabdb
import crabstore

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MODULES = [
    info.name
    for package in (crabdb, crabstore)
    for info in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if not info.name.endswith("__main__")
]
PURE = [
    "src/crabdb/format.py",
    "src/crabstore/store/bm25.py",
    "src/crabstore/store/keys.py",
    "src/crabstore/store/marker.py",
    "src/crabstore/store/names.py",
    "src/crabstore/store/tokeniser.py",
    "src/crabstore/store/weights.py",
    *(str(path.relative_to(ROOT)) for path in (ROOT / "src/crabstore/store/messages").glob("*.py")),
]
IMPURE = {"os", "asyncio", "socket", "time", "pathlib", "io", "threading", "random", "secrets"}
MAX_BYTES = 24 * 1024


def imported(path: Path) -> set[str]:
    """The top-level names of every module that a file imports, relative imports left out."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("name", PURE)
def test_pure_rooms_do_no_input_or_output(name: str) -> None:
    assert not imported(ROOT / name) & IMPURE


def test_crabdb_imports_the_standard_library_and_nothing_else() -> None:
    foreign = {
        name
        for path in SOURCES
        if "crabdb" in path.parts and "crabstore" not in path.parts
        for name in imported(path)
    }
    assert foreign - set(sys.stdlib_module_names) - {"crabdb"} == set()


def test_only_the_file_layer_of_crabdb_calls_the_operating_system() -> None:
    callers = {
        path.name for path in (ROOT / "src/crabdb").glob("*.py") if imported(path) & {"os", "fcntl", "shutil"}
    }
    assert callers <= {"files.py", "lock.py"}


def test_only_three_rooms_of_the_runtime_call_the_operating_system() -> None:
    callers = {
        path.name
        for path in (ROOT / "src/crabstore/runtime").rglob("*.py")
        if imported(path) & {"os", "fcntl", "shutil", "signal", "subprocess", "socket", "threading"}
    }
    # To open a file inside an open folder, to end a process group, and to stop a module that runs in a thread
    # takes calls that pathlib and asyncio lack.
    assert callers <= {"rooted.py", "commands.py", "wasm.py"}


def test_only_applications_read_the_environment() -> None:
    readers = [
        path
        for path in SOURCES
        if any(
            word in path.read_text(encoding="utf-8")
            for word in ("os.environ", "getenv", "Path.home", "expanduser")
        )
    ]
    assert all({"cli", "daemon"} & set(path.parts) for path in readers)


def test_layers_are_kept() -> None:
    linter = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", MODULES)
def test_every_module_says_what_it_is_for_and_exports_what_exists(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__ and len(module.__doc__) > 20
    for export in getattr(module, "__all__", []):
        assert hasattr(module, export), export
    if not hasattr(module, "__path__"):
        assert hasattr(module, "__all__"), f"{name} has no __all__"


def test_public_names_are_exported_in_order_and_documented() -> None:
    for package in (crabdb, crabstore):
        assert sorted(set(package.__all__)) == sorted(package.__all__)
        for name in package.__all__:
            assert getattr(package, name).__doc__, name


def test_the_blocking_store_is_what_the_generator_writes() -> None:
    assert sync_facade.TARGET.read_text(encoding="utf-8") == sync_facade.formatted()


def test_no_source_file_outgrows_a_room() -> None:
    assert [path.name for path in SOURCES if path.stat().st_size > MAX_BYTES] == []


def test_nothing_stored_is_ever_evaluated() -> None:
    for path in SOURCES:
        assert not imported(path) & {"pickle", "marshal", "shelve", "dill"}, path
        calls = {
            node.func.id
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not calls & {"eval", "exec"}, path
