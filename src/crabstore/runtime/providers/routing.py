"""Which provider serves a model: by the name before the slash, else the default one. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import UnknownModel
from .protocol import Provider

__all__ = ["Providers"]


class Providers:
    """The providers of a runtime: one, or several by name with "" as the default.

    The model `anthropic/claude-x` is the model `claude-x` of the provider `anthropic`. A model that begins with no
    provider's name goes whole to the default, so that names with slashes of a local server work.
    """

    def __init__(self, providers: Provider | Mapping[str, Provider]) -> None:
        self._named = dict(providers) if isinstance(providers, Mapping) else {"": providers}

    def serving(self, model: str) -> tuple[Provider, str]:
        """The provider of `model`, and the name that it knows it by. Raises UnknownModel."""
        name, slash, rest = model.partition("/")
        if slash and name and name in self._named:
            return self._named[name], rest
        if "" in self._named:
            return self._named[""], model
        raise UnknownModel(model, sorted(self._named))

    async def close(self) -> None:
        """Close every provider, once."""
        for provider in {id(provider): provider for provider in self._named.values()}.values():
            await provider.close()
