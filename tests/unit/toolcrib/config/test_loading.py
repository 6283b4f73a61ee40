"""Configuration files become settings; what cannot be taken is named with its file, line and key."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from toolcrib.config import Directories, load, servers_in
from toolcrib.config.trust import Trust
from toolcrib.core.events import Problem
from toolcrib.core.session import Limits
from toolcrib.core.settings import identity_of
from toolcrib.errors import ConfigError
from toolcrib.mcp.client.spec import ServerSpec
from toolcrib.policy.modes import MODES, Mode

EVERYTHING = """\
servers:
  git:
    command: uvx
    args: [mcp-server-git, "--repository=${REPO}", "${MODE:-fast}", "$HOME $${REPO} ${x:0:3}"]
    env: {GIT_TOKEN: "${TOKEN}", LEVEL: 007, VERSION: 1.10, DEBUG: true, EMPTY: "${NOTHING:-}"}
    inherit_env: true
    cwd: work
    timeout: 30000
    disabled_tools: [git_reset]
    annotations: {git_commit: write}
  web:
    url: https://mcp.example.com/mcp
    headers: {Authorization: "Bearer ${TOKEN}"}
    relay: false
profile: flat
mode: autonomous
rules:
  deny: [git__git_reset]
  allow: ["git__*"]
limits: {timeout: 20, calls: 100, calls_per_tool: {git__git_commit: 3}}
token: ${TOKEN}
port: 0
no_prefix: true
accept: true
builtins: false
redact: ["${TOKEN}", another secret]
"""

ENVIRON = {"HOME": "/u/ann", "PATH": "/usr/bin", "REPO": "/src", "TOKEN": "tok-123456789"}


def test_a_yaml_file_says_everything(tmp_path: Path) -> None:
    file = _write(tmp_path / "config.yaml", EVERYTHING)

    settings = load([file], environ=ENVIRON, cwd=tmp_path)

    git = ServerSpec(
        name="git",
        transport="stdio",
        command="uvx",
        args=("mcp-server-git", "--repository=/src", "fast", "$HOME ${REPO} ${x:0:3}"),
        env={"GIT_TOKEN": "tok-123456789", "LEVEL": "007", "VERSION": "1.10", "DEBUG": "true", "EMPTY": ""},
        inherit_env=True,
        cwd=str(tmp_path / "work"),
        timeout=30.0,
        tools_deny=("git_reset",),
        annotations={"git_commit": {"readOnlyHint": False, "destructiveHint": False}},
    )
    web = ServerSpec(
        name="web",
        transport="http",
        url="https://mcp.example.com/mcp",
        headers={"Authorization": "Bearer tok-123456789"},
        relay=False,
    )
    assert settings.sources.servers == (git, web)
    assert settings.problems == ()
    assert (settings.disclosure.profile, settings.policy.mode, settings.http.token, settings.http.port) == (
        "flat",
        "autonomous",
        "tok-123456789",
        0,
    )
    assert (settings.policy.rules.deny, settings.policy.rules.ask, settings.policy.rules.allow) == (
        ("git__git_reset",),
        (),
        ("git__*",),
    )
    assert settings.limits == Limits(timeout=20, calls=100, calls_per_tool={"git__git_commit": 3})
    assert (settings.sources.no_prefix, settings.sources.accept, settings.sources.builtins) == (True, True, False)
    assert settings.secrets == ("Bearer tok-123456789", "another secret", "tok-123456789")


def test_a_mode_of_ones_own_can_be_defined_and_used(tmp_path: Path) -> None:
    file = _write(tmp_path / "config.yaml", "modes: {careful: {read: ask, write: deny}}\nmode: careful\n")

    settings = load([file], environ={}, cwd=tmp_path)

    assert settings.policy.mode == "careful"
    assert settings.policy.modes == {
        **MODES,
        "careful": Mode(name="careful", read="ask", write="deny", destructive="ask"),
    }


def test_the_configuration_of_a_client_is_taken_for_its_servers_only(tmp_path: Path) -> None:
    text = '{"mode": "x", "numStartups": 3, "mcpServers": {"a": {"command": "x", "autoApprove": [], "env": {"K": 1}}}}'
    file = _write(tmp_path / "mcp.json", text)

    settings = load([file], environ=ENVIRON, cwd=tmp_path)

    expected = ServerSpec(name="a", transport="stdio", command="x", env={"K": "1"}, cwd=str(tmp_path))
    assert settings.problems == ()
    assert (settings.sources.servers, settings.policy.mode) == ((expected,), "cautious")


def test_later_files_win_by_server_and_by_key_and_a_hidden_server_is_reported(tmp_path: Path) -> None:
    first = _write(tmp_path / "1.yaml", "servers: {a: {command: one}, b: {command: b}}\nmode: manual\nport: 1\n")
    second = _write(tmp_path / "2.yaml", "servers: {a: {command: two}}\nmode: autonomous\nrules: {deny: [x]}\n")

    settings = load([first, second], {"port": 3, "mode": None}, ENVIRON, cwd=tmp_path)

    assert [(spec.name, spec.command) for spec in settings.sources.servers] == [("b", "b"), ("a", "two")]
    assert (settings.policy.mode, settings.http.port, settings.policy.rules.deny) == ("autonomous", 3, ("x",))
    message = f"{first}:1: not used, {second}:1 also has a server of this name and counts"
    assert settings.problems == (Problem(source="a", code="duplicate", message=message),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nmodee: x", ":2: modee: unknown key; did you mean 'mode'?"),
        ("Servers: {}", ":1: Servers: unknown key; did you mean 'servers'?"),
        ("servers:\na: {url: x}", ":2: a: unknown key: an MCP server stands below `servers`, indented"),
        ("servers: 3", ":1: servers: a mapping from a server's name to its entry was expected"),
        ("\n\nmode: [x]", ":3: mode: a string was expected"),
        ("token: ${UNSET}", ":1: token: the environment variable UNSET is not set: set it, or write ${UNSET:-default}"),
        ("port: 70000", ":1: port: a port from 0 (any free one) to 65535 was expected"),
        ("limits:\n  timeot: 3", ":2: limits.timeot: unknown key; did you mean 'timeout'?"),
        ("limits: {timeout: -3}", ":1: limits.timeout: a number above 0 was expected"),
        ("rules: {dney: [a]}", ":1: rules.dney: unknown key; did you mean 'deny'?"),
        ("rules:\n  deny:\n  - 3", ":3: rules.deny.0: a string was expected"),
        (
            "servers:\n a: {command: x}\n a: {command: y}",
            ":3: 'a' stands here a second time (first on line 2); rename or remove one",
        ),
        (
            "mode: cautios",
            (
                ":1: mode: there is no mode 'cautios', only cautious, autonomous, manual, plan, review, audit;"
                " did you mean 'cautious'?"
            ),
        ),
        (
            "profile: gatway\nmode: cautios",
            (
                ":2: mode: there is no mode 'cautios', only cautious, autonomous, manual, plan, review, audit;"
                " did you mean 'cautious'?\n{file}:1: profile: unknown profile 'gatway'; did you mean gateway?"
            ),
        ),
        (
            "mode: cautios\nmod: 3",
            (
                ":2: mod: unknown key; did you mean 'mode'?\n{file}:1: mode: there is no mode 'cautios', only cautious,"
                " autonomous, manual, plan, review, audit; did you mean 'cautious'?"
            ),
        ),
        ("modes:\n  mine: {raed: allow}", ":2: modes.mine.raed: unknown key; did you mean 'read'?"),
        ("accept: yes", ":1: accept: true or false was expected"),
        ("a: *x", ":1: aliases (*name) are not supported here: write the value out"),
        ("- a", ": a mapping of keys to values was expected"),
        ("a: [", ":2: this is not YAML: did not find expected node content"),
        ("a:\n  b: \x01", ":2: this is not YAML: unacceptable character #x0001"),
        ("a:\n\tb: 1", ":2: this is not YAML: a tab; lines are indented with spaces"),
    ],
)
def test_what_cannot_be_taken_is_named_with_file_line_and_key(tmp_path: Path, text: str, message: str) -> None:
    file = _write(tmp_path / "config.yaml", text)

    with pytest.raises(ConfigError) as caught:
        load([file], environ={}, cwd=tmp_path)

    assert str(caught.value).startswith(f"{file}{message.replace('{file}', str(file))}")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{comand: x}", "servers.bad.comand: unknown key; did you mean 'command'?"),
        ("{}", "servers.bad: has neither `command` (a program to start) nor `url` (a server to call)"),
        ("nonsense", "servers.bad: a mapping with `command` or `url`, or a URL, was expected"),
        ("{command: x, type: htp}", "servers.bad.type: one of stdio, http, sse was expected; did you mean 'http'?"),
        ("{type: http, command: x}", "servers.bad: a server of type http needs `url`"),
        ("{url: ftp://x}", "servers.bad.url: an http:// or https:// URL was expected"),
        (
            '{url: "http://x", headers: {X-A: "a\\r\\nX-Evil: 1"}}',
            "servers.bad.headers: the value of 'X-A' can only hold printable ASCII",
        ),
        (
            '{url: "http://x", headers: {"X-A\\r\\nX-Evil": "1"}}',
            "servers.bad.headers: 'X-A\\r\\nX-Evil' is not the name of a header",
        ),
        ("{command: x, args: y}", "servers.bad.args: a list of strings was expected"),
        ("{command: x, args: [[]]}", "servers.bad.args.0: a string was expected"),
        ("{command: x, env: [a]}", "servers.bad.env: a mapping of strings was expected"),
        (
            "{command: x, timeout: 1e999}",
            "servers.bad.timeout: a number of seconds above 0, or a time such as 90s or 1h, was expected",
        ),
        (
            "{command: x, timeout: 0}",
            "servers.bad.timeout: a number of seconds above 0, or a time such as 90s or 1h, was expected",
        ),
        ("{command: x, disabled: 1}", "servers.bad.disabled: true or false was expected"),
        (
            "{command: x, annotations: {t: {readOnly: true}}}",
            "annotations.t.readOnly: unknown key; did you mean 'readOnlyHint'?",
        ),
        (
            "{command: x, env: {A: '${UNSET}'}}",
            "servers.bad.env.A: the environment variable UNSET is not set: set it, or write ${UNSET:-default}",
        ),
    ],
)
def test_a_server_that_cannot_be_taken_is_a_problem_and_the_others_work(
    tmp_path: Path, entry: str, message: str
) -> None:
    file = _write(tmp_path / "config.yaml", f"servers:\n  bad: {entry}\n  good: {{command: x}}\n")

    settings = load([file], environ={}, cwd=tmp_path)

    assert [spec.name for spec in settings.sources.servers] == ["good"]
    assert [(problem.source, problem.code) for problem in settings.problems] == [("bad", "bad_config")]
    assert message in settings.problems[0].message
    assert settings.problems[0].message.startswith(f"{file}:2: ")


def test_a_server_that_is_switched_off_is_neither_there_nor_a_problem(tmp_path: Path) -> None:
    file = _write(
        tmp_path / "config.yaml", "servers: {a: {command: x, enabled: false}, b: {url: 'http://x/', disabled: true}}"
    )

    settings = load([file], environ={}, cwd=tmp_path)

    assert (settings.sources.servers, settings.problems) == ((), ())


@pytest.mark.parametrize("given", ["mcp.json", None, 3, [{}], {}, {"mcpServers": ["a"]}])
def test_servers_that_are_no_mapping_are_a_configuration_error(given: Any) -> None:
    with pytest.raises(ConfigError, match="`mcpServers`"):
        servers_in(given, {})


def test_a_missing_type_is_told_by_command_or_url_and_every_spelling_is_known() -> None:
    config = {
        "mcpServers": {
            "a": {"command": "x"},
            "b": {"url": "http://h/mcp"},
            "c": {"type": "sse", "url": "http://h/sse"},
            "d": {"type": "streamable-http", "url": "http://h/mcp"},
            "e": {"serverUrl": "http://h/mcp"},
            "f": {"command": ["npx", "-y", "pkg"]},
        }
    }

    specs, problems = servers_in(config, {}, cwd="/w")

    assert problems == []
    assert [(spec.name, spec.transport) for spec in specs] == [
        ("a", "stdio"),
        ("b", "http"),
        ("c", "sse"),
        ("d", "http"),
        ("e", "http"),
        ("f", "stdio"),
    ]
    assert (specs[5].command, specs[5].args) == ("npx", ("-y", "pkg"))


def test_a_project_file_counts_only_while_it_says_what_was_confirmed(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "home")}
    project = tmp_path / "project"
    file = _write(project / ".toolcrib" / "config.yaml", "servers: {a: {command: evil}}\n")
    trust = Trust(Directories.of(environ))

    before = load(environ=environ, cwd=project / "deep")
    trust.confirm([(file, file.read_bytes())])
    (project / "deep").mkdir()
    confirmed = load(environ=environ, cwd=project / "deep")
    _write(file, "servers: {a: {command: worse}}\n")
    changed = load(environ=environ, cwd=project)

    assert (before.sources.servers, [problem.code for problem in before.problems]) == ((), ["untrusted"])
    assert [(spec.command, spec.cwd) for spec in confirmed.sources.servers] == [("evil", str(project))]
    assert (changed.sources.servers, [problem.code for problem in changed.problems]) == ((), ["untrusted"])


@pytest.mark.parametrize("linked", [".toolcrib", ".toolcrib/config.yaml"])
def test_what_was_confirmed_in_one_project_counts_in_no_other_that_links_to_it(tmp_path: Path, linked: str) -> None:
    environ = {"HOME": str(tmp_path / "home")}
    file = _write(tmp_path / "ours" / ".toolcrib" / "config.yaml", "mode: autonomous\n")
    Trust(Directories.of(environ)).confirm([(file, file.read_bytes())])
    link = tmp_path / "theirs" / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "ours" / linked)
    (tmp_path / "alias").symlink_to(tmp_path / "ours")

    ours, alias, theirs = (load(environ=environ, cwd=tmp_path / name) for name in ("ours", "alias", "theirs"))

    assert [one.policy.mode for one in (ours, alias, theirs)] == ["autonomous", "autonomous", "cautious"]
    assert [problem.code for problem in theirs.problems] == ["untrusted"]


def test_the_users_own_file_is_read_without_being_named_and_its_servers_run_at_home(tmp_path: Path) -> None:
    _write(tmp_path / "xdg" / "toolcrib" / "config.yaml", "servers: {a: {command: x}}\n")
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}

    settings = load(environ=environ, cwd=tmp_path)

    assert [(spec.name, spec.cwd) for spec in settings.sources.servers] == [("a", str(tmp_path))]


def test_the_digest_follows_everything_that_changes_what_is_served(tmp_path: Path) -> None:
    file = _write(tmp_path / "config.yaml", "servers: {a: {command: x, env: {T: '${TOKEN}'}}}\n")

    def digest(token: str = "one", **overrides: object) -> str:
        return load([file], overrides, {"TOKEN": token}, cwd=tmp_path).digest()

    assert digest() == digest()
    assert len({digest(), digest("two"), digest(mode="manual"), digest(accept=True), digest(profile="flat")}) == 5


@pytest.mark.parametrize(("inherit", "expected"), [("true", 4), ("false", 1)])
def test_where_a_server_inherits_the_environment_clients_with_other_credentials_or_accounts_share_no_daemon(
    tmp_path: Path, inherit: str, expected: int
) -> None:
    file = _write(tmp_path / "config.yaml", f"servers: {{a: {{command: x, inherit_env: {inherit}}}}}\n")

    def digest(**environ: str) -> str:
        return load([file], {}, {"HOME": str(tmp_path), "WINDOWID": "1", **environ}, cwd=tmp_path).digest()

    assert digest() == digest(WINDOWID="2", STARSHIP_SESSION_KEY="2", XDG_ACTIVATION_TOKEN="2")
    others = (digest(GITHUB_TOKEN="other"), digest(AWS_PROFILE="other"), digest(https_proxy="http://other"))
    assert len({digest(), *others}) == expected


def test_users_with_different_folders_of_configuration_or_plugins_share_no_daemon(tmp_path: Path) -> None:
    plain = _write(tmp_path / "config.yaml", "mode: manual\n")
    plugged = _write(tmp_path / "plugged.yaml", "mode: manual\nplugins: {folders: [mine]}\n")

    def digest(file: Path, **environ: str) -> str:
        return load([file], {}, {"HOME": str(tmp_path), **environ}, cwd=tmp_path).digest()

    folders = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR")
    digests = [digest(plain), digest(plugged), *(digest(plain, **{name: "/other"}) for name in folders)]

    assert len(set(digests)) == len(digests)


def test_a_value_without_a_digest_is_an_error_and_never_skipped() -> None:
    with pytest.raises(TypeError, match="no digest of a object"):
        identity_of({"provider": object()})


def test_without_the_guard_calls_run_unasked_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    plain = _write(tmp_path / "plain.yaml", "servers: {a: {command: x}}\n")
    said = _write(
        tmp_path / "said.yaml",
        "mode: manual\nbuiltins: true\nuntrusted: {ask: true, trusted: [a]}\nlimits: {timeout: 5}\n",
    )

    def facts(file: Path, **overrides: object) -> tuple[object, ...]:
        settings = load([file], overrides, {}, cwd=tmp_path)
        return (
            settings.policy.guard,
            settings.policy.mode,
            settings.sources.builtins,
            settings.policy.untrusted.ask,
            settings.limits.timeout,
        )

    assert facts(plain) == facts(plain, guard="on") == (True, "cautious", True, True, 60.0)
    assert facts(plain, guard="off") == facts(plain, guard=False) == (False, "autonomous", False, False, 600.0)
    assert facts(said, guard="off") == (False, "manual", True, True, 5)
    with pytest.raises(ConfigError, match="guard"):
        load([plain], {"guard": "of"}, {}, cwd=tmp_path)


def test_a_file_cannot_switch_the_guard_off(tmp_path: Path) -> None:
    off = _write(tmp_path / ".config" / "toolcrib" / "config.yaml", "guard: off\n")
    environ = {"HOME": str(tmp_path)}

    found = load((), {}, environ, cwd=tmp_path)
    as_option = load((), {"guard": "off"}, environ, cwd=tmp_path)

    assert (found.policy.guard, found.policy.mode, found.policy.untrusted.ask) == (True, "cautious", True)
    assert [(problem.source, problem.code) for problem in found.problems] == [(str(off), "notice")]
    assert (as_option.policy.guard, as_option.policy.mode) == (False, "autonomous")


def test_a_guarded_gateway_and_one_without_a_guard_share_no_daemon_whatever_else_is_said(tmp_path: Path) -> None:
    everything = "mode: autonomous\nbuiltins: false\nuntrusted: {ask: false}\nlimits: {timeout: 600}\n"
    file = _write(tmp_path / "config.yaml", everything)

    digests = {load([file], {"guard": guard}, {}, cwd=tmp_path).digest() for guard in ("on", "off")}

    assert len(digests) == 2


def test_secrets_are_never_part_of_how_settings_look(tmp_path: Path) -> None:
    file = _write(tmp_path / "config.yaml", EVERYTHING)

    assert "tok-123456789" not in repr(load([file], environ=ENVIRON, cwd=tmp_path)).replace(repr(ENVIRON), "")


def test_secrets_are_found_in_environment_headers_arguments_and_urls(tmp_path: Path) -> None:
    servers = {
        "a": {
            "command": "x",
            "args": ["--api-key", "arg-secret-1", "--token=arg-secret-2", "--verbose", "plain-value", "short"],
            "env": {"DB_PASSWORD": "env-secret", "HOST": "not-a-secret", "PIN_KEY": "abc"},
        },
        "b": {
            "url": "https://u:url-secret@h/mcp?api_key=query%2Fsecret&page=2000000",
            "headers": {"X-Api-Key": "header-secret", "Accept": "application/json"},
        },
    }
    file = _write(tmp_path / "mcp.json", json.dumps({"mcpServers": servers}))

    assert set(load([file], environ={}, cwd=tmp_path).secrets) == {
        "arg-secret-1",
        "arg-secret-2",
        "env-secret",
        "header-secret",
        "query/secret",
        "url-secret",
    }


def test_a_file_that_is_too_large_not_text_or_not_there_is_refused(tmp_path: Path) -> None:
    large = _write(tmp_path / "large.yaml", "# " + "x" * (1 << 20))
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("mode: x\ntoken: ä".encode("latin-1"))
    wide = tmp_path / "wide.json"
    wide.write_bytes("{}".encode("utf-16-le"))

    for file, message in (
        (large, "is larger than 1024 KiB, no configuration is"),
        (latin, r":2: is not UTF-8 text"),
        (wide, r":1: is not UTF-8 text"),
        (tmp_path / "no.yaml", "cannot be read: No such file or directory"),
    ):
        with pytest.raises(ConfigError, match=message):
            load([file], environ={}, cwd=tmp_path)


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_profile_that_does_not_exist_names_file_and_key_wherever_it_is_used(tmp_path: Path) -> None:
    file = _write(tmp_path / "config.yaml", "profile: mien\nprofiles: {mine: {extends: flat}}\n")
    identity = _write(tmp_path / "identity.yaml", "\nidentities: {ada: {profile: flatt}}\n")

    with pytest.raises(ConfigError) as default:
        load([file], environ={}, cwd=tmp_path)
    with pytest.raises(ConfigError) as given:
        load([identity], environ={}, cwd=tmp_path)

    assert str(default.value) == f"{file}:1: profile: unknown profile 'mien'; did you mean mine?"
    assert str(given.value) == f"{identity}:2: identities.ada.profile: unknown profile 'flatt'; did you mean flat?"


def test_a_pipe_without_a_writer_is_refused_and_one_with_a_writer_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "config.yaml"
    os.mkfifo(pipe)

    with pytest.raises(ConfigError) as refused:
        load([pipe], environ={}, cwd=tmp_path)
    writer = threading.Thread(target=pipe.write_text, args=("mode: plan",))
    writer.start()
    settings = load([pipe], environ={}, cwd=tmp_path)
    writer.join()

    assert str(refused.value) == f"{pipe}: is a pipe that no program writes to; name a file"
    assert settings.policy.mode == "plan"


def test_a_pipe_whose_writer_comes_at_the_end_of_the_wait_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "config.yaml"
    os.mkfifo(pipe)

    def late(*_: object) -> tuple[list[int], list[int], list[int]]:
        pipe.write_text("mode: plan")
        return [], [], []

    monkeypatch.setattr("select.select", late)
    assert load([pipe], environ={}, cwd=tmp_path).policy.mode == "plan"


def test_a_folder_that_may_not_be_looked_at_hides_no_configuration_and_has_no_daemons(tmp_path: Path) -> None:
    unreachable = "/" + "x" * 300  # to root every folder is open
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": unreachable, "XDG_RUNTIME_DIR": unreachable}

    with pytest.raises(ConfigError) as caught:
        load(environ=environ, cwd=tmp_path)

    assert caught.value.file == f"{unreachable}/toolcrib/config.yaml"
    assert Directories.of(environ).sockets == []
