"""Variables: what is replaced, what stays text, and what is an error that says how to give the value."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.config import load
from toolcrib.config.clients.discovery import discover
from toolcrib.config.directories import Directories, Places
from toolcrib.config.secrets import expand, read_secret, remove_secret, secret_names, write_secret
from toolcrib.config.servers import specs_of
from toolcrib.errors import ConfigError
from toolcrib.mcp.auth.login_store import system_keyring

system_keyring()  # importing the package `keyring` runs ldconfig: once, before the tests


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("${A}", "one"),
        ("x${A}y${A}", "xoneyone"),
        ("${NO:-two}", "two"),
        ("${EMPTY:-two}", "two"),
        ("${NO:-}", ""),
        ("${EMPTY}", ""),
        ("$A %A% {A}", "$A %A% {A}"),
        ("$${A} x$${A:-b}", "${A} x${A:-b}"),
        ("${NESTED}", "${A}"),
        ("${x:0:3} ${x%.*} ${#x} ${x:+y} ${1}", "${x:0:3} ${x%.*} ${#x} ${x:+y} ${1}"),
        ("${input:0:3} ${keyring:1}", "${input:0:3} ${keyring:1}"),
        ("${input:api-key}", "asked"),
    ],
)
def test_a_text_means(text: str, meant: str) -> None:
    environ = {"A": "one", "EMPTY": "", "NESTED": "${A}", "API_KEY": "asked"}

    assert expand(text, environ) == meant


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${NO}", "the environment variable NO is not set: set it, or write ${NO:-default}"),
        ("${env:A}", "${env:A} is not a variable here: write ${A}"),
        ("${command:pick}", "${command:pick} is not a variable here: write $${command:pick} for this text itself"),
        ("${user_config.key}", "${user_config.key} is not a variable here: "),
        ("${{ secrets.A }}", "${{ secrets.A }} is not a variable here: "),
        ("${keyring:1password}", "no secret '1password' is kept here: `toolcrib secret set 1password` asks for it"),
        ("${input:2fa}", "the input '2fa' has no value: `toolcrib secret set 2fa` asks for it once"),
        ("${keyring:db}", "no secret 'db' is kept here: `toolcrib secret set db` asks for it"),
        ("${input:db}", "the input 'db' (the password of the database) has no value: `toolcrib secret set db` asks"),
        ("${file:secret.txt}", "${file:secret.txt}: the path of the file must be absolute, or begin with ~/"),
        ("${file:/nowhere}", "${file:/nowhere}: the file cannot be read: No such file or directory"),
    ],
)
def test_a_text_without_a_value_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    environ, inputs = {"A": "one", "HOME": str(tmp_path)}, {"db": "the password of the database"}

    with pytest.raises(ConfigError) as caught:
        expand(text, environ, inputs=inputs)

    assert str(caught.value).startswith(message)


def test_a_secret_is_kept_where_only_its_user_reads_it_and_is_forgotten_again(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}

    write_secret("db", "first-secret", environ)
    where = write_secret("db", "hunter-two", environ)
    found = (read_secret("db", environ), secret_names(environ), expand("x ${keyring:db}", environ))
    modes = (Path(where).stat().st_mode & 0o777, Path(where).parent.stat().st_mode & 0o777)

    assert found == ("hunter-two", ["db"], "x hunter-two")
    assert modes == (0o600, 0o700)
    assert [remove_secret("db", environ) for _ in range(2)] == [True, False]
    assert (read_secret("db", environ), secret_names(environ)) == (None, [])
    with pytest.raises(ConfigError, match="is not a name"):
        write_secret("a\nb", "x", environ)


def test_a_secret_and_an_answered_input_are_masked_wherever_they_stand(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "REGION": "frankfurt", "API_KEY": "from-environment"}
    write_secret("db", "hunter-two", environ)
    file = tmp_path / "config.yaml"
    file.write_text("servers: {a: {command: x, args: ['${keyring:db}', '${input:region}${input:api-key}']}}\n")

    settings = load([file], environ=environ, cwd=tmp_path)

    assert settings.problems == ()
    assert settings.sources.servers[0].args == ("hunter-two", "frankfurtfrom-environment")
    assert set(settings.secrets) == {"hunter-two", "from-environment"}


def test_a_secret_in_a_file_is_read_from_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-a-file\n")

    assert expand("Bearer ${file:~/token}", {"HOME": str(tmp_path)}) == "Bearer from-a-file"


GEMINI = '{"mcpServers": {"a": {"command": "x", "args": ["$TOKEN", "${TOKEN}", "${NO:-d}"], "env": {"B": "$NO"}}}}'
CURSOR = (
    '{"mcpServers": {"a": {"command": "x", "args": ["${env:TOKEN}", "${workspaceFolder}${/}s", "${userHome}", "$X"]}}}'
)
CLAUDE = '{"mcpServers": {"a": {"command": "x", "args": ["${TOKEN}", "$TOKEN", "${NO:-d}"]}}}'
ODD = '{"mcpServers": {"a": {"command": "x", "args": ["${env:TOKEN}"]}, "b": {"command": "x"}}}'


@pytest.mark.parametrize(
    ("file", "text", "args", "problem"),
    [
        (".gemini/settings.json", GEMINI.replace("$NO", "$TOKEN"), ("tok", "tok", "d"), ""),
        (".gemini/settings.json", GEMINI, None, "mcpServers.a.env.B: the environment variable NO is not set"),
        (".cursor/mcp.json", CURSOR, ("tok", "{HERE}/s", "{HERE}", "$X"), ""),
        (".mcp.json", CLAUDE, ("tok", "$TOKEN", "d"), ""),
        (".mcp.json", ODD, None, "mcpServers.a.args.0: ${env:TOKEN} is not a variable here: write ${TOKEN}"),
    ],
)
def test_each_clients_own_variables_are_read_as_that_client_reads_them(
    tmp_path: Path, file: str, text: str, args: tuple[str, ...] | None, problem: str
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    environ = {"HOME": str(tmp_path), "TOKEN": "tok"}

    settings = load([path], environ=environ, cwd=tmp_path)

    found = {spec.name: spec.args for spec in settings.sources.servers}
    if args is not None:
        assert (found["a"], settings.problems) == (tuple(arg.replace("{HERE}", str(tmp_path)) for arg in args), ())
    else:
        assert "a" not in found
        assert [entry.source for entry in settings.problems] == ["a"]
        assert settings.problems[0].message.startswith(f"{path}:1: {problem}")


VSCODE = """{
  "inputs": [{"id": "gh-token", "type": "promptString", "description": "A token for GitHub", "password": true}],
  "servers": {
    "gh": {"command": "x", "env": {"TOKEN": "${input:gh-token}"}},
    "other": {"command": "y"}
  }
}"""


def test_an_input_stops_its_server_until_it_has_a_value_and_its_text_is_kept_when_it_is_taken_over(
    tmp_path: Path,
) -> None:
    environ = {"HOME": str(tmp_path / "home")}
    file = tmp_path / ".vscode" / "mcp.json"
    file.parent.mkdir()
    file.write_text(VSCODE)

    before = load([file], environ=environ, cwd=tmp_path)
    taken = discover(Places(directories=Directories.of(environ), environ=environ, project=tmp_path, platform="linux"))
    entry = next(server for server in taken.servers if server.name == "gh")
    write_secret("gh-token", "gho-123456", environ)
    after = load([file], environ=environ, cwd=tmp_path)
    specs, problems = specs_of([entry.entry("gh")], environ)

    how = "`toolcrib secret set gh-token` asks for it once, or set the environment variable GH_TOKEN"
    message = f"{file}:4: servers.gh.env.TOKEN: the input 'gh-token' (A token for GitHub) has no value: {how}"
    assert ([spec.name for spec in before.sources.servers], [problem.message for problem in before.problems]) == (
        ["other"],
        [message],
    )
    assert entry.value == {
        "command": "x",
        "env": {"TOKEN": "${input:gh-token}"},
        "inputs": {"gh-token": "A token for GitHub"},
        "projects": [str(tmp_path)],
        "cwd": str(tmp_path),
    }
    assert {spec.name: dict(spec.env) for spec in after.sources.servers} == {"gh": {"TOKEN": "gho-123456"}, "other": {}}
    assert ([dict(spec.env) for spec in specs], problems) == ([{"TOKEN": "gho-123456"}], [])
