"""Models by their names, and what is wrong with a name that is none."""

from __future__ import annotations

import subprocess
import sys

import pytest

from toolcrib import UsageError
from toolcrib.testing.models import ScriptedModel
from toolcrib_agent import model_of
from toolcrib_agent.models import OLLAMA, is_paid

pytestmark = pytest.mark.slow  # the libraries of the providers take 2 s to import: a test imports those that it needs

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OLLAMA_BASE_URL", "OLLAMA_API_KEY", "OPENROUTER_API_KEY")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)


def test_a_model_that_is_made_stays_what_it_is() -> None:
    model = ScriptedModel()

    assert model_of(model) is model


def test_a_provider_finds_its_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.models.openai import OpenAIResponsesModel

    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    claude, gpt = model_of("anthropic:claude-sonnet-5-5"), model_of("openai:gpt-6-luna")

    assert isinstance(claude, AnthropicModel) and isinstance(gpt, OpenAIResponsesModel)
    assert (claude.model_name, gpt.model_name, is_paid(claude), is_paid(gpt)) == (
        *("claude-sonnet-5-5", "gpt-6-luna"),
        *(True, True),
    )


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("anthropic:claude-sonnet-5-5", "ANTHROPIC_API_KEY"),
        ("openai:gpt-6-luna", "OPENAI_API_KEY"),
        ("openrouter:qwen/qwen3", "OPENROUTER_API_KEY"),
    ],
)
def test_a_key_that_is_missing_is_named_by_its_variable(name: str, variable: str) -> None:
    with pytest.raises(UsageError) as refused:
        model_of(name)

    assert str(refused.value) == f"model {name!r}: set {variable} in the environment"


def test_a_local_server_needs_a_name_and_a_url_and_no_key() -> None:
    from pydantic_ai.models.openai import OpenAIChatModel

    model = model_of("local:qwen3@http://127.0.0.1:1234/v1")

    assert isinstance(model, OpenAIChatModel)
    assert (model.model_name, model.system, is_paid(model)) == ("qwen3", "local", False)
    assert (model.base_url or "").startswith("http://127.0.0.1:1234/v1")
    assert model_of("local:qwen3", base_url="http://127.0.0.1:1234/v1").model_name == "qwen3"


def test_ollama_is_on_this_machine_unless_it_is_said_to_be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    from pydantic_ai.models.ollama import OllamaModel

    model = model_of("ollama:qwen3:8b")
    assert isinstance(model, OllamaModel)
    assert (model.model_name, (model.base_url or "").rstrip("/"), is_paid(model)) == ("qwen3:8b", OLLAMA, False)

    monkeypatch.setenv("OLLAMA_BASE_URL", "https://ollama.example.com/v1")
    assert is_paid(model_of("ollama:qwen3")) is True


def test_a_provider_may_be_at_another_url() -> None:
    from pydantic_ai.models.openai import OpenAIChatModel

    near = model_of("anthropic:claude-sonnet-5-5@http://localhost:4010", api_key="k")
    far = model_of("openai-chat:gpt-6-luna", base_url="https://proxy.example.com/v1", api_key="k")

    assert ((near.base_url or "").rstrip("/"), is_paid(near)) == ("http://localhost:4010", False)
    assert (isinstance(far, OpenAIChatModel), is_paid(far)) == (True, True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpt-5", "a model is named provider:name, such as anthropic:claude-sonnet-5-5"),
        ("", "a model is named provider:name"),
        ("antropic:claude-sonnet-5-5", "there is no provider 'antropic'; did you mean anthropic?"),
        ("local:qwen3", "a local model is named local:NAME@URL"),
        ("local:qwen3@ftp://127.0.0.1/v1", "'ftp://127.0.0.1/v1'"),
    ],
)
def test_a_name_that_means_no_model_says_what_one_looks_like(name: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        model_of(name)

    assert said in str(refused.value) and repr(name) in str(refused.value)


@pytest.mark.parametrize(
    ("url", "paid"),
    [
        ("http://192.168.1.7:8000/v1", False),
        ("http://[::1]:8000/v1", False),
        ("http://gpu-box:8000/v1", False),
        ("https://models.example.com/v1", True),
        ("http://8.8.8.8/v1", True),
    ],
)
def test_a_model_is_paid_unless_it_is_on_a_machine_nearby(url: str, paid: bool) -> None:
    assert is_paid(model_of("openai-chat:m", base_url=url, api_key="k")) is paid


@pytest.mark.process
def test_a_screen_can_be_drawn_before_pydantic_ai_is_there() -> None:
    probe = "import sys, toolcrib_agent.events, toolcrib_agent.limits; print('pydantic_ai' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout == "False\n"
