"""os, commands: granted apart, and each with an end: of time, of output, of every process that it started."""

from __future__ import annotations

import asyncio
import os
import select
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabstore.backends.volatile import VolatileBackend
from crabstore.runtime import ToolOutput
from crabstore.runtime.harness.commands import CommandLimits, Output
from crabstore.runtime.harness.osfiles import OsHarness
from crabstore.runtime.providers.scripted import ScriptedTurn
from crabstore.store.agents import AgentConfig, HarnessDeclaration

from ..scene import begin, call, play
from .rig import answer, context, played, results

QUICK = CommandLimits(seconds=1.0, settle=0.05)


def config(root: Path) -> AgentConfig:
    declared = HarnessDeclaration(name="os", root=str(root), system=True)
    return AgentConfig(name="a", model="m", harnesses=[declared])


def execute(
    root: Path, command: str, *, limits: CommandLimits | None = None, timeout: float | None = None
) -> ToolOutput:
    harness = OsHarness(limits=limits)
    return asyncio.run(answer(harness, context(config(root)), "exec", command=command, timeout=timeout))


def ended(pid: int) -> bool:
    """Whether a process has ended; one that was killed is given the moment that the system takes for it."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 10)[0])
    finally:
        os.close(process)


def test_the_model_runs_commands_where_the_declaration_grants_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        scene, _ = await played(
            [OsHarness()],
            call("exec", command="pwd; echo to-error >&2; echo $((1 + 1)) > made"),
            call("read", path="made"),
            call("exec", command="exit 3"),
            store=store,
            agent=config(tmp_path),
        )
        assert [tool.name for tool in scene.provider.requests[0].tools][-1] == "exec"
        texts = [result.text for result in await results(store)]
        assert texts == [f"{tmp_path}\nto-error\n\n[exit 0]", "2\n", "[exit 3]"]

    asyncio.run(scenario())


def test_a_command_sees_nothing_of_the_programs_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "hunter2")
    names = {line.split("=")[0] for line in execute(tmp_path, "env").text.splitlines() if "=" in line}
    assert names - {"PWD", "OLDPWD", "SHLVL", "_"} == {"HOME", "PATH", "LANG"}
    given = OsHarness(environment={"LANG": "de_DE.UTF-8", "MODE": "test"})
    output = asyncio.run(answer(given, context(config(tmp_path)), "exec", command="echo $LANG $MODE $HOME"))
    assert output.text.startswith(f"de_DE.UTF-8 test {tmp_path}")


def test_a_command_has_no_input_and_no_descriptor_of_the_program(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        listed = execute(tmp_path, "cat; ls -l /proc/self/fd")
    assert str(tmp_path / "open") not in listed.text
    assert listed.text.endswith("[exit 0]")


def test_a_command_that_takes_too_long_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    command = "(sleep 60 & echo $! > inner; wait) & echo $! > outer; trap '' TERM INT HUP; echo begun; wait"
    output = execute(tmp_path, command, limits=QUICK)
    assert output.is_error
    assert output.text == "begun\n\n[killed after 1 s]"
    assert all(ended(int((tmp_path / name).read_text())) for name in ("inner", "outer"))


def test_what_a_command_left_in_the_background_ends_with_it(tmp_path: Path) -> None:
    output = execute(tmp_path, "sleep 60 & echo $! > left; echo done", timeout=50)
    assert output.text == "done\n\n[exit 0]"
    assert ended(int((tmp_path / "left").read_text()))


def test_who_holds_the_output_from_another_session_is_not_waited_for(tmp_path: Path) -> None:
    command = "setsid sh -c 'echo $$ > far; exec sleep 60' & while ! [ -s far ]; do :; done; echo done"
    output = execute(tmp_path, command, limits=CommandLimits(settle=0.05))
    far = int((tmp_path / "far").read_text())
    try:
        assert output.text == "done\n\n[exit 0]"
    finally:
        os.kill(far, 9)  # it is there: the limit that the documents name


def test_a_flood_of_output_is_ended_and_shown_in_part(tmp_path: Path) -> None:
    limits = CommandLimits(kept=1000, flood=1_000_000)
    output = execute(tmp_path, "echo first; yes", limits=limits)
    assert output.is_error
    assert output.text.startswith("first\ny\n")
    assert output.text.endswith("[killed after 1000000 bytes of output]")
    assert len(output.text) < 2200


def test_long_output_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    output = execute(tmp_path, "seq 100000", limits=CommandLimits(kept=100))
    assert output.text.startswith("1\n2\n3\n")
    assert output.text.endswith("\n99999\n100000\n\n[exit 0]")
    assert "bytes left out" in output.text


def test_a_killed_command_and_one_that_is_not_there_say_so(tmp_path: Path) -> None:
    assert execute(tmp_path, "kill -9 $$").text == "[ended by signal 9]"
    assert execute(tmp_path, "no-such-program").text.endswith("[exit 127]")
    assert execute(tmp_path, "printf '\\377'").text == "\ufffd\n[exit 0]"


@pytest.mark.parametrize(
    ("command", "timeout"),
    [("", 1.0), ("a\x00b", 1.0), ("true", 0.0), ("true", -1.0), ("true", float("nan"))],
)
def test_a_command_that_cannot_be_is_an_answer(tmp_path: Path, command: str, timeout: float) -> None:
    assert execute(tmp_path, command, timeout=timeout).is_error


def test_a_root_that_is_gone_is_an_answer(tmp_path: Path) -> None:
    output = execute(tmp_path / "none", "true")
    assert output == ToolOutput("the command cannot be started: No such file or directory", is_error=True)


def test_a_model_cannot_ask_for_more_time_than_the_host_gives(tmp_path: Path) -> None:
    limits = CommandLimits(most_seconds=0.2, settle=0.05)
    assert "killed after 0.2 s" in execute(tmp_path, "sleep 60", limits=limits, timeout=1e9).text


def test_a_cancelled_run_leaves_no_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        os.mkfifo(tmp_path / "begun")
        command = "echo $$ > pid; sleep 60 & echo $! > child; : > begun; wait"
        turns = [ScriptedTurn(calls=[call("exec", command=command)]), ScriptedTurn(text="ok")]
        scene = await begin(play(*turns), [OsHarness()], agent=config(tmp_path))
        run = await scene.run()
        await asyncio.to_thread((tmp_path / "begun").read_text)
        await run.cancel()
        assert (await run.result()).stop_reason == "cancelled"
        assert all(ended(int((tmp_path / name).read_text())) for name in ("pid", "child"))

    asyncio.run(scenario())


@settings(deadline=None)
@given(pieces=st.lists(st.binary(max_size=40), max_size=30), kept=st.integers(1, 50))
def test_output_keeps_both_ends_in_bounded_memory(pieces: list[bytes], kept: int) -> None:
    output = Output(kept)
    for piece in pieces:
        output.add(piece)
    whole = b"".join(pieces)
    assert output.total == len(whole)
    if len(whole) <= 2 * kept:
        assert output.text() == whole.decode(errors="replace")
    else:
        gap = f"\n[{len(whole) - 2 * kept} bytes left out]\n".encode()
        assert output.text() == (whole[:kept] + gap + whole[-kept:]).decode(errors="replace")
