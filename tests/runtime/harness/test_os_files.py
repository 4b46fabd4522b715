"""os, files: read, write, edit and list below a root that no path, no link, no kind of file and no race leaves."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabstore.backends.volatile import VolatileBackend
from crabstore.runtime import Context, ToolOutput
from crabstore.runtime.harness import rooted
from crabstore.runtime.harness.osfiles import OsHarness
from crabstore.runtime.harness.rooted import Root
from crabstore.runtime.harness.toolbox import Refused
from crabstore.store.agents import AgentConfig, HarnessDeclaration
from crabstore.store.records import Json

from ..scene import call
from .rig import answer, context, played, reported, results

SECRET = "hunter2"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a secret beside it."""
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text(SECRET)
    inside = tmp_path / "root"
    inside.mkdir()
    return inside


def config(root: str, *, system: bool = False) -> AgentConfig:
    declared = HarnessDeclaration(name="os", root=root, system=system)
    return AgentConfig(name="a", model="m", harnesses=[declared])


def where(root: Path) -> Context:
    return context(config(str(root)))


def do(root: Path, tool: str, /, **arguments: Json) -> ToolOutput:
    """One call of a tool of the harness."""
    return asyncio.run(answer(OsHarness(), where(root), tool, **arguments))


def outside_is_untouched(root: Path) -> bool:
    beside = root.parent
    names = sorted(str(path.relative_to(beside)) for path in beside.rglob("*") if root not in path.parents)
    contents = [(beside / "secret").read_text(), (beside / "outside" / "secret").read_text()]
    return names == ["outside", "outside/secret", "root", "secret"] and contents == [SECRET, SECRET]


# -- what it is for --


def test_the_model_works_on_files_below_the_root(root: Path) -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        scene, _ = await played(
            [OsHarness()],
            call("write", path="src/a.py", content="x = 1\ny = 2\n"),
            call("edit", path="src/a.py", old="y = 2", new="y = 3"),
            call("read", path="./src//a.py"),
            call("list", path="."),
            call("list", path="src"),
            call("exec", command="id"),
            store=store,
            agent=config(str(root)),
        )
        assert [tool.name for tool in scene.provider.requests[0].tools] == ["read", "write", "edit", "list"]
        texts = [result.text for result in await results(store)]
        assert texts == [
            "created src/a.py (12 bytes)",
            "replaced 1 place in src/a.py",
            "x = 1\ny = 3\n",
            "src/",
            "a.py (12 bytes)",
            "there is no tool 'exec' here",
        ]

    asyncio.run(scenario())


@pytest.mark.parametrize("declared", [[], [HarnessDeclaration(name="os", system=True)]])
def test_without_a_root_nothing_is_registered(declared: list[HarnessDeclaration]) -> None:
    async def scenario() -> None:
        agent = AgentConfig(name="a", model="m", harnesses=declared)
        scene, _ = await played([OsHarness()], call("read", path="x"), store=VolatileBackend(), agent=agent)
        assert list(scene.provider.requests[0].tools) == []
        assert (await results(scene.store))[0].is_error

    asyncio.run(scenario())


def test_a_root_that_depends_on_where_the_program_was_started_is_refused() -> None:
    async def scenario() -> None:
        scene, run = await played([OsHarness()], store=VolatileBackend(), agent=config("here"))
        assert list(scene.provider.requests[0].tools) == []
        [(name, hook, _)] = await reported(run)
        assert (name, hook) == ("os", "on_resolve_agent")

    asyncio.run(scenario())


def test_a_root_that_is_not_there_is_an_answer_and_is_not_made(tmp_path: Path) -> None:
    for tool, arguments in attempts("x", folder="."):
        assert do(tmp_path / "none", tool, **arguments).is_error
    assert list(tmp_path.iterdir()) == []


# -- reading --


def test_a_file_is_read_in_windows_of_lines(root: Path) -> None:
    (root / "f").write_text("".join(f"line {number}\n" for number in range(1, 11)))
    first = do(root, "read", path="f", lines=4)
    assert (
        first.text == "line 1\nline 2\nline 3\nline 4\n\n[up to line 4; there is more: read on with start=5]"
    )
    assert do(root, "read", path="f", start=9, lines=4).text == "line 9\nline 10\n"
    assert do(root, "read", path="f", start=7, lines=4).text.endswith("line 10\n")
    assert do(root, "read", path="f", start=11).text == "[the file ends before line 11]"


@settings(deadline=None)
@given(
    lines=st.lists(st.text("ab é", max_size=30), max_size=60),
    ending=st.sampled_from(["", "\n"]),
    window=st.integers(1, 20),
)
def test_windows_put_together_are_the_file(
    lines: list[str], ending: str, window: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("windows")
    content = "\n".join(lines) + ending
    (root / "f").write_bytes(content.encode())
    parts, start = [], 1
    while True:
        text = do(root, "read", path="f", start=start, lines=window).text
        shown, more, note = text.partition("\n[up to line ")
        parts.append(shown)
        if not more:
            break
        start = int(note.split("start=")[1].rstrip("]"))
    assert "".join(part for part in parts if not part.startswith("[")) == content


def test_a_huge_file_is_shown_in_part_and_a_huge_line_does_not_fill_the_memory(root: Path) -> None:
    (root / "lines").write_text("x" * 99 + "\n" * 1 + ("y" * 99 + "\n") * 9999)
    shown = do(root, "read", path="lines", lines=10_000).text
    assert len(shown) < 70_000
    assert "[up to line 655; there is more: read on with start=656]" in shown
    (root / "line").write_text("z" * 1_000_000 + "\nafter\n")
    text = do(root, "read", path="line").text
    assert len(text) < 70_000
    assert text.endswith("read on with start=2]")
    assert do(root, "read", path="line", start=2).text == "after\n"


def test_a_line_too_far_in_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crabstore.runtime.harness.osfiles._SCANNED", 1000)
    (root / "f").write_text("line\n" * 1000)
    assert do(root, "read", path="f", start=900).is_error


def test_a_binary_file_is_refused_and_a_file_in_another_encoding_is_read_as_well_as_can_be(
    root: Path,
) -> None:
    (root / "binary").write_bytes(bytes(range(256)))
    (root / "latin").write_bytes("café\n".encode("latin-1"))
    (root / "empty").touch()
    assert do(root, "read", path="binary").is_error
    assert do(root, "read", path="latin").text == "caf\ufffd\n"
    assert do(root, "read", path="empty").text == "[empty file]"


# -- writing and editing --


def test_writing_replaces_the_whole_file_and_keeps_its_mode(root: Path) -> None:
    script = root / "run.sh"
    script.write_text("old")
    script.chmod(0o750)
    assert do(root, "write", path="run.sh", content="new").text == "replaced run.sh (3 bytes)"
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == ("new", 0o750)
    assert [path.name for path in root.iterdir()] == ["run.sh"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    (root / "f").write_text("old")
    monkeypatch.setattr(os, "replace", full)
    output = do(root, "write", path="f", content="new")
    assert (output.is_error, output.text) == (True, "'f': No space left on device")
    assert [(path.name, path.read_text()) for path in root.iterdir()] == [("f", "old")]


def test_a_hard_link_is_replaced_and_not_written_through(root: Path) -> None:
    (root / "f").hardlink_to(root.parent / "secret")
    do(root, "write", path="f", content="new")
    do(root, "edit", path="f", old="new", new="newer")
    assert (root / "f").read_text() == "newer"
    assert outside_is_untouched(root)


def test_an_edit_needs_its_text_once_unless_all_are_meant(root: Path) -> None:
    (root / "f").write_bytes(b"one two one\r\n\xff")
    assert do(root, "edit", path="f", old="three", new="3").is_error
    assert "2 times" in do(root, "edit", path="f", old="one", new="1").text
    assert do(root, "edit", path="f", old="two", new="2").text == "replaced 1 place in f"
    assert do(root, "edit", path="f", old="one", new="1", every=True).text == "replaced 2 places in f"
    assert (root / "f").read_bytes() == b"1 2 1\r\n\xff", "bytes that were not meant stay as they are"


def test_an_edit_does_not_undo_what_was_written_in_between(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "f").write_text("one")
    whole = Root.whole

    def overtaken(self: Root, path: str, most: int) -> tuple[bytes, rooted.Version]:
        read = whole(self, path, most)
        (root / "f").write_text("two!")
        return read

    monkeypatch.setattr(Root, "whole", overtaken)
    assert "changed since" in do(root, "edit", path="f", old="one", new="1").text
    assert (root / "f").read_text() == "two!"


def test_a_file_too_large_to_edit_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crabstore.runtime.harness.osfiles._EDITED", 10)
    (root / "f").write_text("x" * 11)
    assert do(root, "edit", path="f", old="x", new="y", every=True).is_error


# -- listing --


def test_a_listing_shows_kinds_escapes_names_and_looks_behind_no_link(root: Path) -> None:
    (root / "a folder").mkdir()
    (root / "file").write_text("123")
    (root / "link").symlink_to(root.parent / "secret")
    (root / "line\nbreak").touch()
    os.mkfifo(root / "pipe")
    os.close(os.open(os.fsencode(root) + b"/\xff", os.O_CREAT))
    assert do(root, "list").text.splitlines() == [
        "a folder/",
        "file (3 bytes)",
        r"'line\nbreak' (0 bytes)",
        "link [link]",
        "pipe [other]",
        r"'\udcff' (0 bytes)",
    ]


def test_a_large_folder_is_listed_in_part(root: Path) -> None:
    for number in range(1005):
        (root / f"{number:04}").touch()
    lines = do(root, "list").text.splitlines()
    assert (len(lines), lines[-1]) == (1001, "[5 more]")
    (root / "sub").mkdir()
    assert do(root, "list", path="sub").text == "[empty folder]"


# -- attacks --

LEAVING = [
    *("../secret", "..", "a/../../secret", "./../secret", "sub/..", "../root/f", "..//secret"),
    *("/etc/passwd", "/", "//etc/passwd", "/proc/self/root/etc/passwd"),
    *("link", "link/secret", "up/secret", "here/link", "loop", "loop/x", "absolute"),
]
HARD = [
    "a\x00b",
    "\x00",
    "x" * 256,
    "x" * 4097,
    "/".join("x" * 200),
    "a\ud800b",
    "f/x",
    "sub",
    ".",
    "./",
    "none/x",
]


def hostile(root: Path) -> None:
    """Links of every kind that lead out of the root, or round in it."""
    (root / "sub").mkdir()
    (root / "f").write_text("fine")
    (root / "link").symlink_to("../outside/secret")
    (root / "up").symlink_to("../outside")
    (root / "here").symlink_to(".")
    (root / "loop").symlink_to("loop")
    (root / "absolute").symlink_to(root.parent / "secret")


def attempts(path: str, folder: str = "") -> Iterator[tuple[str, dict[str, Json]]]:
    if folder:
        yield "list", {"path": folder}
    yield "read", {"path": path}
    yield "write", {"path": path, "content": "owned"}
    yield "edit", {"path": path, "old": SECRET, "new": "owned"}


@pytest.mark.parametrize("path", LEAVING)
def test_no_path_and_no_link_leaves_the_root(root: Path, path: str) -> None:
    hostile(root)
    for tool, arguments in attempts(path, folder=path):
        output = do(root, tool, **arguments)
        assert output.is_error, (tool, output)
        assert SECRET not in output.text
        assert str(root.parent) not in output.text or str(root.parent) in path
    assert outside_is_untouched(root)
    assert (root / "link").is_symlink()


@pytest.mark.parametrize("path", HARD)
def test_hard_names_are_answers(root: Path, path: str) -> None:
    hostile(root)
    for tool, arguments in attempts(path):
        if tool == "write" and path == "none/x":
            continue  # folders are made
        assert do(root, tool, **arguments).is_error, tool
    assert outside_is_untouched(root)


@pytest.mark.parametrize(
    "name", ["line\nbreak", " ", "-rf", "~", "$HOME", "a b", "é", "x" * 255, "\\", "...", "C:"]
)
def test_odd_names_are_names(root: Path, name: str) -> None:
    assert not do(root, "write", path=name, content="x").is_error
    assert do(root, "read", path=name).text == "x"
    assert [path.name for path in root.iterdir()] == [name]


@pytest.mark.parametrize("kind", ["fifo", "socket", "device"])
def test_what_is_no_file_is_neither_opened_nor_replaced(root: Path, kind: str) -> None:
    place = root / "odd"
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.relpath(place))
    else:
        try:
            os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("only the superuser makes devices")
    before = place.stat()
    for tool, arguments in attempts("odd"):
        assert "a pipe, device or socket" in do(root, tool, **arguments).text
    assert place.stat().st_ino == before.st_ino


def test_a_pipe_put_there_after_the_look_is_not_waited_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "f").write_text("fine")
    checked = rooted._require_file

    def swapping(path: str, status: os.stat_result) -> None:
        checked(path, status)
        if not (root / "f").is_fifo():
            (root / "f").unlink()
            os.mkfifo(root / "f")

    monkeypatch.setattr(rooted, "_require_file", swapping)
    assert do(root, "read", path="f").is_error


@pytest.mark.parametrize("tool", ["read", "write", "list"])
def test_links_swapped_in_during_the_call_lead_nowhere(root: Path, tool: str) -> None:
    """A second thread swaps a folder, and a file in it, for links to the outside as fast as it can."""
    (root / "dir").mkdir()
    (root / "dir" / "secret").write_text("fine")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            # A writer makes the folder that is away just now, and is in the way of its return.
            with suppress(OSError):
                (root / "dir").rename(root / "aside")
                (root / "dir").symlink_to(root.parent / "outside")
            with suppress(OSError):
                (root / "dir").unlink()
            with suppress(OSError):
                (root / "aside").rename(root / "dir")
            with suppress(OSError):
                (root / "dir" / "new").symlink_to(root.parent / "secret")
                (root / "dir" / "new").replace(root / "dir" / "secret")
                (root / "dir" / "file").write_text("fine")
                (root / "dir" / "file").replace(root / "dir" / "secret")
            if (root / "aside").exists():
                shutil.rmtree(root / "aside")

    swapper = threading.Thread(target=swap)
    swapper.start()
    outcomes: set[str] = set()
    try:
        below = Root(root)
        for _ in range(1500):
            try:
                if tool == "read":
                    with below.reading("dir/secret") as file:
                        outcomes.add(file.read().decode())
                elif tool == "write":
                    below.write("dir/secret", b"owned")
                else:
                    outcomes.update(entry.kind for entry in below.entries("dir") if entry.name == "secret")
            except Refused:
                outcomes.add("refused")
    finally:
        done.set()
        swapper.join()
    assert SECRET not in outcomes
    assert outside_is_untouched(root)


def test_every_step_of_a_walk_may_be_overtaken(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each single call of the system, in turn, the folder or the file becomes a link to the outside."""
    calls = ("open", "stat", "mkdir", "replace", "fstat")
    real = {name: getattr(os, name) for name in calls}

    def lay() -> None:
        for name in ("a", "b"):
            (root / name).mkdir(exist_ok=True)
        (root / "a" / "secret").write_text("fine")

    def overtake(victim: str) -> None:
        (root / victim).rename(root / "gone")
        (root / victim).symlink_to(root.parent / ("secret" if "/" in victim else "outside"))

    def clear() -> None:
        for path in sorted(root.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()

    for victim in ("a", "a/secret"):
        for act in ("read", "write"):
            for moment in range(1, 12):
                count = 0

                def step(name: str, *args: object, **options: object) -> object:
                    nonlocal count
                    count += 1
                    if count == moment:  # noqa: B023
                        with monkeypatch.context() as plain:
                            for each, function in real.items():
                                plain.setattr(os, each, function)
                            overtake(victim)  # noqa: B023
                    return real[name](*args, **options)

                lay()
                with monkeypatch.context() as patched:
                    for each in calls:
                        patched.setattr(
                            os, each, lambda *args, each=each, **options: step(each, *args, **options)
                        )
                    try:
                        if act == "write":
                            Root(root).write("a/secret", b"owned")
                        else:
                            with Root(root).reading("a/secret") as file:
                                assert file.read() == b"fine"
                    except Refused:
                        pass
                assert outside_is_untouched(root), (victim, act, moment)
                clear()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_is_left_open(root: Path) -> None:
    hostile(root)
    before = open_files()
    below = Root(root)
    for path in [*LEAVING, *HARD, "f", "sub/f"]:
        for attempt in (
            below.entries,
            lambda path: below.whole(path, 10),
            lambda path: below.write(path, b"x"),
        ):
            try:
                attempt(path)
            except Refused:
                continue
    assert open_files() == before


def test_a_root_may_be_reached_by_a_link_of_the_host(root: Path, tmp_path: Path) -> None:
    (root / "f").write_text("fine")
    (tmp_path / "alias").symlink_to(root)
    assert do(tmp_path / "alias", "read", path="f").text == "fine"
