"""`toolcrib add` and `remove`: one server, or one HTTP API, in our own configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer
from msgspec import Struct
from msgspec.structs import replace

from ...config import load
from ...config.confirmation import confirm, own_file
from ...config.directories import PROJECT_FOLDER
from ...config.loader import here
from ...config.own_file import add_api, add_servers, read_apis, read_servers, remove_api, remove_server
from ...config.servers import ConfiguredEntry, server_spec
from ...config.sources import api_spec
from ...core.json import as_mapping, fields_of
from ...core.patterns import regex
from ...core.similar import did_you_mean
from ...errors import CODES, UsageError
from ...net.guard import Guard
from ...net.urls import is_url
from ...sources.openapi.convert import Picks, convert
from ...sources.openapi.description import base_url_of, fetch, parse, placed
from ...sources.openapi.parameters import Sent
from ...telemetry.tokens import Tokenizer, tokenizer
from ..options import AsJson, run
from ..output import counted, emit_json, escape, note, out
from ..server_probe import Probe, described, probe

_VARIABLE: Final = regex(r"[A-Za-z_][A-Za-z0-9_]*")
_SAYS_NOTHING: Final = regex(r"['’]s?\b|\b(?:rest|api|openapi|official|spec|specification|v\d+)\b")
"""Parts of an API's title that do not distinguish it from others."""
_NOTHING: Final = Picks(exclude=("*",))

_SHOWN_PROBLEMS: Final = 5
"""Problems of one source that are shown when it is added."""

_InProject = Annotated[bool, typer.Option("--project", help=f"In {PROJECT_FOLDER}/config.yaml of this project.")]


class _NewApi(Struct, frozen=True, kw_only=True):
    """Options of the command line for an API."""

    spec: str
    """As it was typed."""
    name: str = ""
    base_url: str = ""
    auth_env: str = ""
    """The variable that holds the credential."""
    include: Sequence[str] = ()
    headers: Mapping[str, str]
    allow_private: bool = False


def _entry_of(new: _NewApi) -> tuple[str, dict[str, Any]]:
    """Return the name and the entry that the file gets, after a look at the description.

    Where the API is gets written down: a description that changes later does not move it. Raises `UsageError` for a
    description that cannot be read, or that leaves something open.
    """
    where = new.spec if is_url(new.spec) else str(here().project / placed(new.spec))
    allowed = Guard.of([where] if is_url(where) and new.allow_private else ())
    guard = replace(allowed, remedy="`--allow-private` beside it")
    document = parse(run(lambda: fetch(where, guard)), where)
    api = convert(document, _NOTHING, Sent())
    value: dict[str, Any] = {"spec": where, "base_url": new.base_url or base_url_of(api.servers, where)}
    if new.auth_env:
        value["auth"] = _auth(new.auth_env, api.schemes)
    if new.headers:
        value["headers"] = dict(new.headers)
    if new.include:
        value["include"] = list(new.include)
    if new.allow_private:
        value["allow_private"] = True
    return new.name or _name(api.title, where), value


def _auth(variable: str, schemes: Mapping[str, Any]) -> dict[str, str]:
    """The credential as the description's first usable scheme wants it; a bearer token where it names none."""
    if not _VARIABLE.fullmatch(variable):
        raise UsageError("--auth-env takes the name of a variable that holds the secret, not the secret itself")
    value = f"${{{variable}}}"
    for scheme in map(as_mapping, schemes.values()):
        if scheme.get("type") == "apiKey":
            return {"type": "api_key", "value": value, "name": str(scheme.get("name")), "in": str(scheme.get("in"))}
        if scheme.get("type") == "http" and str(scheme.get("scheme")).lower() == "basic":
            raise UsageError(
                "this API wants a user name and a password: add it without --auth-env, "
                "then write `auth: {type: basic, username: …, password: ${…}}` into its entry"
            )
        if scheme.get("type") in ("http", "oauth2", "openIdConnect"):
            break
    return {"type": "bearer", "token": value}


def _name(title: str, where: str) -> str:
    """A short name: the first part of the description's title that says something, else the host or the file."""
    parts = re.split(r" [-–—+|]|[:(]", _SAYS_NOTHING.sub(" ", title.lower()))
    plain = next(("_".join(words[:3]) for part in parts if (words := re.findall(r"[a-z0-9]+", part))), "")
    other = (urlsplit(where).hostname or "") if is_url(where) else Path(where).stem
    return plain or re.sub(r"[^a-z0-9]+", "_", other.lower()).strip("_") or "api"


def add(
    name: Annotated[str, typer.Argument(help="What to call the server here.")],
    command: Annotated[list[str], typer.Argument(metavar="(URL | -- COMMAND [ARG …])")],
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=value; ${VAR} is kept.")] = None,
    header: Annotated[list[str] | None, typer.Option("--header", "-H", help="'Name: value'; ${VAR} is kept.")] = None,
    transport: Annotated[str | None, typer.Option(help="http or sse, for a URL.")] = None,
    called: Annotated[str, typer.Option("--name", help="For `openapi`: what to call the API here.")] = "",
    base_url: Annotated[str, typer.Option("--base-url", help="For `openapi`: where the API is.")] = "",
    auth_env: Annotated[str, typer.Option("--auth-env", help="For `openapi`: the variable with its credential.")] = "",
    include: Annotated[
        list[str] | None, typer.Option("--include", help="For `openapi`: a tag, operation id or 'METHOD /path'.")
    ] = None,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="For `openapi`: it is at a loopback or private address.")
    ] = False,
    project: _InProject = False,
    accept: Annotated[bool, typer.Option(help="Take the tools' definitions as reviewed, as they are now.")] = True,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Start the server and list its tools.")] = True,
    as_json: AsJson = False,
    wait: Annotated[float, typer.Option("--wait", help="Seconds to wait for the server.", min=0)] = 20.0,
) -> None:
    """Add a server, or an API by its OpenAPI description, to your configuration and list its tools.

    Ends with status 7 when the server cannot be reached; the entry stays. With --no-check nothing is started, and
    the tools are withheld until `toolcrib accept`.

    toolcrib add git -- uvx mcp-server-git

    toolcrib add notion https://mcp.notion.com/mcp --header 'Authorization: Bearer ${NOTION_TOKEN}'

    toolcrib add openapi api.github.com.json --auth-env GITHUB_TOKEN
    """
    target = _target(project)
    settings = load()  # nothing is written beside what cannot be read
    if name == "openapi" and len(command) == 1 and transport is None and not env:
        new = _NewApi(
            spec=command[0],
            name=called,
            base_url=base_url,
            auth_env=auth_env,
            include=include or (),
            headers=_pairs(header, ":", "--header"),
            allow_private=allow_private,
        )
        name, value = _entry_of(new)
        _refuse_known(name, target)
        entry = ConfiguredEntry(name=name, value=value, key="sources.openapi", base=str(target.parent))
        servers, apis = [], [api_spec(entry, here().environ)]
    elif any((called, base_url, auth_env, include, allow_private)):
        raise UsageError("--name, --base-url, --auth-env, --include and --allow-private are for `toolcrib add openapi`")
    else:
        value = _value(command, _pairs(env, "=", "--env"), _pairs(header, ":", "--header"), transport)
        _refuse_known(name, target)
        base = target.parent.parent if project else here().directories.home
        entry = ConfiguredEntry(name=name, value=value, base=str(base))
        servers, apis = [server_spec(entry, here().environ)], []
    if check:
        probed = probe(settings, servers, wait=wait, accept=accept, apis=apis)[name]
    else:
        probed = Probe(server=name, state="not checked")
    # Last: an interrupt while the server starts leaves nothing behind.
    written = add_api(target, name, value) if apis else add_servers(target, {name: value})
    if project:
        confirm(here().directories, [(target, written)], here().environ)
    _tell(probed, target, wait, as_json=as_json)


def remove(
    name: Annotated[str, typer.Argument(help="The server's name here.")],
    project: _InProject = False,
    as_json: AsJson = False,
) -> None:
    """Remove a server or an API from your configuration."""
    target = _target(project)
    servers, apis = read_servers(target), read_apis(target)
    if name not in (*servers, *apis):
        raise UsageError(f"{target} has no server {name!r}{did_you_mean(name, (*servers, *apis))}")
    written = remove_server(target, name) if name in servers else remove_api(target, name)
    if project:
        places = here()
        confirm(places.directories, [(target, written)], places.environ)
    if as_json:
        emit_json({"server": name, "file": str(target)})
    else:
        out(escape(f"removed {name} from {target}"))
        _tell_when()


def _refuse_known(name: str, target: Path) -> None:
    for what, known in (("a server", read_servers(target)), ("an API", read_apis(target))):
        if name in known:
            raise UsageError(f"{target} has {what} {name} already; `toolcrib remove {quote(name)}` takes it out")


def _target(project: bool) -> Path:
    places = here()
    return own_file(places.directories, places.project, project=project)


def _value(
    command: list[str], env: Mapping[str, str], headers: Mapping[str, str], transport: str | None
) -> dict[str, Any]:
    """The entry as it is written to the file."""
    if command[0].startswith(("http://", "https://")):
        if len(command) > 1 or env:
            raise UsageError("a URL takes neither arguments nor --env; a program stands behind --")
        value: dict[str, Any] = {"type": transport} if transport else {}
        return value | {"url": command[0]} | ({"headers": dict(headers)} if headers else {})
    if "://" in command[0]:
        raise UsageError(f"{command[0]!r} is not the URL of a server, which begins with https:// or http://")
    if headers or transport:
        raise UsageError(f"--header and --transport are for a URL; {command[0]!r} is a program")
    value = {"command": command[0]}
    if command[1:]:
        value["args"] = command[1:]
    return value | ({"env": dict(env)} if env else {})


def _pairs(given: Iterable[str] | None, separator: str, option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given or ():
        name, found, value = text.partition(separator)
        if not found or not name.strip():
            raise UsageError(f"{option} takes NAME{separator}value, not {name!r}")
        pairs[name.strip()] = value.strip() if separator == ":" else value
    return pairs


def _tell(probed: Probe, target: Path, wait: float, *, as_json: bool) -> None:
    counter = tokenizer()
    failed = probed.state not in ("ready", "not checked") and not probed.state.startswith("needs_login")
    if as_json:
        emit_json({**fields_of(probed), "file": str(target), "tokenizer": counter.name})
    else:
        out(escape(f"added {probed.server} to {target}: {described(probed, wait)}"))
        _tell_tools(probed, counter)
        _tell_when()
    if failed:
        note(f"{probed.server} stays in the configuration; `toolcrib remove {quote(probed.server)}` takes it out")
        raise typer.Exit(CODES["unavailable"].exit)


def _tell_when() -> None:
    """Say when connected clients have the change, where a daemon may serve some: it keeps what it has read."""
    if here().directories.sockets:
        note("connected clients follow when they reconnect")


def _tell_tools(probed: Probe, counter: Tokenizer) -> None:
    if probed.state == "not checked":
        note(
            f"`toolcrib accept {probed.server}` takes its tools' definitions as reviewed; they are withheld until then"
        )
        return
    if probed.state.startswith("needs_login"):
        note(f"`toolcrib login {probed.server}` logs in")
    if not probed.tools and probed.state != "ready":
        return
    out(f"{counted(probed.tools, 'tool')}, {counter.shown(probed.tokens)} definition tokens ({counter.name})")
    for text in probed.problems[:_SHOWN_PROBLEMS]:
        note(text)
    if len(probed.problems) > _SHOWN_PROBLEMS:
        note(f"and {len(probed.problems) - _SHOWN_PROBLEMS} more: `toolcrib tools {quote(probed.server)}` names them")
    if probed.accepted:
        whose = "all other" if probed.problems else "their"
        note(f"{whose} definitions count as reviewed, as they are now; a change will be withheld until you accept it")
