"""images: harnesses of the store's own, contained in what they reach and take, and in what their failure ends."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wasmtime import wat2wasm

from crabstore.backends.volatile import VolatileBackend
from crabstore.runtime import ToolOutput
from crabstore.runtime.harness.images import ImagesHarness
from crabstore.runtime.harness.sandbox import BadImage, Grant, Program
from crabstore.runtime.harness.wasm import WasmLimits, WasmSandbox
from crabstore.store.agents import AgentConfig, HarnessDeclaration

from ..scene import call
from .modules import module, packed, replying
from .rig import answer, context, played, reported, results

NOTHING = Grant()
OK = {"text": "HEY"}
ECHO = "(call $host (local.get $at) (local.get $size))"
"""Hands the request to a host function, and the answer of that back."""


def imported(name: str, shape: str = "(param i32 i32) (result i64)") -> str:
    where, _, function = name.partition(".")
    return f'(import "{where}" "{function}" (func $host {shape}))'


def declared(name: str, *hosts: str, root: str = "") -> HarnessDeclaration:
    return HarnessDeclaration(name=name, hosts=list(hosts), root=root)


def config(*declarations: HarnessDeclaration, name: str = "a") -> AgentConfig:
    return AgentConfig(name=name, id=name, model="m", harnesses=list(declarations))


def outcome(
    image: bytes, grant: Grant = NOTHING, *, seconds: float = 30, sandbox: WasmSandbox | None = None
) -> str:
    """What a call of an image gives, or why it gives nothing."""

    async def scenario() -> str:
        box = sandbox or WasmSandbox(limits=WasmLimits(seconds=seconds, memory=4 * 1024 * 1024))
        try:
            program = await box.load(image)
            return (await program.call(grant, "shout", {"text": "hey"})).text
        except BadImage as error:
            return str(error)
        finally:
            await box.close()

    return asyncio.run(scenario())


# -- what it is for --


def test_the_model_calls_the_tools_of_an_image_in_the_store() -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        await store.harnesses.put(replying(OK), "loud")
        harness = ImagesHarness(store, WasmSandbox())
        scene, run = await played(
            [harness], call("shout", text="hey"), store=store, agent=config(declared("loud"))
        )
        assert [tool.name for tool in scene.provider.requests[0].tools] == ["shout"]
        assert scene.provider.requests[0].system == "Shout if you must."
        assert await results(store) == [ToolOutput("HEY")]
        assert await reported(run) == []
        assert (harness.loaded, harness.at_work) == (frozenset(), frozenset())
        await harness.close()

    asyncio.run(scenario())


def test_an_image_gets_the_call_and_its_answer_may_be_an_error() -> None:
    heard: list[bytes] = []

    def host(grant: Grant, data: bytes) -> bytes:
        heard.append(data)
        return b'{"text": "no", "is_error": true}'

    async def scenario() -> None:
        box = WasmSandbox(hosts={"test.host": host})
        program = await box.load(module(ECHO, imports=imported("test.host")))
        output = await program.call(Grant(frozenset({"test.host"})), "shout", {"text": "hé"})
        assert output == ToolOutput("no", is_error=True)
        await box.close()

    asyncio.run(scenario())
    assert heard == ['{"name":"shout","arguments":{"text":"hé"}}'.encode()]


def test_no_call_sees_anything_of_another() -> None:
    counting = f"""
      (i32.store8 (i32.const 8202) (i32.add (i32.load8_u (i32.const 8202)) (i32.const 1)))
      (i64.const {packed(8192, 13)})"""
    image = module(counting, more='(data (i32.const 8192) "{\\"text\\": \\"0\\"}")')

    async def scenario() -> None:
        box = WasmSandbox()
        program = await box.load(image)
        answers = await asyncio.gather(*(program.call(NOTHING, "shout", {}) for _ in range(5)))
        assert [each.text for each in answers] == ["1"] * 5
        await box.close()

    asyncio.run(scenario())


# -- what is granted --


def test_an_import_that_is_not_granted_is_not_linked() -> None:
    image = module(ECHO, imports=imported("crab.log"))
    assert "does not grant" in outcome(image)
    assert "does not grant" in outcome(image, Grant(frozenset({"crab.now", "log"})))
    grantless = module(ECHO, imports=imported("wasi_snapshot_preview1.fd_write"))
    assert "nobody could grant" in outcome(grantless, Grant(frozenset({"wasi_snapshot_preview1.fd_write"})))


@pytest.mark.parametrize(
    "imports",
    [imported("crab.log", "(param i32) (result i64)"), '(import "crab" "log" (memory 1))'],
)
def test_an_import_of_another_shape_is_refused(imports: str) -> None:
    memory = "" if "memory" in imports else '(memory (export "memory") 3)'
    more = '(export "memory" (memory 0))' if not memory else ""
    image = module("(i64.const 0)", imports=imports, memory=memory, more=more)
    assert outcome(image, Grant(frozenset({"crab.log"}))).startswith("it failed: ")


def test_a_granted_log_line_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    image = module(
        f"(drop (call $host (i32.const 8192) (i32.const 9))) (i64.const {packed(8204, 12)})",
        imports=imported("crab.log"),
        more='(data (i32.const 8192) "one\\0aERROR\\00\\00\\00{\\"text\\":\\"a\\"}")',
    )
    with caplog.at_level(logging.INFO):
        assert outcome(image, Grant(frozenset({"crab.log"}))) == "a"
    assert [record.getMessage() for record in caplog.records] == [r"'one\nERROR'"]


def test_a_granted_clock_tells_the_time() -> None:
    image = module(ECHO, imports=imported("crab.now"))
    assert "answers with what it must not" in outcome(image, Grant(frozenset({"crab.now"})))


@pytest.mark.parametrize(
    ("path", "expected"),
    [("answer.json", "from a file"), ("../secret.json", "refused"), ("none", "refused"), ("link", "refused")],
)
def test_files_are_read_below_the_declared_root_only(tmp_path: Path, path: str, expected: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "answer.json").write_text('{"text": "from a file"}')
    (tmp_path / "secret.json").write_text('{"text": "hunter2"}')
    (root / "link").symlink_to("../secret.json")
    refused = '{"text":"refused"}'
    body = f"""(local $got i64)
      (local.set $got (call $host (i32.const 8192) (i32.const {len(path)})))
      (if (result i64) (i64.eq (local.get $got) (i64.const -1))
        (then (i64.const {packed(12288, len(refused))})) (else (local.get $got)))"""
    quoted = refused.replace('"', '\\"')
    more = f'(data (i32.const 8192) "{path}") (data (i32.const 12288) "{quoted}")'
    image = module(body, imports=imported("crab.read"), more=more)
    assert outcome(image, Grant(frozenset({"crab.read"}), str(root))) == expected
    if expected != "refused":
        assert outcome(image, Grant(frozenset({"crab.read"}))) == "refused"


# -- what an image may do wrong --

LOOP = "(loop $again (br $again)) (unreachable)"
FILLING = (
    "(loop $again (memory.fill (i32.const 0) (i32.const 1) (i32.const 131072)) (br $again)) (unreachable)"
)
DEEP = '(func $down (export "down") (call $down))'
GROWING = f"""
  (if (i32.eq (memory.grow (i32.const 1000)) (i32.const -1)) (then (unreachable)))
  (i64.const {packed(8192, 0)})"""
WRONG: list[tuple[str, Callable[[], bytes], str]] = [
    ("endless loop", lambda: module(LOOP), "took longer than 0.1 s"),
    ("endless filling", lambda: module(FILLING), "took longer than 0.1 s"),
    ("endless start", lambda: module("(i64.const 0)", more=f"(func $s {LOOP}) (start $s)"), "took longer"),
    ("endless recursion", lambda: module("(call $down) (i64.const 0)", more=DEEP), "call stack exhausted"),
    ("memory hog", lambda: module(GROWING), "unreachable"),
    ("born too large", lambda: module("(i64.const 0)", memory='(memory (export "memory") 1000)'), "memory"),
    ("trap", lambda: module("(unreachable)"), "unreachable"),
    ("division", lambda: module("(i64.div_s (i64.const 1) (i64.const 0))"), "divide by zero"),
    ("outside, far", lambda: module("(i64.const -2)"), "hands over 4294967294 bytes"),
    ("outside, just", lambda: module(f"(i64.const {packed(3 * 65536 - 1, 2)})"), "outside of its memory"),
    ("nothing", lambda: module("(i64.const 0)"), "answers with what it must not"),
    ("no JSON", lambda: replying("{"), "answers with what it must not"),
    ("other JSON", lambda: replying({"text": 3}), "answers with what it must not"),
    (
        "not UTF-8",
        lambda: module(f"(i64.const {packed(0, 4)})", more='(data (i32.const 0) "\\"\\ff\\ff\\"")'),
        "must not",
    ),
    ("deep JSON", lambda: replying("[" * 5000), "must not"),
    ("no memory", lambda: module("(i64.const 0)", memory="(memory 3)"), "exports no memory"),
    ("no alloc", lambda: module("(i64.const 0)", alloc=""), "must export the function alloc"),
    (
        "other alloc",
        lambda: module("(i64.const 0)", alloc='(func (export "alloc") (result i32) (i32.const 9))'),
        "must export the function alloc(i32) -> i32",
    ),
    (
        "alloc is a memory",
        lambda: module("(i64.const 0)", alloc='(export "alloc" (memory 0))'),
        "must export the function alloc",
    ),
    (
        "no room",
        lambda: module(
            "(i64.const 0)", alloc='(func (export "alloc") (param i32) (result i32) (i32.const 0))'
        ),
        "has no room",
    ),
    (
        "room outside",
        lambda: module(
            "(i64.const 0)", alloc='(func (export "alloc") (param i32) (result i32) (i32.const -8))'
        ),
        "has no room",
    ),
    ("garbage", lambda: b"\0asm garbage", "does not compile"),
    ("text", lambda: b"(module)", "no WebAssembly module"),
    ("empty", lambda: b"", "no WebAssembly module"),
    ("machine code", lambda: b"\x7fELF" + bytes(100), "no WebAssembly module"),
    ("cut off", lambda: replying(OK)[:-20], "does not compile"),
]


@pytest.mark.parametrize(("image", "why"), [each[1:] for each in WRONG], ids=[each[0] for each in WRONG])
def test_an_image_that_does_wrong_is_told_of_and_contained(image: Callable[[], bytes], why: str) -> None:
    assert why in outcome(image(), seconds=0.1 if "longer" in why else 30)


# Types that the C interface of the engine knows nothing of, or not enough, as parameters of `call`.
TYPES = [
    "v128",
    "funcref",
    "externref",
    "exnref",
    "anyref",
    "i31ref",
    "structref",
    "(ref func)",
    "(ref $f)",
    "nullref",
]


@pytest.mark.parametrize("kind", TYPES)
def test_a_type_that_the_engine_cannot_hand_over_is_refused(kind: str) -> None:
    exporting = f"""(module (type $f (func)) (memory (export "memory") 1)
      (func (export "alloc") (param i32) (result i32) (i32.const 8))
      (func (export "schema") (result i64) (i64.const 0))
      (func (export "call") (param {kind}) (result {kind}) (local.get 0)))"""
    assert outcome(bytes(wat2wasm(exporting)))
    importing = f'(type $f (func)) (import "crab" "log" (func (param {kind}) (result {kind})))'
    assert outcome(module("(i64.const 0)", imports=importing), Grant(frozenset({"crab.log"})))


def test_an_image_that_is_too_large_is_not_compiled() -> None:
    box = WasmSandbox(limits=WasmLimits(image=100))
    assert "100 are allowed" in outcome(replying(OK), sandbox=box)


def test_an_alloc_that_calls_the_host_does_not_go_round_for_ever() -> None:
    alloc = """(func (export "alloc") (param i32) (result i32)
      (drop (call $host (i32.const 0) (i32.const 0))) (i32.const 8192))"""
    image = module("(i64.const 0)", imports=imported("crab.now"), alloc=alloc)
    assert "calls a host function while" in outcome(image, Grant(frozenset({"crab.now"})))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_an_image_or_a_reason(tail: bytes) -> None:
    assert outcome(b"\0asm\x01\0\0\0" + tail, seconds=0.1)


@settings(deadline=None)
@given(st.data())
def test_an_image_with_a_flipped_byte_is_contained(data: st.DataObject) -> None:
    image = bytearray(replying(OK))
    place = data.draw(st.integers(8, len(image) - 1))
    image[place] ^= data.draw(st.integers(1, 255))
    assert isinstance(outcome(bytes(image), seconds=0.1), str)


def test_a_fault_of_an_image_is_an_error_result_and_the_run_goes_on() -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        await store.harnesses.put(module(LOOP), "slow")
        limits = WasmLimits(seconds=0.5)
        harness = ImagesHarness(store, WasmSandbox(limits=limits))
        await played([harness], call("shout"), store=store, agent=config(declared("slow")))
        [failed] = await results(store)
        assert failed == ToolOutput("the harness 'slow' failed: it took longer than 0.5 s", is_error=True)
        await harness.close()

    asyncio.run(scenario())


def test_a_cancelled_call_is_not_waited_for_and_closing_ends_it() -> None:
    async def scenario() -> None:
        box = WasmSandbox(limits=WasmLimits(seconds=1000))
        program = await box.load(module(LOOP))
        calls = [asyncio.create_task(program.call(NOTHING, "shout", {})) for _ in range(3)]
        await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.wait(calls[:1])
        await box.close()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(each) for each in ended] == [asyncio.CancelledError, BadImage, BadImage]

    asyncio.run(scenario())


# -- loading, sharing, dropping --


class Counting(WasmSandbox):
    """Counts what it loads, and keeps no hold on it."""

    def __init__(self) -> None:
        super().__init__(limits=WasmLimits(threads=1))
        self.programs: list[weakref.ref[Program]] = []

    async def load(self, image: bytes) -> Program:
        program = await super().load(image)
        self.programs.append(weakref.ref(program))
        return program

    async def held(self) -> int:
        """How many of them are still there."""
        assert self._machine is not None
        await self._machine.apart(lambda: None)  # its thread has let go of what it did before
        gc.collect()
        return sum(program() is not None for program in self.programs)


def test_an_image_is_loaded_once_for_all_agents_at_work_and_dropped_with_the_last() -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        digest = await store.harnesses.put(replying(OK), "loud")
        box = Counting()
        harness = ImagesHarness(store, box)
        agents = [
            config(declared(name), name=f"{name[:4]} {number}")
            for number, name in enumerate(["loud", digest, "loud"])
        ]
        await asyncio.gather(*(harness.on_resolve_agent(agent) for agent in agents))
        await harness.on_resolve_agent(agents[0])
        assert (len(box.programs), await box.held(), set(harness.loaded)) == (1, 1, {digest})
        for agent in agents:
            assert (await answer(harness, context(agent), "shout")).text == "HEY"
            await harness.on_release_agent(agent.id)
            assert await box.held() == (agent is not agents[-1])
        assert (harness.loaded, harness.at_work) == (frozenset(), frozenset())
        await harness.close()

    asyncio.run(scenario())


def test_images_that_are_loaded_at_one_time_share_an_engine() -> None:
    async def scenario() -> None:
        box = WasmSandbox()
        programs = await asyncio.gather(*(box.load(replying({"text": str(number)})) for number in range(8)))
        answers = await asyncio.gather(*(program.call(NOTHING, "shout", {}) for program in programs))
        assert [each.text for each in answers] == [str(number) for number in range(8)]
        assert sum(thread.name.startswith("crabstore-image_") for thread in threading.enumerate()) == 2
        await box.close()
        assert not any(thread.name.startswith("crabstore-image_") for thread in threading.enumerate())

    asyncio.run(scenario())


def test_a_new_image_under_a_name_is_what_the_next_run_gets() -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        await store.harnesses.put(replying({"text": "old"}), "loud")
        harness, agent = ImagesHarness(store, Counting()), config(declared("loud"))
        await harness.on_resolve_agent(agent)
        new = await store.harnesses.put(replying({"text": "new"}), "loud")
        assert (await answer(harness, context(agent), "shout")).text == "old"
        await harness.on_resolve_agent(agent)
        assert (await answer(harness, context(agent), "shout")).text == "new"
        assert harness.loaded == {new}
        await harness.close()

    asyncio.run(scenario())


def test_what_is_not_there_or_does_not_fit_is_reported_and_the_rest_works() -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        await store.harnesses.put(replying(OK), "loud")
        await store.harnesses.put(module(ECHO, imports=imported("crab.log")), "needy")
        await store.harnesses.put(b"junk", "junk")
        agent = config(
            declared("loud"), declared("needy"), declared("junk"), declared("typo"), declared("os")
        )
        harness = ImagesHarness(store, WasmSandbox(), others=["os"])
        _, run = await played([harness], call("shout"), store=store, agent=agent)
        [(name, hook, text)] = await reported(run)
        assert (name, hook) == ("images", "on_resolve_agent")
        assert [part.split("'")[1] for part in text.split("; ")] == ["needy", "junk", "typo"]
        assert await results(store) == [ToolOutput("HEY")]
        assert (harness.loaded, harness.at_work) == (frozenset(), frozenset())
        await harness.close()

    asyncio.run(scenario())


def test_without_the_engine_an_image_is_reported_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "wasmtime", None)

    async def scenario() -> None:
        store = VolatileBackend()
        await store.harnesses.put(replying(OK), "loud")
        harness = ImagesHarness(store, WasmSandbox())
        _, run = await played([harness], store=store, agent=config(declared("loud")))
        assert "crabstore[wasm]" in (await reported(run))[0][2]
        assert harness.loaded == frozenset()
        await harness.close()

    asyncio.run(scenario())


def test_bytes_that_are_not_those_of_their_digest_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        digest = hashlib.sha256(b"another").hexdigest()

        async def damaged(asked: str) -> bytes:
            return replying(OK)

        monkeypatch.setattr(store.harnesses, "get", damaged)
        harness = ImagesHarness(store, WasmSandbox())
        _, run = await played([harness], store=store, agent=config(declared(digest)))
        assert "not those of its digest" in (await reported(run))[0][2]
        await harness.close()

    asyncio.run(scenario())


def test_a_run_is_granted_what_its_own_configuration_declares() -> None:
    async def scenario() -> None:
        store = VolatileBackend()
        await store.harnesses.put(replying(OK), "loud")
        harness = ImagesHarness(store, WasmSandbox())
        await harness.on_resolve_agent(config(declared("loud")))
        assert (await answer(harness, context(config()), "shout")).is_error
        assert list(harness.schema(config(declared("loud", "crab.log")))) == []
        await harness.close()

    asyncio.run(scenario())
