"""config.toml: what a person says about how the daemon is to work. Read, checked, never written.

Strict: a key that nobody knows is an error that names the nearest one, since a misspelt setting that is ignored
is found too late.
"""

from __future__ import annotations

import difflib
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import msgspec

from ..answers.failures import ExitCode, Refusal

__all__ = [
    "BadConfig",
    "Config",
    "DurabilityConfig",
    "ProviderConfig",
    "RetriesConfig",
    "ServerConfig",
    "load",
    "parse",
]

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class ProviderConfig(Section, frozen=True):
    """`[providers.NAME]`: a source of answers. Agents ask it by the model `NAME/model`."""

    kind: Literal["anthropic", "openai", "scripted"]
    """Which protocol it speaks; `openai` is Chat Completions, which most local servers speak, too."""
    base_url: str = ""
    """Where it is, if not at the maker's own address."""
    api_key_env: str = ""
    """The environment variable that holds its key."""
    api_key: str = ""
    """The key itself; only in a file that nobody else can read (mode 0600)."""
    models: list[str] = []
    """Models that are asked of it without `NAME/` before them."""
    timeout: Seconds = 120.0
    """Seconds of silence after which an answer is given up."""
    script: str = ""
    """For `scripted`: the file of turns, from the home folder."""
    format: Literal["anthropic", "openai-chat"] = "anthropic"
    """For `scripted`: the format of the messages that it writes."""


class ServerConfig(Section, frozen=True):
    """`[server]`: how the daemon listens. Read when it starts."""

    tcp: bool = True
    """Whether to listen on 127.0.0.1 beside the socket."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    """The port there; 0 takes any free one, which stands in `daemon.port`."""
    max_body: Annotated[int, msgspec.Meta(ge=1024)] = 32 << 20
    """Bytes of a request's body over TCP."""
    grace: Annotated[float, msgspec.Meta(ge=0)] = 20.0
    """Seconds that runs get to end by themselves when the daemon is told to stop."""


class DurabilityConfig(Section, frozen=True):
    """`[durability]`: what a power cut may cost. A call that returned survives `kill -9` in any case."""

    sync: Seconds = 5.0
    """Seconds at most between a write and its fsync; the end of a run does not wait for it."""
    checkpoint: Seconds = 120.0
    """Seconds between looks at whether a checkpoint, which makes the next start fast, is worth it."""


class RetriesConfig(Section, frozen=True):
    """`[retries]`: how transient failures of a provider are met."""

    attempts: Annotated[int, msgspec.Meta(ge=1)] = 4
    """Requests in all."""
    first: Seconds = 1.0
    """Seconds before the second; they double with each further one."""
    longest: Seconds = 60.0
    """Seconds that are ever waited."""


class Config(Section, frozen=True):
    """The whole file; every key has a default."""

    model: str = ""
    """What agents run on that name no model."""
    provider: str = ""
    """Who is asked for a model that names no provider; the only provider, if there is one."""
    providers: dict[Name, ProviderConfig] = {}
    server: ServerConfig = ServerConfig()
    durability: DurabilityConfig = DurabilityConfig()
    retries: RetriesConfig = RetriesConfig()


class BadConfig(Refusal):
    """The file cannot be used; what was in force stays in force."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(ExitCode.USAGE, "bad-config", f"{path}: {why}", path=str(path), why=why)
        self.path = path
        self.why = why


def load(path: Path) -> Config:
    """The configuration at `path`; all defaults if there is no file. Raises BadConfig."""
    try:
        text = path.read_text(encoding="utf-8")
        private = not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    except FileNotFoundError:
        return Config()
    except UnicodeDecodeError as error:
        raise BadConfig(path, "is not UTF-8 text") from error
    except OSError as error:
        raise BadConfig(path, error.strerror or str(error)) from error
    config = parse(text, path)
    for name, provider in config.providers.items():
        if provider.api_key and not private:
            why = f"providers.{name}.api_key is a secret, and others may read the file: chmod 600 it"
            raise BadConfig(path, f"{why}, or name a variable with api_key_env")
    return config


def parse(text: str, path: Path) -> Config:
    """The configuration in `text`; `path` is only named in the error. Raises BadConfig."""
    try:
        table = tomllib.loads(text)
        for problem in _unknown(Config, table, ""):
            raise BadConfig(path, problem)
        config = msgspec.convert(table, Config)
    except tomllib.TOMLDecodeError as error:
        raise BadConfig(path, f"is not TOML: {error}") from error
    except msgspec.ValidationError as error:
        raise BadConfig(path, _placed(error, table)) from error
    for problem in _unsound(config):
        raise BadConfig(path, problem)
    return config


def _placed(error: msgspec.ValidationError, table: Mapping[str, object]) -> str:
    """The error, with the name of the provider that it is about."""
    providers = table.get("providers")
    for name, provider in providers.items() if isinstance(providers, dict) else ():
        try:
            msgspec.convert(provider, ProviderConfig)
        except msgspec.ValidationError as own:
            error, place = own, f"$.providers.{name}"
            return str(error).replace("`$", f"`{place}") if "`$" in str(error) else f"{error} - at `{place}`"
    return str(error)


def _unknown(kind: type[msgspec.Struct], table: Mapping[str, object], at: str) -> Iterator[str]:
    """What is wrong with the keys of a table, and of the tables in it."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in table.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(fields)}"
            yield f"{at}{name} is unknown: {meant}"
        elif isinstance(value, dict):
            yield from _unknown_in(fields[name], value, f"{at}{name}.")


def _unknown_in(kind: object, table: Mapping[str, object], at: str) -> Iterator[str]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield from _unknown(kind, table, at)
    elif get_origin(kind) is dict:
        for name, value in table.items():
            if isinstance(value, dict):
                yield from _unknown_in(get_args(kind)[1], value, f"{at}{name}.")


def _unsound(config: Config) -> Iterator[str]:
    """What is wrong with values that are each right by themselves."""
    if config.provider and config.provider not in config.providers:
        yield f"provider is {config.provider!r}, and there is no [providers.{config.provider}]"
    for name, provider in config.providers.items():
        if provider.api_key and provider.api_key_env:
            yield f"providers.{name} has both api_key and api_key_env"
        if (provider.kind == "scripted") != bool(provider.script):
            yield f"providers.{name}: a script belongs to the kind scripted, and to no other"
    served = [(model, name) for name, provider in config.providers.items() for model in provider.models]
    for model, name in served:
        if dict(served)[model] != name:
            yield f"the model {model!r} is listed by providers.{name} and by providers.{dict(served)[model]}"
