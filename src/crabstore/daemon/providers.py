"""From the configuration to what a runtime needs: providers by name, and the model of agents that name none."""

from __future__ import annotations

from collections.abc import Mapping

from ..runtime import Harness, Provider, Retries
from ..runtime.errors import BadScript
from ..runtime.providers.anthropic import AnthropicProvider
from ..runtime.providers.openai import OpenAIProvider
from ..runtime.providers.scripted import ScriptedProvider
from ..store.agents import AgentConfig
from ..store.records import evolve
from .config import BadConfig, Config, ProviderConfig
from .home import Home

__all__ = ["Models", "build_providers", "retries"]


_SDKS: dict[str, type[AnthropicProvider | OpenAIProvider]] = {
    "anthropic": AnthropicProvider,
    "openai": OpenAIProvider,
}


class Models(Harness):
    """Completes an agent's model: the configured one if it names none, and the provider that lists it."""

    name = "models"

    def __init__(self, config: Config) -> None:
        self.config = config

    async def on_build_agent(self, agent: AgentConfig) -> AgentConfig:
        """The agent with the model `PROVIDER/model`, where the configuration says which."""
        model = agent.model or self.config.model
        listed = (name for name, provider in self.config.providers.items() if model in provider.models)
        provider = next(listed, None)
        return evolve(agent, model=f"{provider}/{model}" if provider else model)


def build_providers(config: Config, home: Home, environ: Mapping[str, str]) -> dict[str, Provider]:
    """Each configured provider by its name, the default one also as "". Raises BadConfig."""
    built = {name: _build(name, provider, home, environ) for name, provider in config.providers.items()}
    default = config.provider or (next(iter(built)) if len(built) == 1 else "")
    return {**built, "": built[default]} if default else built


def retries(config: Config) -> Retries:
    """How transient failures are met."""
    chosen = config.retries
    return Retries(attempts=chosen.attempts, first=chosen.first, longest=chosen.longest)


def _build(name: str, config: ProviderConfig, home: Home, environ: Mapping[str, str]) -> Provider:
    if config.kind == "scripted":
        return _scripted(name, config, home)
    kind = _SDKS[config.kind]
    key = _key(name, config, home, environ)
    if config.base_url:
        return kind(key, base_url=config.base_url, timeout=config.timeout)
    return kind(key, timeout=config.timeout)


def _key(name: str, config: ProviderConfig, home: Home, environ: Mapping[str, str]) -> str:
    if not config.api_key_env:
        return config.api_key
    key = environ.get(config.api_key_env, "")
    if not key:
        why = f"providers.{name}.api_key_env names the variable {config.api_key_env}, which is not set"
        raise BadConfig(home.config, why)
    return key


def _scripted(name: str, config: ProviderConfig, home: Home) -> ScriptedProvider:
    path = home.path / config.script
    try:
        return ScriptedProvider.parse(path.read_bytes(), format=config.format, name=str(path))
    except (OSError, BadScript) as error:
        raise BadConfig(home.config, f"providers.{name}.script: {error}") from error
