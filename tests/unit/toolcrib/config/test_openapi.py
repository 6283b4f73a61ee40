"""APIs in our configuration file: read with their secrets kept apart, refused one by one, written without a trace."""

from pathlib import Path
from typing import Any

import pytest

from toolcrib.config import Directories, Settings, load
from toolcrib.config.own_file import add_api, read_apis, remove_api
from toolcrib.config.trust import Trust
from toolcrib.errors import ConfigError
from toolcrib.sources.openapi.spec import ApiKey, ApiSettings, Basic, Bearer, ClientCredentials, OpenApiSpec
from unit.toolcrib.config.written import read

ENVIRON = {"HOME": "/nowhere", "TOKEN": "secret-token-1", "OTHER": "secret-other-2"}


def loaded(tmp_path: Path, text: str, **environ: str) -> Settings:
    return read(tmp_path, text, **{**ENVIRON, **environ})


def test_everything_that_can_be_said_of_an_api(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        """
sources:
  openapi:
    hub:
      spec: specs/hub.json
      base_url: https://api.hub.example/v1
      auth: {type: bearer, token: "${TOKEN}"}
      headers: {X-Version: 2022-11-28, X-Api-Key: "${OTHER}"}
      include: [issues, "GET /repos/*"]
      exclude: "*delete*"
      allow_private: true
      timeout: 20
      annotations: {search: read}
""",
    )

    assert settings.problems == ()
    assert settings.sources.openapi == (
        OpenApiSpec(
            name="hub",
            spec=str(tmp_path / "specs" / "hub.json"),
            settings=ApiSettings(
                base_url="https://api.hub.example/v1",
                auth=(Bearer(token="secret-token-1"),),
                headers={"X-Version": "2022-11-28", "X-Api-Key": "secret-other-2"},
                include=("issues", "GET /repos/*"),
                exclude=("*delete*",),
                allow_private=True,
                timeout=20.0,
                annotations={"search": {"readOnlyHint": True}},
            ),
        ),
    )
    assert set(settings.secrets) == {"secret-token-1", "secret-other-2"}
    assert "secret-token-1" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "auth"),
    [
        ("{type: basic, username: me, password: 0123456}", (Basic(username="me", password="0123456"),)),
        ("{type: api_key, value: '${TOKEN}'}", (ApiKey(value="secret-token-1"),)),
        (
            "[{type: api_key, value: v1, name: X-A, in: header}, {type: api_key, value: v2, name: b, in: query}]",
            (ApiKey(value="v1", name="X-A", place="header"), ApiKey(value="v2", name="b", place="query")),
        ),
        (
            "{type: oauth2, client_id: i, client_secret: s, token_url: 'https://t.example/x', scopes: [a, b]}",
            (ClientCredentials(client_id="i", client_secret="s", token_url="https://t.example/x", scopes=("a", "b")),),
        ),
        (
            "{type: oauth2, client_id: i, client_secret: s, client_auth: body}",
            (ClientCredentials(client_id="i", client_secret="s", client_auth="body"),),
        ),
    ],
)
def test_every_kind_of_credential(tmp_path: Path, text: str, auth: Any) -> None:
    settings = loaded(tmp_path, f"sources: {{openapi: {{a: {{spec: https://x.example/s.json, auth: {text}}}}}}}")

    assert (settings.sources.openapi[0].settings.auth, settings.sources.openapi[0].spec) == (
        auth,
        "https://x.example/s.json",
    )


@pytest.mark.parametrize(
    ("entry", "key", "reason"),
    [
        ("5", "", "a mapping with `spec` was expected"),
        ("{base_url: https://x.example}", ".spec", "is required"),
        ("{spec: a.json, base_ur: x}", ".base_ur", "unknown key; did you mean 'base_url'?"),
        ("{spec: a.json, base_url: ftp://x}", ".base_url", "an http:// or https:// URL"),
        ("{spec: a.json, base_url: https://u:p@x.example}", ".base_url", "without a password"),
        ("{spec: a.json, base_url: 'https://x.example?a=b'}", ".base_url", "without `?`"),
        ("{spec: a.json, base_url: 'http://[::1'}", ".base_url", "not a URL: Invalid IPv6 URL"),
        ("{spec: a.json, base_url: 'http://x.example:port'}", ".base_url", "not a URL: Port"),
        ("{spec: 'https://[::1/a.json'}", ".spec", "not a URL: Invalid IPv6 URL"),
        ("{spec: a.json, auth: {type: beare, token: x}}", ".auth.type", "did you mean 'bearer'?"),
        ("{spec: a.json, auth: {type: bearer}}", ".auth.token", "is required"),
        ("{spec: a.json, auth: {type: bearer, token: '${NOT_SET}'}}", ".auth.token", "NOT_SET is not set"),
        ("{spec: a.json, auth: [{type: basic, user: x}]}", ".auth.0.user", "did you mean 'username'?"),
        ("{spec: a.json, auth: {type: api_key, value: x, in: body}}", ".auth.in", "one of header, query, cookie"),
        ("{spec: a.json, auth: secret}", ".auth", "a mapping with `type`"),
        ("{spec: a.json, allow_private: 1}", ".allow_private", "true or false was expected"),
        ("{spec: a.json, headers: [x]}", ".headers", "a mapping was expected"),
        ('{spec: a.json, headers: {a: "b\\r\\nc"}}', ".headers", "the value of 'a' can only hold printable ASCII"),
        ('{spec: a.json, headers: {"X A": b}}', ".headers", "'X A' is not the name of a header"),
        ('{spec: a.json, headers: {"": b}}', ".headers", "'' is not the name of a header"),
        ('{spec: a.json, auth: {type: api_key, name: "K\\r\\nX", value: x}}', ".auth", "is not the name of a header"),
        ("{spec: a.json, auth: {type: api_key, in: header, name: K, value: ключ}}", ".auth", "printable ASCII"),
        ("{spec: a.json, auth: {type: bearer, token: ключ}}", ".auth.token", "printable ASCII"),
        ("{spec: a.json, timeout: -1}", ".timeout", "above 0"),
        ("{spec: a.json, annotations: {x: reed}}", ".annotations.x", "read, write, destructive or a mapping"),
    ],
)
def test_a_bad_entry_is_a_problem_with_its_place_and_hides_no_other(
    tmp_path: Path, entry: str, key: str, reason: str
) -> None:
    settings = loaded(tmp_path, f"sources:\n  openapi:\n    bad: {entry}\n    good: {{spec: a.json}}\n")

    (problem,) = settings.problems
    assert [spec.name for spec in settings.sources.openapi] == ["good"]
    assert (problem.source, problem.code) == ("bad", "bad_config")
    assert problem.message.startswith(f"{tmp_path / '0.yaml'}:3: sources.openapi.bad{key}: ")
    assert reason in problem.message


@pytest.mark.parametrize(
    ("entry", "is_taken"),
    [
        ("{spec: a.json, auth: {type: bearer, token: x}}", False),
        ("{spec: ../a.json, headers: {X-Key: x}}", False),
        ("{spec: a.json}", True),
        ("{spec: a.json, base_url: https://x.example, auth: {type: bearer, token: x}}", True),
        ("{spec: https://x.example/a.json, auth: {type: bearer, token: x}}", True),
    ],
)
def test_the_description_that_a_project_brings_does_not_say_where_credentials_go(
    tmp_path: Path, entry: str, is_taken: bool
) -> None:
    file = tmp_path / ".toolcrib" / "config.yaml"
    file.parent.mkdir()
    file.write_text(f"sources: {{openapi: {{a: {entry}}}}}\n")
    environ = {**ENVIRON, "HOME": str(tmp_path / "home")}
    Trust(Directories.of(environ)).confirm([(file, file.read_bytes())])

    settings = load(environ=environ, cwd=tmp_path)

    assert [spec.name for spec in settings.sources.openapi] == (["a"] if is_taken else [])
    assert [problem.code for problem in settings.problems] == ([] if is_taken else ["bad_config"])


def test_a_kind_of_source_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"0.yaml:2: sources.opnapi: unknown key; did you mean 'openapi'?"):
        loaded(tmp_path, "sources:\n  opnapi: {}\n")


def test_an_api_with_the_name_of_a_server_is_not_mounted_and_one_can_be_switched_off(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        "servers: {a: {command: x}}\n"
        "sources: {openapi: {a: {spec: a.json}, b: {spec: b, enabled: false}, c: {spec: c, disabled: true}}}\n",
    )

    assert settings.sources.openapi == ()
    assert [(problem.source, problem.code) for problem in settings.problems] == [("a", "duplicate")]


def test_the_later_of_two_files_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "1.yaml", tmp_path / "2.yaml"
    first.write_text("sources: {openapi: {a: {spec: one.json}}}")
    second.write_text("sources: {openapi: {a: {spec: two.json}}}")
    settings = load([first, second], environ=ENVIRON, cwd=tmp_path)

    assert [spec.spec for spec in settings.sources.openapi] == [str(tmp_path / "two.json")]
    assert [problem.code for problem in settings.problems] == ["duplicate"]


def test_another_secret_is_another_configuration_but_the_same_identity(tmp_path: Path) -> None:
    text = "sources: {openapi: {a: {spec: a.json, auth: {type: bearer, token: '${TOKEN}'}}}}"
    one, other = loaded(tmp_path, text), loaded(tmp_path, text, TOKEN="another-one")

    assert one.digest() != other.digest()
    assert one.sources.openapi[0].identity == other.sources.openapi[0].identity


def test_an_api_is_written_and_removed_and_the_rest_of_the_file_stays(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    before = "# mine\nmode: cautious  # careful\nservers:\n  a:\n    command: x\n"
    file.write_text(before)
    value = {"spec": "https://x.example/s.json", "auth": {"type": "bearer", "token": "${TOKEN}"}}

    add_api(file, "hub", value)
    assert file.read_text().startswith(before)
    assert read_apis(file) == {"hub": value}
    with pytest.raises(ConfigError, match="is there already"):
        add_api(file, "hub", value)
    remove_api(file, "hub")
    assert read_apis(file) == {}
    assert file.read_text().startswith(before)
    with pytest.raises(ConfigError, match="is not there"):
        remove_api(file, "hub")


def test_a_home_folder_that_nobody_has_is_a_file_that_is_not_there(tmp_path: Path) -> None:
    entries = "bad: {spec: ~nobody-has-this-name/a.json}, good: {spec: a.json}"
    catalogs = "catalogs: [{file: ~nobody-has-this-name/c.yaml}]"
    text = f"{catalogs}\nsources: {{openapi: {{{entries}}}}}\n"

    settings = loaded(tmp_path, text)

    assert [spec.spec for spec in settings.sources.openapi] == [
        str(tmp_path / "~nobody-has-this-name/a.json"),
        str(tmp_path / "a.json"),
    ]
    assert [catalog.path for catalog in settings.sources.catalogs] == [tmp_path / "~nobody-has-this-name/c.yaml"]
