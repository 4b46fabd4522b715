"""A sandbox for images that are WebAssembly modules, in wasmtime (extra `wasm`, imported when it is needed).

A module sees the host functions that its declaration grants and nothing else: no file, no network, no clock, no
WASI. Every call gets an instance of its own, with an end of time and of memory. Bytes cross as a pointer and a
length into the module's memory, packed into an i64 as `pointer << 32 | length`:

    exports   memory
              alloc(length i32) -> pointer i32        room for bytes that the host writes
              schema() -> i64                         JSON: {"tools": [{name, description, parameters}], "usage"}
              call(pointer i32, length i32) -> i64    JSON {name, arguments} -> JSON {"text", "is_error"}
    imports   any host function: (pointer i32, length i32) -> i64    bytes in, bytes out, -1 if it refuses
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from ...store.records import Json
from ..clock import Clock
from ..errors import SdkMissing
from ..finishing import finished
from ..tools import Tool, ToolOutput
from .rooted import Root
from .sandbox import BadImage, Grant, Offer, Program
from .toolbox import Refused, cut

if TYPE_CHECKING:
    from wasmtime import Caller, Config, Engine, Func, FuncType, Memory, Module, Store

__all__ = ["HOSTS", "Host", "WasmLimits", "WasmSandbox"]

T = TypeVar("T")

_MAGIC = b"\0asm"
_TICK = 0.01
"""Seconds between two looks at the clock of a running module."""
_REFUSED = -1
_FUNCTIONS = {"alloc": "(i32) -> i32", "schema": "() -> i64", "call": "(i32, i32) -> i64"}
_OFF = (
    "wasm_threads",  # shared memory is counted by no limit
    # The engine's interface for C, by which Python reaches it, aborts the whole process over types of these.
    *("wasm_simd", "wasm_relaxed_simd", "wasm_exceptions", "wasm_stack_switching"),
    *("wasm_gc", "wasm_function_references"),
    *("wasm_memory64", "wasm_multi_memory", "wasm_custom_page_sizes"),
)
_UNSIGNED = 0xFFFF_FFFF_FFFF_FFFF
_LINE = 1000
"""Characters of a line in the log."""

_log = logging.getLogger("crabstore.images")


@dataclass(frozen=True)
class WasmLimits:
    """What an image may take; passed in by the host."""

    seconds: float = 10.0
    """For one call, its instance included."""
    memory: int = 64 * 1024 * 1024
    """Bytes of an instance's memory."""
    image: int = 16 * 1024 * 1024
    """Bytes of an image: the time to compile it is bounded by nothing else."""
    output: int = 1024 * 1024
    """Bytes that cross in one piece, either way."""
    threads: int = 2
    """Calls at the same time; further ones wait. An image that uses up its time stops no other work."""


Host = Callable[[Grant, bytes], bytes]
"""A host function: bytes in, bytes out. Called in a thread; raises Refused, which the image is told as -1."""


def _told(grant: Grant, data: bytes) -> bytes:
    _log.info("%s", ascii(cut(data.decode(errors="replace"), _LINE)))
    return b""


def _now(grant: Grant, data: bytes) -> bytes:
    return Clock().now().encode()


def _read(grant: Grant, data: bytes) -> bytes:
    if not grant.root.startswith("/"):
        raise Refused("there is no root folder")
    return Root(Path(grant.root)).whole(data.decode(errors="replace"), WasmLimits.output)[0]


HOSTS: Mapping[str, Host] = {"crab.log": _told, "crab.now": _now, "crab.read": _read}
"""What is there to be granted: a line for the log, the time (UTC RFC 3339), a file below the declared root."""


class _Tool(msgspec.Struct):
    name: str
    description: str = ""
    parameters: dict[str, Json] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})


class _Schema(msgspec.Struct):
    tools: list[_Tool] = []
    usage: str = ""


class _Answer(msgspec.Struct):
    text: str
    is_error: bool = False


class WasmSandbox:
    """Runs WebAssembly. `hosts` are the host functions that a declaration can grant, beside the usual ones."""

    def __init__(self, *, limits: WasmLimits | None = None, hosts: Mapping[str, Host] | None = None) -> None:
        self.limits = limits or WasmLimits()
        self.hosts = {**HOSTS, **(hosts or {})}
        self._machine: _Machine | None = None
        self._starting = asyncio.Lock()

    async def load(self, image: bytes) -> Program:
        if len(image) > self.limits.image:
            raise BadImage(f"it has {len(image)} bytes, and {self.limits.image} are allowed")
        if not image.startswith(_MAGIC):
            raise BadImage("it is no WebAssembly module")
        machine = await self._started()
        module = await machine.apart(lambda: machine.compiled(image))
        return _Wasm(machine, module, self.hosts)

    async def _started(self) -> _Machine:
        """The engine, made for the first image: importing it takes a while, so in a thread."""
        async with self._starting:
            if self._machine is None:
                self._machine = await asyncio.to_thread(_Machine, self.limits)
            return self._machine

    async def close(self) -> None:
        machine, self._machine = self._machine, None
        if machine is not None:
            await finished(asyncio.to_thread(machine.close))


class _Machine:
    """The engine, the threads that run modules, and what ends them. Making it imports wasmtime."""

    def __init__(self, limits: WasmLimits) -> None:
        try:
            from wasmtime import Engine  # noqa: PLC0415
        except ImportError as error:
            raise SdkMissing("wasm") from error
        self.limits = limits
        self.engine = Engine(_config())
        self._threads = ThreadPoolExecutor(limits.threads, thread_name_prefix="crabstore-image")
        self._ticker = _Ticker(self.engine)

    async def apart(self, work: Callable[[], T]) -> T:
        """The result of `work`, done in a thread. A caller that is cancelled does not wait for its end."""
        return await asyncio.wrap_future(self._threads.submit(work))

    def compiled(self, image: bytes) -> Module:
        from wasmtime import Module, WasmtimeError  # noqa: PLC0415

        try:
            module = Module(self.engine, image)
        except WasmtimeError as error:
            raise BadImage(f"it does not compile: {_first_line(error)}") from None
        _require_interface(module)
        return module

    @contextmanager
    def store(self) -> Iterator[Store]:
        """A store with its limits, whose time runs. Turns what happens in it into BadImage."""
        from wasmtime import Store, Trap, TrapCode, WasmtimeError  # noqa: PLC0415

        store = Store(self.engine)
        store.set_limits(
            memory_size=self.limits.memory, table_elements=100_000, instances=1, tables=8, memories=1
        )
        store.set_epoch_deadline(math.ceil(self.limits.seconds / _TICK) + 1)
        try:
            with self._ticker:
                yield store
        except Trap as trap:
            if trap.trap_code == TrapCode.INTERRUPT:
                raise BadImage(f"it took longer than {self.limits.seconds:g} s") from None
            raise BadImage(f"it failed: {_first_line(trap)}") from None
        except WasmtimeError as error:
            raise BadImage(f"it failed: {_first_line(error)}") from None
        finally:
            store.close()

    def close(self) -> None:
        """End what runs, and wait for that."""
        self._ticker.end()
        self._threads.shutdown()


class _Ticker:
    """Moves the engine's epoch while a module runs. A thread: modules end though no event loop turns."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._running = 0
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._running += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._tick, name="crabstore-image-clock", daemon=True)
                self._thread.start()

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._running -= 1

    def end(self) -> None:
        """Let all that runs be out of time."""
        self._hurry.set()

    def _tick(self) -> None:
        while True:
            self._hurry.wait(_TICK)
            with self._lock:
                if not self._running:
                    self._thread = None
                    return
            self._engine.increment_epoch()


class _Wasm:
    """A compiled module that keeps to the interface."""

    def __init__(self, machine: _Machine, module: Module, hosts: Mapping[str, Host]) -> None:
        self._machine = machine
        self._module = module
        self._hosts = hosts
        self._imports = [(each.module, each.name or "") for each in module.imports]

    async def offer(self, grant: Grant) -> Offer:
        self._require_granted(grant)
        schema = await self._machine.apart(lambda: self._described(grant))
        tools = [Tool(tool.name, tool.description, tool.parameters) for tool in schema.tools]
        return Offer(tools, schema.usage)

    async def call(self, grant: Grant, name: str, arguments: Json) -> ToolOutput:
        self._require_granted(grant)
        request = msgspec.json.encode({"name": name, "arguments": arguments})
        answer = await self._machine.apart(lambda: self._answered(grant, request))
        return ToolOutput(answer.text, is_error=answer.is_error)

    def _described(self, grant: Grant) -> _Schema:
        with self._running(grant) as guest:
            return _decoded(guest.result("schema"), _Schema, "schema")

    def _answered(self, grant: Grant, request: bytes) -> _Answer:
        with self._running(grant) as guest:
            return _decoded(guest.result("call", *guest.give(request)), _Answer, "call")

    def _require_granted(self, grant: Grant) -> None:
        wanted = {f"{module}.{name}" for module, name in self._imports}
        if unknown := sorted(wanted - set(self._hosts)):
            raise BadImage(f"it imports {', '.join(unknown)}, which nobody could grant")
        if missing := sorted(wanted - grant.hosts):
            raise BadImage(
                f"it imports {', '.join(missing)}, which its declaration does not grant in `hosts`"
            )

    @contextmanager
    def _running(self, grant: Grant) -> Iterator[_Guest]:
        """An instance of its own, with what is granted."""
        from wasmtime import FuncType, Linker, ValType  # noqa: PLC0415

        with self._machine.store() as store:
            linker = Linker(self._machine.engine)
            kind = FuncType([ValType.i32(), ValType.i32()], [ValType.i64()])
            crossing = _Crossing(grant, self._machine.limits.output)
            for module, name in self._imports:
                host = partial(crossing.host, self._hosts[f"{module}.{name}"])
                linker.define_func(module, name, kind, host, access_caller=True)
            exports = linker.instantiate(store, self._module).exports(store)
            yield _Guest(store, exports.__getitem__, self._machine.limits.output)


class _Crossing:
    """The host functions of one call, as the module reaches them."""

    def __init__(self, grant: Grant, most: int) -> None:
        self._grant = grant
        self._most = most
        self._busy = False

    def host(self, function: Host, caller: Caller, pointer: int, length: int) -> int:
        """Answer a call out of the module."""
        if self._busy:  # its alloc, which is called for the answer, would call for ever
            raise BadImage("it calls a host function while it is asked for memory by one")
        self._busy = True
        try:
            guest = _Guest(caller, caller.__getitem__, self._most)
            at, size = guest.give(function(self._grant, guest.take(pointer, length)))
            return at << 32 | size
        except Refused:
            return _REFUSED
        finally:
            self._busy = False


class _Guest:
    """The memory and the functions of an instance, from inside or outside of a call."""

    def __init__(self, store: Store | Caller, export: Callable[[str], object], most: int) -> None:
        self._store = store
        self._export = export
        self._most = most

    def result(self, name: str, *arguments: int) -> bytes:
        """The bytes that one of its functions answers with."""
        packed = self._call(name, *arguments) & _UNSIGNED
        return self.take(packed >> 32, packed & 0xFFFF_FFFF)

    def take(self, pointer: int, length: int) -> bytes:
        """Bytes of its memory. Raises BadImage for a place outside."""
        at, size = pointer & 0xFFFF_FFFF, length & 0xFFFF_FFFF
        if size > self._most:
            raise BadImage(f"it hands over {size} bytes, and {self._most} are allowed")
        memory = cast("Memory", self._export("memory"))
        if at + size > memory.data_len(self._store):
            raise BadImage("it points outside of its memory")
        return bytes(memory.read(self._store, at, at + size))

    def give(self, data: bytes) -> tuple[int, int]:
        """Where bytes now stand in its memory. Raises BadImage if it has no room for them."""
        if not data:
            return 0, 0
        if len(data) > self._most:
            raise BadImage(f"it is handed {len(data)} bytes, and {self._most} are allowed")
        memory, at = cast("Memory", self._export("memory")), self._call("alloc", len(data)) & 0xFFFF_FFFF
        if not at or at + len(data) > memory.data_len(self._store):
            raise BadImage(f"it has no room for {len(data)} bytes")
        memory.write(self._store, data, at)
        return at, len(data)

    def _call(self, name: str, *arguments: int) -> int:
        function = cast("Func", self._export(name))
        return cast(int, function(self._store, *arguments))


def _config() -> Config:
    """Epochs, and no more of WebAssembly than compilers emit by default."""
    from wasmtime import Config  # noqa: PLC0415

    config = Config()
    config.epoch_interruption = True
    for name in _OFF:
        getattr(
            Config, name
        )  # an older wasmtime must not take it for an attribute of its own, and leave it on
        setattr(config, name, False)
    return config


def _require_interface(module: Module) -> None:
    """Raises BadImage if the module does not export what the host calls."""
    from wasmtime import FuncType, MemoryType  # noqa: PLC0415

    exports = {each.name: each for each in module.exports}
    if "memory" not in exports or not isinstance(exports["memory"].type, MemoryType):
        raise BadImage("it exports no memory")
    for name, shape in _FUNCTIONS.items():
        kind = exports[name].type if name in exports else None
        if not isinstance(kind, FuncType) or _shape(kind) != shape:
            raise BadImage(f"it must export the function {name}{shape}")


def _shape(kind: FuncType) -> str:
    params, results = (", ".join(map(str, types)) for types in (kind.params, kind.results))
    return f"({params}) -> {results}"


def _decoded(data: bytes, cls: type[T], function: str) -> T:
    try:
        return msgspec.json.decode(data, type=cls)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadImage(f"its {function}() answers with what it must not: {error}") from None


def _first_line(error: object) -> str:
    """What wasmtime says, without its backtrace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "wasm trap" in line] or lines
    return cut(causes[0], 300) if causes else "no reason given"
