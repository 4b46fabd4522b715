"""Chat Completions through OpenAI's own SDK, which is imported on first use: it is an extra.

Any server that speaks it works, local ones too: `base_url` says where.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...store.messages import Format
from ..errors import BrokenStream, ProviderError, ProviderUnavailable, SdkMissing
from ..wire import chat as wire
from .failures import failure
from .protocol import ProviderEvent, Request

if TYPE_CHECKING:
    from openai import AsyncOpenAI

__all__ = ["OpenAIProvider"]

_NAME = "openai"
_HOME = "https://api.openai.com/v1"


class OpenAIProvider:
    """OpenAI's models, or whatever speaks Chat Completions at `base_url`.

    `timeout` is in seconds, of silence. An agent's `thinking` has no counterpart here and is left out.
    """

    def __init__(
        self,
        api_key: str,
        *,
        base_url: str = _HOME,
        timeout: float = 120.0,
        organization: str | None = None,
        project: str | None = None,
    ) -> None:
        self._api_key = api_key
        self._base_url = base_url
        self._timeout = timeout
        self._organization = organization
        self._project = project
        self._client: AsyncOpenAI | None = None

    @property
    def format(self) -> Format:
        """Of the messages that it writes."""
        return "openai-chat"

    async def stream(self, request: Request) -> AsyncGenerator[ProviderEvent, None]:
        """The answer as it arrives. Raises ProviderError, or SdkMissing."""
        client, parameters = self._connected(), self.parameters(request)
        taken = wire.ChunkStream()
        with _translated():
            stream: Any = await client.chat.completions.create(**parameters, stream=True)
            async with stream:
                async for chunk in stream:
                    for delta in taken.feed(chunk.to_dict(warnings=False)):
                        yield delta
        reply = taken.reply()
        if reply is None:
            raise BrokenStream(_NAME, "the stream ended before the answer did")
        yield reply

    async def close(self) -> None:
        """Let go of connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    def parameters(self, request: Request) -> dict[str, Any]:
        """The body of the request."""
        parameters: dict[str, Any] = {
            "model": request.model,
            "messages": wire.render(request.entries, request.system),
            "stream_options": {"include_usage": True},
        }
        if request.tools:
            parameters["tools"] = wire.tools(request.tools)
            parameters["tool_choice"] = wire.tool_choice(request.tool_choice)
        if request.max_tokens:
            # OpenAI's newer models refuse the old name; most other servers know no other.
            name = "max_completion_tokens" if self._base_url == _HOME else "max_tokens"
            parameters[name] = request.max_tokens
        return parameters

    def _connected(self) -> AsyncOpenAI:
        if self._client is None:
            try:
                import openai  # noqa: PLC0415 - an extra, and slow to import
            except ImportError as error:
                raise SdkMissing(_NAME) from error
            self._client = openai.AsyncOpenAI(
                api_key=self._api_key or "none",  # local servers want no key, the SDK insists on one
                base_url=self._base_url,
                timeout=openai.Timeout(self._timeout, connect=min(10.0, self._timeout)),
                max_retries=0,  # the runtime retries, and tells of it
            )
            # The SDK takes these from the environment, which is not the runtime's to read.
            self._client.organization = self._organization
            self._client.project = self._project
        return self._client


@contextmanager
def _translated() -> Iterator[None]:
    """The SDK's errors as the runtime's."""
    import openai  # noqa: PLC0415

    try:
        yield
    except openai.APIStatusError as error:
        headers = dict(error.response.headers)
        raise failure(_NAME, error.status_code, error.message, error.body, headers) from error
    except openai.APIConnectionError as error:
        raise ProviderUnavailable(_NAME, str(error.__cause__ or error)) from error
    except openai.APIError as error:
        raise failure(_NAME, None, error.message, error.body) from error
    except openai.OpenAIError as error:
        raise ProviderError(_NAME, str(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise BrokenStream(_NAME, f"the stream makes no sense: {error}") from error
