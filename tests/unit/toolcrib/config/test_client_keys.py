"""What clients write into an entry of `mcpServers`: taken over, reported once a file, or the end of that entry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolcrib.config import load
from toolcrib.config.loader import servers_in
from toolcrib.mcp.client.spec import ServerSpec
from toolcrib.net.oauth.spec import OAuthSpec

STDIO: dict[str, Any] = {"command": "x"}
HTTP: dict[str, Any] = {"url": "https://h/mcp"}
ENVIRON = {"TOKEN": "tok", "ORG": "acme"}


def one(entry: dict[str, Any]) -> ServerSpec:
    """Return the server that an entry of a client that is not known makes."""
    specs, problems = servers_in({"mcpServers": {"a": entry}}, ENVIRON, cwd="/w")
    assert problems == []
    return specs[0]


@pytest.mark.parametrize(
    ("entry", "field", "value"),
    [
        ({**STDIO, "timeout": 30}, "timeout", 30.0),
        ({**STDIO, "timeout": 30_000}, "timeout", 30.0),
        ({**STDIO, "timeout": {"request": 7000}}, "timeout", 7.0),
        ({**STDIO, "tool_timeout_sec": 90}, "timeout", 90.0),
        ({**STDIO, "includeTools": ["r"], "excludeTools": ["w"]}, "tools_allow", ("r",)),
        ({**STDIO, "includeTools": ["r"], "excludeTools": ["w"]}, "tools_deny", ("w",)),
        ({**STDIO, "enabled_tools": ["r"]}, "tools_allow", ("r",)),
        ({**STDIO, "disabledTools": ["w"]}, "tools_deny", ("w",)),
        ({**STDIO, "allowedTools": ["r"]}, "tools_allow", ("r",)),
        ({**STDIO, "tools": ["*"]}, "tools_allow", None),
        ({**STDIO, "tools": ["r"]}, "tools_allow", ("r",)),
        ({**STDIO, "cwd": "sub"}, "cwd", "/w/sub"),
        ({**STDIO, "working_directory": "/abs"}, "cwd", "/abs"),
        (
            {**STDIO, "env_vars": ["TOKEN", {"name": "ORG"}], "env": {"A": "b"}},
            "env",
            {"TOKEN": "tok", "ORG": "acme", "A": "b"},
        ),
        ({"cmd": "x", "envs": {"A": "b"}, "env_keys": ["TOKEN"]}, "env", {"TOKEN": "tok", "A": "b"}),
        ({**HTTP, "bearer_token_env_var": "TOKEN"}, "headers", {"Authorization": "Bearer tok"}),
        ({**HTTP, "bearerToken": "t0k"}, "headers", {"Authorization": "Bearer t0k"}),
        (
            {**HTTP, "env_http_headers": {"X-Org": "ORG"}, "http_headers": {"A": "b"}},
            "headers",
            {"A": "b", "X-Org": "acme"},
        ),
        ({**HTTP, "requestOptions": {"headers": {"A": "b"}, "timeout": 5000}}, "headers", {"A": "b"}),
        ({**HTTP, "oauth": {"clientId": "us"}, "scopes": ["r"]}, "oauth", OAuthSpec(client_id="us", scopes=("r",))),
        ({"httpUrl": "https://h/mcp"}, "transport", "http"),
        ({"serverUrl": "https://h/mcp"}, "url", "https://h/mcp"),
        ({**HTTP, "type": "streamableHttp"}, "transport", "http"),
        ({**STDIO, "trust": False, "autoApprove": [], "disabled": False, "_why": "a note"}, "command", "x"),
        ({**STDIO, "description": "For people.", "gallery": True, "version": "1"}, "command", "x"),
    ],
)
def test_a_key_of_a_client_means(entry: dict[str, Any], field: str, value: Any) -> None:
    assert getattr(one(entry), field) == value


@pytest.mark.parametrize("entry", [{**STDIO, "disabled": True}, {**HTTP, "enabled": False}])
def test_a_server_that_is_switched_off_there_is_off_here(entry: dict[str, Any]) -> None:
    assert servers_in({"mcpServers": {"a": entry}}, {}) == ([], [])


def test_the_variables_of_a_file_stand_behind_those_of_the_entry(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("# ours\nexport A=one # a note\nB='two words'\nC=\"x#y\"\n\nD=5\nURL=http://h/#a\n")
    entry = {**STDIO, "envFile": "${workspaceFolder}/.env", "env": {"D": "6"}}

    specs, problems = servers_in({"mcpServers": {"a": entry}}, {}, cwd=tmp_path)
    broken, missing = servers_in({"mcpServers": {"a": {**STDIO, "envFile": "none.env"}}}, {}, cwd=tmp_path)

    assert problems == []
    assert dict(specs[0].env) == {"A": "one", "B": "two words", "C": "x#y", "D": "6", "URL": "http://h/#a"}
    assert (broken, "mcpServers.a.envFile" in missing[0].message) == ([], True)


def test_schemas_are_read_from_files_by_their_uri(tmp_path: Path) -> None:
    (tmp_path / "address.json").write_text('{"type": "string"}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "twice.json").write_text('{"type": "string", "type": "number"}')

    def specs_of(uri: str, file: str) -> tuple[list[Any], list[str]]:
        entry = {**STDIO, "schemas": {uri: file}}
        specs, problems = servers_in({"mcpServers": {"a": entry}}, {}, cwd=tmp_path)
        return [spec.schemas for spec in specs], [problem.code for problem in problems]

    folder = "${workspaceFolder}/"
    assert specs_of("https://h/address", folder + "address.json") == ([{"https://h/address": {"type": "string"}}], [])
    for uri, file in (
        ("address", "address.json"),
        ("https://h/a#part", "address.json"),
        ("https://h/a", "none.json"),
        ("https://h/a", "list.json"),
        ("https://h/a", "twice.json"),
    ):
        assert specs_of(uri, folder + file) == ([], ["bad_config"]), (uri, file)


REPORTED = [
    "alwaysAllow",
    "alwaysLoad",
    "authProviderType",
    "autoApprove",
    "connectionTimeout",
    "default_tools_approval_mode",
    "dev",
    "experimental_environment",
    "headersHelper",
    "lifecycle",
    "logging",
    "oauthCommand",
    "oauthRedirectUrl",
    "oauth_resource",
    "required",
    "sandbox",
    "startup_timeout_ms",
    "startup_timeout_sec",
    "supports_parallel_tool_calls",
    "targetAudience",
    "targetServiceAccount",
    "tokenCacheDir",
    "trust",
    "watchPaths",
]


@pytest.mark.parametrize("key", REPORTED)
def test_a_key_without_effect_is_reported_once_a_file_and_stops_nothing(tmp_path: Path, key: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {name: {**STDIO, key: ["x"]} for name in ("a", "b")}}))

    settings = load([file], environ={}, cwd=tmp_path)

    assert [spec.name for spec in settings.sources.servers] == ["a", "b"]
    assert [(problem.source, problem.code, problem.message) for problem in settings.problems] == [
        (str(file), "notice", f"`{key}` (a, b) has no effect here")
    ]
    assert settings.problems[0].hint


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({**STDIO, "untrusted": True}, "untrusted: unknown key, which no client writes"),
        (
            {**STDIO, "disabledTool": ["rm"]},
            "disabledTool: unknown key, which no client writes; did you mean 'disabled_tools'?",
        ),
        ({**STDIO, "trusted": True}, "trusted: a client's file cannot mark a server as trusted"),
        ({**HTTP, "oauth": {"clientid": "us"}}, "oauth.clientid: unknown key"),
        ({**STDIO, "disabledTools": ["a"], "excludeTools": ["b"]}, "excludeTools: repeats another key"),
        ({**STDIO, "timeout": {"start": 3}}, "timeout.start: unknown key"),
        ({**STDIO, "env_vars": [3]}, "env_vars: the name of an environment variable was expected"),
    ],
)
def test_any_other_key_stops_its_entry_by_name_and_no_other(
    tmp_path: Path, entry: dict[str, Any], message: str
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"good": STDIO, "bad": entry, "also": HTTP}}))

    settings = load([file], environ={}, cwd=tmp_path)

    assert [spec.name for spec in settings.sources.servers] == ["good", "also"]
    assert [(problem.source, problem.code) for problem in settings.problems] == [("bad", "bad_config")]
    assert settings.problems[0].message.startswith(f"{file}:1: mcpServers.bad.{message}")


@pytest.mark.parametrize(
    ("entry", "key", "advice"),
    [
        ({**STDIO, "env_vars": ["A", "NO"]}, "env_vars", "set it"),
        ({**STDIO, "env_keys": ["NO"]}, "env_keys", "set it"),
        ({**STDIO, "env_vars": ["NO"], "env": {"NO": "${NO}"}}, "env.NO", "set it, or write ${NO:-default}"),
        ({**STDIO, "environment": {"X": "${NO}"}}, "environment.X", "set it, or write ${NO:-default}"),
        ({**HTTP, "env_http_headers": {"X-Org": "NO"}}, "env_http_headers.X-Org", "set it"),
        ({**HTTP, "bearer_token_env_var": "NO"}, "bearer_token_env_var", "set it"),
        ({**HTTP, "http_headers": {"X": "${NO}"}}, "http_headers.X", "set it, or write ${NO:-default}"),
    ],
)
def test_an_unset_variable_is_reported_at_the_key_that_the_file_has(
    tmp_path: Path, entry: dict[str, Any], key: str, advice: str
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"bad": entry}}))
    place = f"{file}:1: mcpServers.bad.{key}"

    settings = load([file], environ={"A": "1"}, cwd=tmp_path)

    message = f"{place}: the environment variable NO is not set: {advice}"
    assert [problem.message for problem in settings.problems] == [message]


@pytest.mark.parametrize(
    ("file", "given", "seconds"),
    [
        (".gemini/settings.json", 500, 0.5),
        (".gemini/settings.json", 7_200_000, 7200.0),
        (".mcp.json", 90_000, 90.0),
        ("cline_mcp_settings.json", 60, 60.0),
        ("cline_mcp_settings.json", 60_000, 60.0),
    ],
)
def test_a_timeout_is_in_the_unit_of_its_client(tmp_path: Path, file: str, given: int, seconds: float) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {"a": {**STDIO, "timeout": given}}}))

    assert load([path], environ={}, cwd=tmp_path).sources.servers[0].timeout == seconds
