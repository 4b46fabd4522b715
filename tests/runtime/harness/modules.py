"""Small WebAssembly modules: one that keeps to the interface, and each kind that does not."""

from __future__ import annotations

import json

from wasmtime import wat2wasm

__all__ = ["module", "packed", "replying"]

SCHEMA = {
    "tools": [{"name": "shout", "description": "Says it loudly.", "parameters": {"type": "object"}}],
    "usage": "Shout if you must.",
}

# The bump allocator that a real module would get from its language.
_ALLOC = """
  (global $free (mut i32) (i32.const 65536))
  (func (export "alloc") (param $size i32) (result i32) (local $at i32)
    (local.set $at (global.get $free))
    (global.set $free (i32.add (global.get $free) (local.get $size)))
    (local.get $at))
"""


def packed(at: int, size: int) -> int:
    """A place in memory as it crosses, signed as wasm text wants it."""
    value = at << 32 | size
    return value - (1 << 64) if value >> 63 else value


def module(
    call: str,
    *,
    imports: str = "",
    schema: object = SCHEMA,
    alloc: str = _ALLOC,
    memory: str = '(memory (export "memory") 3)',
    more: str = "",
) -> bytes:
    """A module whose `call` has this body; its parameters are `$at` and `$size`, its schema stands at 1024."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    data = "".join(f"\\{byte:02x}" for byte in text.encode())
    return bytes(
        wat2wasm(f"""(module
          {imports}
          {memory}
          (data (i32.const 1024) "{data}")
          {alloc}
          (func (export "schema") (result i64) (i64.const {packed(1024, len(text.encode()))}))
          (func (export "call") (param $at i32) (param $size i32) (result i64) {call})
          {more}
        )""")
    )


def replying(answer: object, **parts: str) -> bytes:
    """A module that answers every call with this JSON."""
    text = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
    data = "".join(f"\\{byte:02x}" for byte in text)
    more = f'(data (i32.const 8192) "{data}")'
    return module(f"(i64.const {packed(8192, len(text))})", more=more, **parts)
