"""No section of our own file ignores a key that it does not know, at any depth: each is named with file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from toolcrib.config import load
from toolcrib.config.keys import KEYS
from toolcrib.config.loader import servers_in
from toolcrib.disclosure.profiles import build
from toolcrib.errors import ConfigError
from toolcrib.workflows.spec import read_workflow

WRONG = "wrong_key"
KEY = "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

EVERYTHING: Mapping[str, Any] = {
    "servers": {
        "local": {
            "command": "x",
            "env": {"A": "b"},
            "annotations": {"t": {"readOnlyHint": True}},
            "background_after": {"t": 3},
        },
        "far": {"url": "https://h/mcp", "headers": {"A": "b"}, "auth": {"type": "oauth", "client_id": "us"}},
    },
    "sources": {
        "openapi": {
            "shop": {
                "spec": "shop.json",
                "auth": [{"type": "bearer", "token": "t"}, {"type": "basic", "username": "u", "password": "p"}],
                "headers": {"A": "b"},
                "annotations": {"t": {"readOnlyHint": True}},
            }
        }
    },
    "profile": "mine",
    "profiles": {"mine": {"extends": "tiered", "names": {"seek": {"tool": "grep", "args": {"a": "b"}}}}},
    "guard": "on",
    "mode": "careful",
    "modes": {"careful": {"read": "allow", "tools": {"t": "ask"}}},
    "rules": {"deny": ["t"]},
    "identities": {"ada": {"profile": "flat", "rules": {"deny": ["t"]}, "limits": {"calls_per_tool": {"t": 1}}}},
    "limits": {"calls_per_tool": {"t": 1}},
    "approval_wait": 5,
    "approvals": {"webhook": {"url": "https://h/hook"}},
    "jobs": {"retries": {"attempts": 2}},
    "tool_permissions": {"t": "ask"},
    "token": "t0ken-t0ken",
    "admin_token": "t1ken-t1ken",
    "tokens": [{"token": "t2ken-t2ken"}],
    "registration": {"accept": True},
    "host": "127.0.0.1",
    "port": 0,
    "hosts": ["crib.example.org"],
    "origins": ["https://chat.example.org"],
    "drain": "30s",
    "ready_timeout": 3,
    "first_list_timeout": "2s",
    "no_prefix": False,
    "accept": True,
    "builtins": False,
    "redact": ["secret"],
    "catalogs": [{"file": "capabilities.yaml"}],
    "chat": {"mode": "cautious"},
    "skills": {"project": True},
    "ranking": {"embedder": "minilm"},
    "telemetry": {"content": False},
    "budgets": {"session": {"calls": 1}, "identity": {"calls": 1}, "tools": {"t": {"calls": 1}}},
    "lock": "lock.json",
    "plugins": {"config": {"theirs": {"free": {"as": "air"}}}},
    "tools": {
        "api": {"shop": {"url": "https://h", "headers": {"A": "b"}}},
        "git": {"tokens": {"h": "t"}},
        "lsp": {"servers": {"py": {"command": ["x"], "settings": {"free": {"as": "air"}}, "environment": {"A": "b"}}}},
        "messaging": {"channels": {"ops": "mailto://h"}},
        "notebook": {"python": "/usr/bin/python3"},
        "references": {"folders": ["docs"]},
        "services": {"credentials": {"h": {"secret": "s", "url": "https://h"}}},
        "settings": {"backends": {"a": "p:m"}},
        "templates": {"index": "i.yaml"},
        "web": {"search": {"brave_key": "k"}},
    },
    "workflows": {
        "two": {
            "description": "Two calls.",
            "steps": {"a": {"tool": "t", "arguments": {"x": 1}}},
        }
    },
    "versions": {"t": "1"},
    "workspace": {"roots": ["."]},
    "shell": {"network": False},
    "store": {"url": "postgresql://u@h/d", "key": KEY},
    "records": {"keep": "90d"},
    "results": {"keep": "7d"},
    "daemon": {"idle": "1h"},
    "memory": {"budget": "256MiB"},
    "untrusted": {"trusted": ["t"]},
}

NAMES = (
    # Mappings whose keys are the user's own names.
    "servers",
    "servers.local.env",
    "servers.local.annotations",
    "servers.local.background_after",
    "servers.far.headers",
    "sources.openapi",
    "sources.openapi.shop.headers",
    "sources.openapi.shop.annotations",
    "profiles",
    "profiles.mine.names",
    "profiles.mine.names.seek.args",
    "modes",
    "modes.careful.tools",
    "identities",
    "identities.ada.limits.calls_per_tool",
    "limits.calls_per_tool",
    "tool_permissions",
    "budgets.tools",
    "plugins.config",
    "plugins.config.theirs",
    "plugins.config.theirs.free",
    "tools",
    "tools.api",
    "tools.api.shop.headers",
    "tools.git.tokens",
    "tools.lsp.servers",
    "tools.lsp.servers.py.settings",
    "tools.lsp.servers.py.settings.free",
    "tools.lsp.servers.py.environment",
    "tools.messaging.channels",
    "tools.services.credentials",
    "tools.settings.backends",
    "workflows",
    "workflows.two.steps",
    "workflows.two.steps.a.arguments",
    "versions",
)


def mappings(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to every mapping in `value`."""
    if isinstance(value, Mapping):
        yield path
        for key, inner in cast("Mapping[str, Any]", value).items():
            yield from mappings(inner, (*path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(cast("list[Any]", value)):
            yield from mappings(inner, (*path, place))


PLACES = [path for path in mappings(EVERYTHING) if ".".join(map(str, path)) not in NAMES]


def written(file: Path, wrong: tuple[str | int, ...] | None) -> int:
    """Write everything into `file`, with a wrong key in the mapping at `wrong`; return the line of that key."""
    whole: Any = deepcopy(dict(EVERYTHING))
    if wrong is not None:
        at = whole
        for step in wrong:
            at = at[step]
        at[WRONG] = 1
    text: str = yaml.dump(whole, Dumper=yaml.CSafeDumper, sort_keys=False)
    file.write_text(text)
    return next((number for number, line in enumerate(text.splitlines(), 1) if WRONG in line), 0)


def complaints(file: Path) -> list[str]:
    """Return what is said of the file, by whoever reads each part of it."""
    try:
        settings = load([file], environ={"HOME": str(file.parent)}, cwd=file.parent)
        for profile in settings.disclosure.profiles:
            build({"name": profile.name, **profile.values}, file=profile.file)
    except ConfigError as error:
        return [str(error)]
    found = [problem.message for problem in settings.problems]
    for workflow in settings.sources.workflows:
        try:
            read_workflow(workflow.name, workflow.values)
        except ConfigError as error:
            found.append(f"{workflow.file}: {error}")
    return found


def test_everything_that_a_file_may_say_is_here_and_right(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    written(file, None)

    assert EVERYTHING.keys() == {*KEYS, "servers", "sources"}
    assert complaints(file) == []


@pytest.mark.slow
def test_a_key_that_nothing_reads_is_named_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    for path in PLACES:
        written(file, path)
        found = complaints(file)
        assert len(found) == 1, path
        assert WRONG in found[0], path
        assert found[0].startswith(f"{file}:"), path


@pytest.mark.parametrize(
    ("path", "near"),
    [(("limits",), ("timeot", "timeout")), (("tools", "web"), ("robot", "robots")), (("tools",), ("wbe", "web"))],
)
def test_the_nearest_key_is_offered(tmp_path: Path, path: tuple[str, ...], near: tuple[str, str]) -> None:
    file = tmp_path / "config.yaml"
    value: Any = {near[0]: {}}
    for step in reversed(path):
        value = {step: value}
    file.write_text(yaml.safe_dump(value))

    with pytest.raises(ConfigError) as caught:
        load([file], environ={}, cwd=tmp_path)

    line = len(path) + 1
    assert str(caught.value).startswith(f"{file}:{line}: {'.'.join((*path, near[0]))}: unknown ")
    assert str(caught.value).endswith(f"did you mean {near[1]!r}?")


def test_a_wrong_key_stops_its_server_and_its_api_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    line = written(file, ("servers", "far", "auth"))

    settings = load([file], environ={"HOME": str(tmp_path)}, cwd=tmp_path)

    assert [spec.name for spec in settings.sources.servers] == ["local"]
    assert [spec.name for spec in settings.sources.openapi] == ["shop"]
    assert line > 1


def test_settings_of_a_plugin_are_taken_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("tools: {greenhouse: {pumps: {north: 1}}}\n")

    assert load([file], environ={}, cwd=tmp_path).tools == {"greenhouse": {"pumps": {"north": 1}}}


def test_data_is_held_to_the_same_keys_as_a_file() -> None:
    servers = {"a": {"command": "x", "untrusted": True}, "b": {"command": "x"}}

    specs, problems = servers_in({"mcpServers": servers}, {})

    assert [spec.name for spec in specs] == ["b"]
    assert [(problem.source, problem.code) for problem in problems] == [("a", "bad_config")]
    assert problems[0].message.startswith("mcpServers.a.untrusted: unknown key")


@pytest.mark.parametrize(
    ("text", "place"),
    [("capabilities: []\n", "names under `catalogs`"), ("openapi: 3.1.0\ninfo: {}\n", "`toolcrib add openapi FILE`")],
)
def test_a_file_of_another_kind_is_told_where_it_belongs(tmp_path: Path, text: str, place: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load([file], environ={}, cwd=tmp_path)
    assert place in str(caught.value).splitlines()[0]


def test_an_embedder_that_does_not_exist_is_a_problem_and_the_rest_counts(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("ranking: {embedder: minilmm}\nmode: plan\n")

    settings = load([file], environ={}, cwd=tmp_path)

    assert [(problem.source, problem.message) for problem in settings.problems] == [
        ("ranking", "no embedder and no folder is named 'minilmm'; there are: minilm")
    ]
    assert settings.policy.mode == "plan"


def test_a_key_of_the_other_kind_of_server_is_named_with_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "servers:\n  a:\n    command: x\n    url: https://h/mcp\n  b: {url: https://h/mcp, env: {A: b}, args: []}\n"
    )

    settings = load([file], environ={}, cwd=tmp_path)

    assert [spec.transport for spec in settings.sources.servers] == ["stdio", "http"]
    assert [(problem.code, problem.message) for problem in settings.problems] == [
        ("notice", f"{file}:4: servers.a.url: has no effect on a server of type stdio"),
        ("notice", f"{file}:5: servers.b.env: has no effect on a server of type http"),
    ]
