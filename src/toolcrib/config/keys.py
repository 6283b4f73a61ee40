"""The keys of our configuration file besides the servers: what each takes, and how two files are put together."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, Final, cast, get_args

from ..core.budget import Budget
from ..core.permission import Effect
from ..core.session import Limits
from ..errors import ConfigError
from ..jobs.job import Engine, JobLimits
from ..policy.asking.settings import LONGEST, ApprovalSettings, Webhook
from ..policy.modes import Mode, read_permissions
from ..store.retention import Retention
from ..store.store import is_url
from .chatting import chat_key
from .guests import TOOL_KEYS, known_settings
from .profiles import GivenProfile, together
from .ruling import EFFECTS, Identity, read_rules
from .servers import did_you_mean
from .serving import registration_key, tokens_key
from .shells import shell_key
from .storing import KEEP_LEAST, ROWS_LEAST, StoreSpec, bytes_of, seconds_of, store_key
from .value import Value, Where
from .workflows import GivenWorkflow

__all__ = ["KEYS", "Where", "check", "merge"]

_LIMITS: Final = tuple(entry.name for entry in fields(Limits))
_IDENTITY: Final = tuple(entry.name for entry in fields(Identity))
_BUDGET: Final = tuple(entry.name for entry in fields(Budget))
_RETRIES: Final = ("attempts", "backoff")
_JOB_KEYS: Final = (*(entry.name for entry in fields(JobLimits) if entry.name not in _RETRIES), "retries")
_APPROVALS: Final = tuple(entry.name for entry in fields(ApprovalSettings))
_WEBHOOK: Final = tuple(entry.name for entry in fields(Webhook))
_ADDED: Final = (*EFFECTS, "broken_rules", "catalogs", "redact")
"""Lists that add up over files, first file first."""
_ONE_BY_ONE: Final = (
    "approvals",
    "budgets",
    "chat",
    "identities",
    "jobs",
    "limits",
    "modes",
    "plugins",
    "results",
    "telemetry",
    "tool_permissions",
    "tools",
    "untrusted",
    "versions",
    "workflows",
)
"""Mappings of which a later file replaces single entries."""


def check(values: Mapping[str, Any], environ: Mapping[str, str], where: Where = lambda path: "") -> dict[str, Any]:
    """Return `values` of our keys checked, expanded and with `rules` taken apart. Raises `ConfigError`.

    An unknown key is an error with the nearest one.
    """
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key not in KEYS:
            known = (*KEYS, "servers", "mcpServers")
            raise ConfigError(f"unknown key{did_you_mean(key, known)}", file=where((key,)), key=key)
        if value is not None:
            checked |= KEYS[key](Value(value, (key,), where, environ))
    return checked


def merge(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Put checked values together: later ones win, limits, modes and profiles one by one; rules and the like add up."""
    merged: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            if key in _ADDED:
                merged[key] = (*merged.get(key, ()), *value)
            elif key == "profiles":
                merged[key] = together(merged.get(key, {}), value)
            elif key in _ONE_BY_ONE:
                merged[key] = {**merged.get(key, {}), **value}
            else:
                merged[key] = value
    return merged


def _text(value: Value) -> dict[str, Any]:
    return {value.key: value.text()}


def _flag(value: Value) -> dict[str, Any]:
    if not isinstance(value.value, bool):
        raise value.wrong("true or false")
    return {value.key: value.value}


def _guard(value: Value) -> dict[str, Any]:
    """`on` and `off` are also text: JSON and the command line have no other way to write them."""
    words: Any = {True: True, False: False, "on": True, "off": False}
    if not isinstance(value.value, bool | str) or value.value not in words:
        raise value.wrong("on or off")
    return {value.key: words[value.value]}


def _seconds(value: Value) -> dict[str, Any]:
    return {value.key: value.number(whole=False)}


def _profiles(value: Value) -> dict[str, Any]:
    """What a profile may say is known to whoever builds it."""
    given: dict[str, GivenProfile] = {}
    for name, inner in value.members():
        said: Any = inner.value
        if not isinstance(said, Mapping):
            raise inner.wrong("a mapping of a profile's keys")
        keys = cast("Mapping[str, Any]", said)
        given[name] = GivenProfile(name=name, values=keys, file=value.where(inner.path))
    return {"profiles": given}


def _versions(value: Value) -> dict[str, Any]:
    return {"versions": {name: inner.text() for name, inner in value.members()}}


def _plugins(value: Value) -> dict[str, Any]:
    """What `config` says is for the plugins to understand; its texts are expanded like all others."""
    said: dict[str, Any] = {}
    for name, inner in value.members(("config", "disabled", "folders")):
        if name == "config":
            said[name] = {plugin: part.expanded() for plugin, part in inner.members()}
        else:
            said[name] = inner.texts()
    return {"plugins": said}


def _tools(value: Value) -> dict[str, Any]:
    """Settings of tools by category; those of the built-in ones have keys that are known."""
    said: dict[str, Any] = {}
    for name, inner in value.members():
        if not isinstance(inner.value, Mapping):
            raise inner.wrong("a mapping")
        if name not in TOOL_KEYS and (meant := did_you_mean(name, TOOL_KEYS)):
            raise ConfigError(f"unknown category{meant}", file=inner.where(inner.path), key=inner.key)
        _check_settings(inner)
        said[name] = inner.expanded()
    return {"tools": said}


def _check_settings(value: Value) -> None:
    """Raise `ConfigError` for a key that no built-in tool reads. What is no mapping where one should be is theirs."""
    for _, inner in value.members(known_settings([str(step) for step in value.path[1:]])):
        if isinstance(inner.value, Mapping):
            _check_settings(inner)


def _workflows(value: Value) -> dict[str, Any]:
    """What a workflow may say is known to whoever runs it."""
    return {
        "workflows": {
            name: GivenWorkflow(name=name, values=inner.value, file=value.where(inner.path))
            for name, inner in value.members()
        }
    }


def _port(value: Value) -> dict[str, Any]:
    port = value.value
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise value.wrong("a port from 0 (any free one) to 65535")
    return {value.key: port}


def _texts(value: Value) -> dict[str, Any]:
    return {value.key: value.texts()}


def _rules(value: Value) -> dict[str, Any]:
    rules, broken = _read_rules(value)
    said: dict[str, Any] = {effect: rules[effect] for effect in rules}
    return {**said, "broken_rules": broken} if broken else said


def _read_rules(value: Value) -> tuple[dict[Effect, tuple[str, ...]], tuple[str, ...]]:
    given = {key: inner.texts() for key, inner in value.members(EFFECTS) if inner.value is not None}
    home = value.environ.get("HOME", "")
    return read_rules(given, lambda effect, place: value.where((*value.path, effect, place)), home)


def _identities(value: Value) -> dict[str, Any]:
    identities: dict[str, Identity] = {}
    broken: tuple[str, ...] = ()
    for name, inner in value.members():
        said: dict[str, Any] = {}
        for key, one in inner.members(_IDENTITY):
            if key == "rules":
                said[key], more = _read_rules(one)
                broken += more
            elif key == "limits":
                said[key] = _limits_in(one)
            else:
                said[key] = one.texts() if key == "allowed_tools" else one.text()
        identities[name] = Identity(**said)
    return {"identities": identities, "broken_rules": broken} if broken else {"identities": identities}


def _modes(value: Value) -> dict[str, Any]:
    """What each says is checked here, for its line; what it extends may stand in another file (`resolve_modes`)."""
    modes: dict[str, dict[str, Any]] = {}
    for name, inner in value.members():
        said = {key: one.value for key, one in inner.members() if one.value is not None}
        with _located(value.where(inner.path)):
            Mode.from_mapping(name, {key: one for key, one in said.items() if key != "extends"})
        modes[name] = said
    return {"modes": modes}


@contextmanager
def _located(where: str) -> Generator[None]:
    """Put file and line before what somebody says who knows neither."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(str(error), file="" if str(error).startswith(where) else where) from error


def _permissions(value: Value) -> dict[str, Any]:
    with _located(value.where(value.path)):
        return {value.key: read_permissions(value.value, key=value.key)}


def _jobs(value: Value) -> dict[str, Any]:
    """`retries` holds `attempts` and `backoff`; everything else is a field of `JobLimits` under its own name."""
    said: dict[str, Any] = {}
    for key, inner in value.members(_JOB_KEYS):
        if inner.value is None:
            continue
        if key == "retries":
            given = [(name, number) for name, number in inner.members(_RETRIES) if number.value is not None]
            said |= {name: number.number(whole=name == "attempts") for name, number in given}
        elif key == "work":
            said[key] = _flag(inner)[inner.key]
        elif key == "engine":
            if inner.value not in get_args(Engine):
                raise inner.wrong(f"one of {', '.join(get_args(Engine))}")
            said[key] = inner.value
        else:
            said[key] = inner.number(whole=key not in ("age", "seconds", "max_seconds"))
    return {"jobs": said}


def _approvals(value: Value) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for key, inner in value.members(_APPROVALS):
        if inner.value is None:
            continue
        if key == "webhook":
            said[key] = _webhook(inner)
        elif key == "when_gone":
            if inner.value not in ("drop", "run"):
                raise inner.wrong("drop or run")
            said[key] = inner.value
        elif key == "wait":
            said[key] = _flag(inner)[inner.key]
        else:
            said[key] = inner.number(whole=key == "pending")
        if key == "expires" and said[key] > LONGEST:
            raise inner.wrong(f"at most {LONGEST:g} seconds")
    return {"approvals": said}


def _webhook(value: Value) -> Webhook:
    said: dict[str, Any] = {}
    for key, inner in value.members(_WEBHOOK):
        if inner.value is not None:
            said[key] = _flag(inner)[inner.key] if key == "allow_private" else inner.text()
    if not str(said.get("url", "")).startswith(("http://", "https://")):
        raise value.wrong("`url`, an http:// or https:// URL,")
    return Webhook(**said)


def _ranking(value: Value) -> dict[str, Any]:
    return {key: inner.text() for key, inner in value.members(("embedder",)) if inner.value is not None}


def _limits_in(value: Value) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for key, inner in value.members(_LIMITS):
        if key == "calls_per_tool":
            limits[key] = {tool: count.number(whole=True) for tool, count in inner.members()}
        elif inner.value is not None:
            limits[key] = inner.number(whole=key not in ("timeout", "max_timeout"))
    return limits


def _limits(value: Value) -> dict[str, Any]:
    return {"limits": _limits_in(value)}


def _catalogs(value: Value) -> dict[str, Any]:
    """Each is a file, or a mapping with `file`, `name` and `code`: false, or folders that modules may come from."""
    items: Any = value.value
    if not isinstance(items, list | tuple):
        raise value.wrong("a list of files")
    catalogs: list[dict[str, Any]] = []
    for place, item in enumerate(cast("list[Any]", items)):
        inner = value.inner(place, item)
        if not isinstance(item, Mapping):
            catalogs.append({"file": inner.text()})
            continue
        said = dict(inner.members(("file", "name", "code")))
        if "file" not in said:
            raise inner.wrong("`file`")
        entry: dict[str, Any] = {key: said[key].text() for key in ("file", "name") if key in said}
        if "code" in said:
            entry["code"] = said["code"].value if isinstance(said["code"].value, bool) else said["code"].texts()
        catalogs.append(entry)
    return {"catalogs": tuple(catalogs)}


def _skills(value: Value) -> dict[str, Any]:
    """True is the project's and the user's; a list is folders; a mapping says which of them."""
    given: Any = value.value
    if isinstance(given, bool):
        return {"skills": {"project": given, "user": given}}
    if isinstance(given, list):
        return {"skills": {"paths": value.texts()}}
    said: dict[str, Any] = {}
    for key, inner in value.members(("project", "user", "paths", "groups")):
        if key in ("project", "user"):
            said[key] = _flag(inner)[inner.key]
        else:
            said[key] = inner.texts() if key == "paths" else inner.text()
    return {"skills": said}


def _workspace(value: Value) -> dict[str, Any]:
    """A folder, or a mapping with folders and with what in them is not for tools."""
    if not isinstance(value.value, Mapping):
        return {"workspace": {"roots": (value.text(),)}}
    said = {key: inner for key, inner in value.members(("roots", "guarded", "hard_links")) if inner.value is not None}
    return {"workspace": {key: inner.texts() for key, inner in said.items()}}


def _budgets(value: Value) -> dict[str, Any]:
    """By holder: `session`, `identity`, and `tools` by name or pattern."""
    said: dict[str, Any] = {}
    for holder, inner in value.members(("session", "identity", "tools")):
        if inner.value is None:
            continue
        said[holder] = {name: _budget(of) for name, of in inner.members()} if holder == "tools" else _budget(inner)
    return {"budgets": said}


def _budget(value: Value) -> Budget:
    given = [(key, inner) for key, inner in value.members(_BUDGET) if inner.value is not None]
    return Budget(**{key: int(inner.number(whole=True)) for key, inner in given})


def _telemetry(value: Value) -> dict[str, Any]:
    """`otlp` is a collector's base URL, or true for what the environment says."""
    said: dict[str, Any] = {}
    for key, inner in value.members(("otlp", "service_name", "content")):
        if key == "content" or (key == "otlp" and isinstance(inner.value, bool)):
            said[key] = _flag(inner)[inner.key]
        elif inner.value is not None:
            said[key] = inner.text()
        if key == "otlp" and isinstance(said.get(key), str) and not said[key].startswith(("http://", "https://")):
            raise inner.wrong("the http:// or https:// URL of a collector, or true")
    return {"telemetry": said}


def _store(value: Value) -> dict[str, Any]:
    """A URL, or a mapping with `url` and `key`."""
    if not isinstance(value.value, Mapping):
        return {"store": StoreSpec(url=_store_url(value))}
    said: dict[str, Any] = {}
    for key, inner in value.members(("url", "key")):
        if inner.value is not None:
            said[key] = _store_url(inner) if key == "url" else store_key(inner.text())
        if said.get(key) == b"":
            raise inner.wrong("32 bytes in base64, such as `openssl rand -base64 32` makes,")
    return {"store": StoreSpec(**said)}


def _store_url(value: Value) -> str:
    if not is_url(text := value.text()):
        raise value.wrong("a URL postgresql://user:password@host/database")
    return text


def _records(value: Value) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for key, inner in value.members(("keep", "max_rows")):
        if inner.value is None:
            continue
        if key == "max_rows":
            said[key] = int(inner.number(whole=True))
            least: float = ROWS_LEAST
        else:
            seconds = seconds_of(inner.value) if isinstance(inner.value, str) else inner.number(whole=False)
            if seconds is None:
                raise inner.wrong("a time such as 90d, 12w or 36h")
            said[key], least = float(seconds), KEEP_LEAST
        if said[key] < least:
            raise inner.wrong("at least 1000 rows" if key == "max_rows" else "at least 1d")
    return {"records": Retention(**said)}


_MOST_WHOLE: Final = 16 * 1024 * 1024
"""As much as is parsed of one message of a server (`sources.mcp.limits.McpLimits.inline_bytes`)."""


def _results(value: Value) -> dict[str, Any]:
    """`keep` is a time, the others are sizes; a number is seconds or bytes."""
    said: dict[str, Any] = {}
    for key, inner in value.members(("pass_whole", "keep", "quota", "each")):
        if inner.value is None:
            continue
        if not isinstance(inner.value, str):
            said[key] = inner.number(whole=key != "keep")
        else:
            amount = seconds_of(inner.value) if key == "keep" else bytes_of(inner.value)
            if not amount:
                raise inner.wrong("a time such as 7d or 12h" if key == "keep" else "a size such as 256MiB or 2GiB")
            said[key] = amount
        if key == "pass_whole" and said[key] > _MOST_WHOLE:
            raise inner.wrong("at most 16MiB")
    return {"results": said}


def _untrusted(value: Value) -> dict[str, Any]:
    """Lists of tools and sources, by name or glob; `ask` switches off what is asked because of them."""
    said: dict[str, Any] = {}
    for key, inner in value.members(("ask", "trusted", "untrusted", "private", "outbound")):
        if inner.value is not None:
            said[key] = _flag(inner)[inner.key] if key == "ask" else inner.texts()
    return {"untrusted": said}


KEYS: Final[Mapping[str, Callable[[Value], dict[str, Any]]]] = {
    "profile": _text,
    "profiles": _profiles,
    "mode": _text,
    "modes": _modes,
    "rules": _rules,
    "identities": _identities,
    "limits": _limits,
    "approval_timeout": _seconds,
    "approvals": _approvals,
    "jobs": _jobs,
    "tool_permissions": _permissions,
    "token": _text,
    "admin_token": _text,
    "tokens": tokens_key,
    "registration": registration_key,
    "host": _text,
    "port": _port,
    "no_prefix": _flag,
    "accept": _flag,
    "guard": _guard,
    "builtins": _flag,
    "redact": _texts,
    "catalogs": _catalogs,
    "chat": chat_key,
    "skills": _skills,
    "ranking": _ranking,
    "telemetry": _telemetry,
    "budgets": _budgets,
    "lock": _text,
    "plugins": _plugins,
    "tools": _tools,
    "workflows": _workflows,
    "versions": _versions,
    "workspace": _workspace,
    "shell": shell_key,
    "store": _store,
    "records": _records,
    "results": _results,
    "untrusted": _untrusted,
}
"""Every key of our file besides `servers` (or `mcpServers`), and what reads it."""
