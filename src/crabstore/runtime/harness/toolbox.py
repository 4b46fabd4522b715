"""Tools as functions: one struct is the schema that a model is told and the check that its arguments pass. No I/O.

A model's mistake is answered to the model, and is no failure of a harness: bad arguments, and what a function
raises as `Refused`, become error results that say what to do instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec

from ...store.messages import ToolCall
from ...store.records import Json
from ..tools import Tool, ToolOutput
from .base import Context

__all__ = ["Arguments", "Function", "Refused", "Toolbox", "cut"]


class Arguments(msgspec.Struct, forbid_unknown_fields=True):
    """Base of a tool's arguments: its fields, with their types and `msgspec.Meta`, are the tool's parameters."""


A = TypeVar("A", bound=Arguments)


class Refused(Exception):
    """A tool was asked for what it does not do; the text tells the model why, and what it may do instead."""


@dataclass(frozen=True)
class Function(Generic[A]):
    """A tool and what answers its calls; the answer raises Refused for what the model has to mend."""

    name: str
    description: str
    arguments: type[A]
    answer: Callable[[Context, A], Awaitable[str]]

    @cached_property
    def tool(self) -> Tool:
        """The tool as a model is told of it."""
        _, components = msgspec.json.schema_components([self.arguments])
        schema: dict[str, Json] = components[self.arguments.__name__]
        # What the struct is called, and what its docstring says, is for readers of the code.
        told = {name: part for name, part in schema.items() if name not in ("title", "description")}
        return Tool(self.name, self.description, told)

    async def __call__(self, context: Context, arguments: Json) -> ToolOutput:
        """The answer to one call."""
        try:
            parsed = msgspec.convert(arguments, self.arguments)
            return ToolOutput(await self.answer(context, parsed))
        except msgspec.ValidationError as error:
            return ToolOutput(f"the arguments of {self.name} are wrong: {error}", is_error=True)
        except Refused as error:
            return ToolOutput(str(error), is_error=True)


class Toolbox:
    """The functions of a harness by name, in their order."""

    def __init__(self, *functions: Function[Any]) -> None:  # of one arguments type each
        self._functions = {function.name: function for function in functions}

    @property
    def tools(self) -> Sequence[Tool]:
        """What a harness answers to `schema`."""
        return [function.tool for function in self._functions.values()]

    @property
    def names(self) -> Sequence[str]:
        """The names of all of them."""
        return list(self._functions)

    async def answer(self, context: Context, call: ToolCall) -> ToolOutput:
        """What a harness answers to `dispatch`."""
        return await self._functions[call.name](context, call.arguments)


def cut(text: str, most: int) -> str:
    """`text`, or its first `most` characters and how many are missing."""
    return text if len(text) <= most else f"{text[:most]} [{len(text) - most} more characters]"
