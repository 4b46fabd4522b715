"""config.toml: what is refused, and that the refusal says where and what was meant."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabstore.daemon.config import BadConfig, Config, load, parse
from crabstore.daemon.home import Home
from crabstore.daemon.providers import Models, build_providers
from crabstore.runtime.providers.anthropic import AnthropicProvider
from crabstore.runtime.providers.openai import OpenAIProvider
from crabstore.store.agents import AgentConfig

from .scene import configured

PATH = Path("config.toml")


def why(text: str) -> str:
    with pytest.raises(BadConfig) as caught:
        parse(text, PATH)
    assert caught.value.failure.kind == "bad-config"
    return caught.value.why


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("modle = 'x'", ("modle", "'model'")),
        ("[server]\nprot = 1", ("server.prot", "'port'")),
        ("[providers.a]\nkind = 'openai'\nbaseurl = ''", ("providers.a.baseurl", "'base_url'")),
        ("[zzz]", ("zzz", "known are")),
        ("[durability]\nsync = 'often'", ("durability.sync", "float")),
        ("[durability]\nsync = 0", ("durability.sync",)),
        ("[server]\nport = 70000", ("server.port",)),
        ("[providers.a]\nkind = 'gemini'", ("providers.a", "gemini")),
        ("[providers.a]\nbase_url = 'x'", ("kind",)),
        ("[providers.'a b']\nkind = 'openai'", ("providers",)),
        ("provider = 'b'\n[providers.a]\nkind = 'openai'", ("[providers.b]",)),
        ("[providers.a]\nkind = 'scripted'", ("providers.a", "script")),
        ("[providers.a]\nkind = 'openai'\nscript = 'x'", ("providers.a", "script")),
        ("[providers.a]\nkind = 'openai'\napi_key = 'k'\napi_key_env = 'K'", ("api_key_env",)),
        (
            "[providers.a]\nkind='openai'\nmodels=['m']\n[providers.b]\nkind='openai'\nmodels=['m']",
            ("'m'", "providers.a", "providers.b"),
        ),
        ("= 1", ("not TOML", "line 1")),
    ],
)
def test_what_cannot_be_used_is_named(text: str, names: tuple[str, ...]) -> None:
    told = why(text)
    assert all(name in told for name in names), told


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert isinstance(parse(text, PATH), Config)
    except BadConfig as error:
        assert error.why


def test_a_home_without_the_file_has_the_defaults(home: Home) -> None:
    assert load(home.config) == Config()


def test_a_file_that_is_no_text_is_refused(home: Home) -> None:
    home.make()
    home.config.write_bytes(b"\xff")
    with pytest.raises(BadConfig):
        load(home.config)


def test_a_folder_in_the_files_place_is_refused(home: Home) -> None:
    home.make()
    home.config.mkdir()
    with pytest.raises(BadConfig):
        load(home.config)


def test_a_key_in_the_file_needs_a_file_for_its_owner_alone(home: Home) -> None:
    configured(home, "[providers.a]\nkind = 'openai'\napi_key = 'hushhush'")
    home.config.chmod(0o644)
    with pytest.raises(BadConfig, match="chmod 600") as caught:
        load(home.config)
    assert "hushhush" not in str(caught.value)
    home.config.chmod(0o600)
    assert load(home.config).providers["a"].api_key == "hushhush"


def test_a_variable_that_is_not_set_is_named(home: Home) -> None:
    config = parse("[providers.a]\nkind = 'openai'\napi_key_env = 'NO_KEY'", PATH)
    with pytest.raises(BadConfig, match="NO_KEY"):
        build_providers(config, home, {})
    assert set(build_providers(config, home, {"NO_KEY": "k"})) == {"a", ""}


def test_a_script_that_cannot_be_played_is_refused(home: Home) -> None:
    configured(home)
    (home.path / "script.json").write_text('[{"txt": "x"}]')
    with pytest.raises(BadConfig, match="txt"):
        build_providers(load(home.config), home, {})


def test_the_kinds_are_the_sdks_and_the_default_is_the_named_one(home: Home) -> None:
    first = "[providers.a]\nkind = 'anthropic'\nbase_url = 'http://x'"
    text = f"provider = 'b'\n{first}\n[providers.b]\nkind = 'openai'"
    built = build_providers(parse(text, PATH), home, {})
    assert isinstance(built["a"], AnthropicProvider) and isinstance(built["b"], OpenAIProvider)
    assert built[""] is built["b"]


def test_several_providers_without_a_default_have_none(home: Home) -> None:
    text = "[providers.a]\nkind = 'openai'\n[providers.b]\nkind = 'openai'"
    assert set(build_providers(parse(text, PATH), home, {})) == {"a", "b"}


@pytest.mark.parametrize(
    ("model", "becomes"),
    [("", "local/q"), ("big", "far/big"), ("far/big", "far/big"), ("other", "other"), ("q", "local/q")],
)
def test_a_model_gets_the_provider_that_lists_it(model: str, becomes: str) -> None:
    far = "[providers.far]\nkind='openai'\nmodels=['big']"
    text = f"model='q'\n{far}\n[providers.local]\nkind='openai'\nmodels=['q']"
    agent = asyncio.run(Models(parse(text, PATH)).on_build_agent(AgentConfig(name="a", model=model)))
    assert agent.model == becomes
