"""The Messages API through Anthropic's own SDK, which is imported on first use: it is an extra."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...store.messages import Format
from ...store.records import Json
from ..errors import BrokenStream, ProviderError, ProviderUnavailable, SdkMissing
from ..wire import anthropic as wire
from .failures import failure
from .protocol import ProviderEvent, Request

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

__all__ = ["AnthropicProvider"]

_NAME = "anthropic"
_MIN_THINKING = 1024
"""Tokens; the API refuses a smaller budget."""


class AnthropicProvider:
    """Claude models, or whatever speaks the Messages API at `base_url`.

    `timeout` is in seconds, of silence: an answer may take as long as it likes while something arrives.
    `max_tokens` is what an answer may have where the agent does not say; an agent's `thinking_budget` of 0 leaves
    it to the model how much to think. `cache` marks system message, tools and history for the API's prompt cache.
    """

    def __init__(
        self,
        api_key: str,
        *,
        base_url: str = "https://api.anthropic.com",
        timeout: float = 120.0,
        max_tokens: int = 8192,
        cache: bool = True,
    ) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._timeout = timeout
        self._max_tokens = max_tokens
        self._cache = cache
        self._client: AsyncAnthropic | None = None

    @property
    def format(self) -> Format:
        """Of the messages that it writes."""
        return "anthropic"

    async def stream(self, request: Request) -> AsyncGenerator[ProviderEvent, None]:
        """The answer as it arrives. Raises ProviderError, or SdkMissing."""
        client, parameters = self._connected(), self.parameters(request)
        taken = wire.MessageStream()
        with _translated():
            stream: Any = await client.messages.create(**parameters, stream=True)
            async with stream:
                async for event in stream:
                    if (delta := taken.feed(event.to_dict(warnings=False))) is not None:
                        yield delta
        reply = taken.reply()
        if reply is None:
            raise BrokenStream(_NAME, "the stream ended before the message did")
        yield reply

    async def close(self) -> None:
        """Let go of connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def parameters(self, request: Request) -> dict[str, Any]:
        """The body of the request."""
        rendered = wire.render(request.entries)
        system = "\n\n".join(filter(None, (request.system, rendered.system)))
        parameters: dict[str, Any] = {
            "model": request.model,
            "messages": rendered.messages,
            "max_tokens": request.max_tokens or self._max_tokens,
            **_tools(request, rendered),
            **({"system": [{"type": "text", "text": system}]} if system else {}),
        }
        if request.thinking:
            _think(parameters, request.thinking_budget)
        if self._cache:
            _mark_for_cache(parameters)
        return parameters

    def _connected(self) -> AsyncAnthropic:
        if self._client is None:
            try:
                import anthropic  # noqa: PLC0415 - an extra, and slow to import
            except ImportError as error:
                raise SdkMissing(_NAME) from error
            self._client = anthropic.AsyncAnthropic(
                api_key=self._api_key,
                base_url=self._base_url,
                timeout=anthropic.Timeout(self._timeout, connect=min(10.0, self._timeout)),
                max_retries=0,  # the runtime retries, and tells of it
            )
        return self._client


def _tools(request: Request, rendered: wire.Rendered) -> dict[str, Any]:
    """A history that holds calls needs tools to be named, also where the agent has none any more."""
    if request.tools:
        choice = "auto" if request.thinking and request.tool_choice != "none" else request.tool_choice
        return {"tools": wire.tools(request.tools), "tool_choice": wire.tool_choice(choice)}
    if rendered.uses_tools:
        return {"tools": [_NO_TOOL], "tool_choice": {"type": "none"}}
    return {}


_NO_TOOL: dict[str, Json] = {
    "name": "unavailable",
    "description": "Tools of earlier turns are no longer available.",
    "input_schema": {"type": "object", "properties": {}},
}


def _think(parameters: dict[str, Any], budget: int) -> None:
    """The budget counts as part of `max_tokens`, which is raised so that there is room for the answer."""
    if budget <= 0:
        parameters["thinking"] = {"type": "adaptive"}
        return
    tokens = max(budget, _MIN_THINKING)
    parameters["thinking"] = {"type": "enabled", "budget_tokens": tokens}
    if parameters["max_tokens"] <= tokens:
        parameters["max_tokens"] += tokens


def _mark_for_cache(parameters: dict[str, Any]) -> None:
    """The prefix up to a mark is cached: up to the system message, and up to the end of the history."""
    if "system" in parameters:
        parameters["system"] = _marked(parameters["system"])
    if parameters["messages"]:
        *earlier, last = parameters["messages"]
        parameters["messages"] = [*earlier, {**last, "content": _marked(last["content"])}]


def _marked(blocks: list[dict[str, Json]]) -> list[dict[str, Json]]:
    *earlier, last = blocks
    markable = last["type"] in ("text", "tool_result", "image")
    return [*earlier, {**last, "cache_control": {"type": "ephemeral"}}] if markable else blocks


@contextmanager
def _translated() -> Iterator[None]:
    """The SDK's errors, and those of its HTTP client, as the runtime's."""
    import anthropic  # noqa: PLC0415
    import httpx2  # noqa: PLC0415 - the SDK's own HTTP client, whose errors pass through a stream

    try:
        yield
    except anthropic.APIStatusError as error:
        headers = dict(error.response.headers)
        raise failure(_NAME, error.status_code, error.message, error.body, headers) from error
    except anthropic.APIConnectionError as error:
        raise ProviderUnavailable(_NAME, str(error.__cause__ or error)) from error
    except (anthropic.APIError, httpx2.HTTPError) as error:
        raise BrokenStream(_NAME, f"the stream broke: {type(error).__name__} {error}") from error
    except anthropic.AnthropicError as error:
        raise ProviderError(_NAME, str(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise BrokenStream(_NAME, f"the stream makes no sense: {error}") from error
