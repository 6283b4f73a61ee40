"""Loader: from files, overrides and the environment to `Settings`. With the entry point, the only reader of the latter.

Without `files` three are looked for: the user's own, the project's `.toolcrib/config.yaml` and `.toolcrib/local.yaml`;
the project's only count once they are trusted. Files that are named count as trusted, and nothing else is read then.
Later files win, key by key and server by server; rules and values to redact add up. Overrides win over all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import filterfalse
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from ..catalog.names import unknown_name
from ..core.awaited_files import AWAITED
from ..core.document_tree import MAX_BYTES, Node
from ..core.events import Problem
from ..core.session import LOCAL, Limits
from ..core.settings import secret_texts
from ..disclosure.settings import BUILT_IN, seed_tools
from ..errors import ConfigError, ConfigErrors, UsageError
from ..mcp.client.launch_pins import MISSING, awaited_files, launch_pins
from ..mcp.client.spec import ServerSpec
from ..policy.modes import MODES, Mode, ModeSettings, resolve_modes
from ..policy.settings import Identity, RuleSettings
from ..policy.taint import Taint
from . import files as disk
from .client_entries import notices, translate
from .clients import CLIENT_FILES, inputs_of
from .directories import OF_PROJECT, PROJECT_FOLDER, Directories, Trust, config_files, here, project_root
from .keys import check, merge, tool_secrets
from .profiles import chosen, environment_values, found_profiles
from .secrets import kept_secrets, secret_values
from .servers import ConfiguredEntry, file_line, read_entries, server_spec
from .settings import Settings, telemetry_options, workspace_at, workspace_spec
from .sources import (
    KEY,
    api_secrets,
    api_spec,
    configured_source,
    is_api,
    placed,
    shipped_skills,
    skills_spec,
    source_entries,
)
from .validation import did_you_mean

__all__ = [
    "bare",
    "confirm",
    "here",
    "load",
    "load_gateway",
    "own_file",
    "servers_in",
    "specs_of",
]

_Result = TypeVar("_Result")
_SERVER_KEYS: Final = ("servers", "mcpServers")
_UNGUARDED: Final[Mapping[str, Any]] = {"mode": "autonomous", "builtins": False}
"""Defaults of `guard: off`, beside those of single entries in `_behind_client`."""
_WRITTEN: Final = ("args", "command", "cwd", "env", "environment", "envs", "headers", "http_headers", "url")
"""What is taken as it is written: a version 1.10 stays one."""


class _Part(Struct, frozen=True, kw_only=True):
    """The content of one file."""

    values: Mapping[str, Any]
    entries: tuple[ConfiguredEntry, ...]
    base: str
    """Where servers of this file run."""
    sources: tuple[ConfiguredEntry, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Of single entries; the others are taken."""
    secrets: tuple[str, ...] = ()
    """Values of `${keyring:…}` and `${input:…}` in it."""


class _Surroundings(Struct, frozen=True, kw_only=True):
    """Where the values come from."""

    directories: Directories
    environ: Mapping[str, str]
    files: Sequence[Path]
    problems: Sequence[Problem]
    secrets: Sequence[str]


def load(
    files: Sequence[str | Path] | None = (),
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    cwd: str | Path | None = None,
) -> Settings:
    """Return the settings of `files`, or of the files that are there when none is named; None reads no file at all.

    `overrides` has the keys of our YAML file; None stands for "not set". `environ` and `cwd` are the process's own when
    they are None. Raises `ConfigError` for a file that cannot be taken as a whole; a server that cannot is a `Problem`
    of the settings.
    """
    environ = here().environ if environ is None else environ
    folder = Path(cwd or here().project).absolute()
    directories = Directories.of(environ)
    problems: list[Problem] = []
    named = files is None or bool(files)
    found = [folder / os.path.expanduser(name) for name in files or ()]
    if not named:
        found = list(_trusted(directories, folder, problems))
    parts = _read_all(found, [_base(path, directories, folder, named=named) for path in found], environ)
    problems += [problem for part in parts for problem in part.problems]
    kept = [_guarded(part.values, path, problems) for path, part in zip(found, parts, strict=True)]
    bases = [Path(part.base) for part in parts]
    given = [_placed(one, path, base, named=named) for one, path, base in zip(kept, found, bases, strict=True)]
    keywords = _part_of(Node.of(overrides or {}), None, str(folder), environ)
    given.append(_placed(keywords.values, folder / "overrides", folder, named=True))
    folders = {} if named else found_profiles(directories, project_root(folder, directories.home), problems)
    of_environment = {} if files is None else environment_values(environ, problems)
    values = merge([of_environment, {"profiles": folders}, *given])
    values["profiles"] = tuple(values["profiles"].values())
    values["workflows"] = tuple(values.get("workflows", {}).values())
    values["skills"] = skills_spec(values.get("skills"), directories.home, folder)
    if not values.get("guard", True):
        values = _behind_client(values)
    if named and all(_is_foreign(path) for path in found):
        values.setdefault("builtins", False)  # another client's list of servers, or keywords: only what they name
    values["workspace"] = workspace_spec(values.get("workspace"), problems)
    by_file = [(str(path), one) for path, one in zip(found, given, strict=False)]
    values["modes"] = _modes(values, by_file)
    _check_profiles(values, by_file)
    problems += _broken_rules(values)
    parts.append(keywords)
    entries = _last([used for part in parts for entry in part.entries if (used := entry.at(folder))], problems)
    values["servers"], bad = specs_of(entries, environ)
    if not named:
        values["servers"] = _pinned(values["servers"], entries, directories, folder)
    others = _last([entry for part in parts for entry in part.sources], problems, "a source")
    others = list(_unclaimed(others, values["servers"], problems))
    values["openapi"], more = read_entries(filter(is_api, others), environ, api_spec)
    made, most = read_entries(filterfalse(is_api, others), environ, configured_source)
    values["configured"] = tuple(made)
    around = _Surroundings(
        directories=directories,
        environ=environ,
        files=found,
        problems=[*problems, *bad, *more, *most],
        secrets=[secret for part in parts for secret in part.secrets],
    )
    return _settings(values, around)


def load_gateway(
    files: Sequence[str | Path] | None = (),
    overrides: Mapping[str, Any] | None = None,
    *,
    cwd: str | Path | None = None,
    is_local: bool = True,
) -> Settings:
    """Return the settings of a gateway for MCP clients: built-in tools are left out unless a file chooses some.

    A profile of a seed brings that seed's own: it is for programs that were written for them. `is_local`: its clients
    are the user's own, with the mode and the profile of the identity `local`.
    """
    settings = load(files, overrides, cwd=cwd)
    if is_local:
        settings = settings.with_values(**_of_local(settings, overrides or {}))
    if "builtins" in settings.sources.model_fields_set:
        return settings
    profile = settings.disclosure.profile
    if profile == "selection" and settings.sources.skills is None:  # the only one that shows a skill as a tool
        settings = settings.with_values(skills=shipped_skills())
    return settings.with_values(builtins=seed_tools(profile) or False)


def _of_local(settings: Settings, overrides: Mapping[str, Any]) -> dict[str, str]:
    """Return mode and profile of the user's own clients, where the identity decides.

    A profile that an option names comes first, and so does a mode that is as strict as that of the identity.
    """
    policy = settings.policy
    identity = policy.identities.get(LOCAL, Identity.model_construct())
    values: dict[str, str] = {}
    if identity.profile and not overrides.get("profile"):
        values["profile"] = identity.profile
    if identity.mode:
        chosen = policy.modes[overrides.get("mode") or identity.mode]
        is_strict = chosen.is_as_strict_as(policy.modes[identity.mode])
        values["mode"] = chosen.name if is_strict else identity.mode
    return values


def bare() -> Settings:
    """Return the settings of an unconfigured crib: no files, no servers, no guests."""
    environ = dict(os.environ)
    telemetry = telemetry_options(None, environ)
    return Settings.of(Directories.of(environ), builtins=False, environment=environ, telemetry=telemetry)


def servers_in(
    config: Mapping[str, Any], environ: Mapping[str, str] | None = None, *, cwd: str | Path | None = None
) -> tuple[list[ServerSpec], list[Problem]]:
    """Return the servers of `{"mcpServers": {…}}` given as data, and a problem for each that cannot be taken.

    Raises `ConfigError` when there is no such mapping.
    """
    key = next((key for key in _SERVER_KEYS if key in config), "")
    servers = config.get(key)
    if not isinstance(servers, Mapping):
        raise ConfigError("a mapping `mcpServers` from a server's name to its entry was expected")
    environ = here().environ if environ is None else environ
    base = str(Path(cwd or here().project).absolute())
    named = cast("Mapping[str, Any]", servers).items()
    raw = [ConfiguredEntry(name=str(name), value=value, key=key, base=base) for name, value in named]
    entries, problems = _translated(raw, "", environ, inputs_of(config))
    specs, bad = specs_of(entries, environ)
    return specs, [*bad, *problems]


def specs_of(
    entries: Iterable[ConfiguredEntry], environ: Mapping[str, str] | None = None
) -> tuple[list[ServerSpec], list[Problem]]:
    """Return the servers that can be taken, and a problem for each that cannot. Switched-off ones are left out."""
    environ = here().environ if environ is None else environ
    return read_entries(entries, environ, server_spec)


def _pinned(
    specs: Iterable[ServerSpec], entries: Iterable[ConfiguredEntry], directories: Directories, cwd: Path
) -> list[ServerSpec]:
    """Return the servers, those of the project with what the user confirmed of the files behind them."""
    _, *project = config_files(directories, cwd)
    places = {entry.name: path for entry in entries for path in project if entry.file.startswith(f"{path}:")}
    trust, awaited = Trust(directories), str(directories.state / AWAITED)
    return [
        replace(spec, pinned=trust.pins(places[spec.name], spec.name), awaited=awaited) if spec.name in places else spec
        for spec in specs
    ]


def confirm(
    directories: Directories, files: Sequence[tuple[Path, bytes]], environ: Mapping[str, str], *, anew: bool = False
) -> None:
    """Remember that the user has agreed to these files of a project, and to the files behind their new servers.

    `anew`: to the files behind all of their servers, as they are now.
    """
    trust, awaited = Trust(directories), awaited_files(directories.state / AWAITED)
    pins: dict[tuple[Path, str], Mapping[str, str]] = {}
    missing: dict[Path, None] = {}
    for path, _ in files:
        if path.parent.name == PROJECT_FOLDER and path.name in OF_PROJECT:
            part = _read(path, str(path.parent.parent), environ)
            specs, _ = specs_of(part.entries, environ)
            for spec in specs:
                known = trust.pins(path, spec.name)
                if anew or not known:
                    awaited.forget(_awaited_in(known))
                    known = launch_pins(spec, environ.get("PATH", os.defpath))
                    missing |= dict.fromkeys(_awaited_in(known))
                pins[path, spec.name] = known
    awaited.expect(missing)
    trust.confirm(files, pins)


def _awaited_in(pins: Mapping[str, str]) -> Iterable[Path]:
    return (Path(name) for name, pin in pins.items() if pin == MISSING and os.sep in name)


def own_file(directories: Directories, cwd: Path, *, project: bool) -> Path:
    """Return the file that commands change: the user's, or with `project` that of the project around `cwd`.

    Raises `UsageError` for a project's file that the user has not confirmed: to change it would confirm all of it.
    """
    own, *others = config_files(directories, cwd)
    if not project:
        return own
    file = others[0] if others else cwd / PROJECT_FOLDER / "config.yaml"
    if file.is_file() and not Trust(directories).covers(file, disk.read(file)):
        raise UsageError(
            f"{file} came with the project, or changed, and is not confirmed: look at it, `toolcrib trust`"
        )
    return file


def _trusted(directories: Directories, cwd: Path, problems: list[Problem]) -> Iterable[Path]:
    """Yield the files that exist and may be read; an unconfirmed file of a project is a problem."""
    own, *project = config_files(directories, cwd)
    if own.is_file():
        yield own
    trust = Trust(directories)
    for path in project:
        if not path.is_file():
            continue
        if trust.covers(path, disk.read(path)):
            yield path
        else:
            problems.append(
                Problem(
                    source=str(path),
                    code="untrusted",
                    message=f"{path} is not read: it came with the project, or changed, and you have not confirmed it",
                    hint="look at it, then run `toolcrib trust` in this project",
                )
            )


def _base(path: Path, directories: Directories, cwd: Path, *, named: bool) -> str:
    """Where servers of this file run: the project for its files, the home for the user's, here for a named file."""
    if named:
        return str(cwd)
    return str(path.parent.parent if path.parent.name == PROJECT_FOLDER else directories.home)


def _read_all(paths: Sequence[Path], bases: Sequence[str], environ: Mapping[str, str]) -> list[_Part]:
    """Read the files. Raises `ConfigError`, or `ConfigErrors` with the errors of all of them."""
    parts: list[_Part] = []
    errors: list[ConfigError] = []
    for path, base in zip(paths, bases, strict=True):
        try:
            parts.append(_read(path, base, environ))
        except ConfigError as error:
            errors.append(error)
    if errors:
        raise ConfigErrors.of(errors)
    return parts


def _read(path: Path, base: str, environ: Mapping[str, str]) -> _Part:
    """Read one file: ours, or the `mcpServers` JSON of another program, of which only the servers count."""
    foreign = _is_foreign(path)
    limit = disk.FOREIGN_MAX_BYTES if foreign else MAX_BYTES
    content = disk.read(path, limit=limit)
    root = disk.parse(content, str(path))
    if root.kind != "mapping":
        raise ConfigError("a mapping of keys to values was expected", file=str(path))
    if not foreign:
        return _part_of(root, path, base, environ)
    entries = tuple(_entries(root, path, base))
    if not any(root.member(key) for key in _SERVER_KEYS):
        raise ConfigError("has no `mcpServers`", file=str(path))
    inputs = root.find(("inputs",))
    asked = inputs_of({"inputs": inputs.plain()} if inputs is not None else {})
    taken, problems = _translated(entries, _client_of(path), environ, asked)
    secrets = kept_secrets([entry.value for entry in entries], environ)
    return _Part(values={}, entries=tuple(taken), base=base, problems=tuple(problems), secrets=secrets)


def _part_of(root: Node, path: Path | None, base: str, environ: Mapping[str, str]) -> _Part:
    """Check a document with our keys: the file at `path`, or the keywords of a program, which have no file.

    Raises `ConfigErrors` with all of its errors, in the order of the file.
    """
    own = {member.key: member.node.plain() for member in root.members if member.key not in (*_SERVER_KEYS, KEY)}
    errors: list[ConfigError] = []

    def tried(read: Callable[[], _Result], default: _Result) -> _Result:
        try:
            return read()
        except ConfigError as error:
            errors.extend(error.each)
            return default

    values = tried(lambda: check(own, environ, lambda steps: file_line(path, root.line_of(steps))), {})
    entries = tried(lambda: tuple(_entries(root, path, base)), ())
    sources = tried(lambda: source_entries(root, path, str(path.parent) if path else base), ())
    if errors:
        raise ConfigErrors.of(sorted(errors, key=lambda error: int(error.file.rpartition(":")[2] or 0)))
    secrets = kept_secrets([own, *(entry.value for entry in (*entries, *sources))], environ)
    return _Part(values=values, entries=entries, sources=sources, base=base, secrets=secrets)


def _is_foreign(path: Path) -> bool:
    """Whether the file is another program's `mcpServers` JSON, not our YAML."""
    return path.suffix.lower() in (".json", ".jsonc")


def _client_of(path: Path) -> str:
    """Return the client whose file this is, by its path; empty for an unknown one."""
    whole = path.absolute().as_posix()
    for name, endings in CLIENT_FILES.items():
        if any(whole.endswith(f"/{ending}") for ending in endings):
            return name
    return ""


def _translated(
    entries: Sequence[ConfiguredEntry], client: str, environ: Mapping[str, str], inputs: Mapping[str, str]
) -> tuple[list[ConfiguredEntry], list[Problem]]:
    """Return the entries of another program's file in our words, and what of them stops one or has no effect."""
    taken: list[ConfiguredEntry] = []
    unused: list[tuple[str, str]] = []
    home = str(Directories.of(environ).home)
    for entry in entries:
        raw: Any = entry.value
        if not isinstance(raw, Mapping):
            taken.append(entry)
            continue
        read = translate(client, cast("Mapping[str, Any]", raw), project=entry.base, home=home, inputs=inputs)
        errors = tuple(entry.error(message, *steps) for steps, message in read.errors)
        taken.append(replace(entry, value=read.value, written=read.written, errors=errors))
        unused += [] if errors else [(entry.name, key) for key in read.unused]
    file = entries[0].file.rpartition(":")[0] if entries else ""
    return taken, notices(file or "mcpServers", unused)


def _entries(root: Node, path: Path | None, base: str) -> Iterable[ConfiguredEntry]:
    for key in _SERVER_KEYS:
        servers = root.find((key,))
        if servers is None or (servers.kind == "scalar" and servers.value is None):
            continue
        if servers.kind != "mapping":
            where = file_line(path, servers.line)
            raise ConfigError("a mapping from a server's name to its entry was expected", file=where, key=key)
        for member in servers.members:
            yield ConfiguredEntry.of(member, root, path, key=key, base=base, written=_WRITTEN)


def _modes(values: Mapping[str, Any], parts: Iterable[tuple[str, Mapping[str, Any]]]) -> Mapping[str, Mode]:
    """Return all modes. Raises `ConfigError` with every error: modes that cannot be built, and unknown ones in use."""
    given: Mapping[str, ModeSettings] = values.get("modes", {})
    errors: list[ConfigError] = []
    modes: Mapping[str, Mode] = {}
    try:
        modes = resolve_modes(given)
    except ConfigError as error:
        errors.append(error)
    names = (*MODES, *(name for name in given if name not in MODES))
    mode = values.get("mode")
    if mode is not None and mode not in names:
        files = [file for file, part in parts if part.get("mode") == mode]
        errors.append(_unknown_mode(mode, names, files[-1] if files else "", "mode"))
    identities: Mapping[str, Identity] = values.get("identities", {})
    for name, identity in identities.items():
        if identity.mode and identity.mode not in names:
            errors.append(_unknown_mode(identity.mode, names, identity.file, f"identities.{name}.mode"))
    if errors:
        raise ConfigErrors.of(errors)
    return modes


def _check_profiles(values: Mapping[str, Any], parts: Iterable[tuple[str, Mapping[str, Any]]]) -> None:
    """Raise `ConfigError` with every profile in use that does not exist: the default one, and those of identities."""
    names = tuple(dict.fromkeys((*BUILT_IN, *(given.name for given in values["profiles"]))))
    used: list[tuple[str, str, str]] = []
    if profile := values.get("profile"):
        files = [file for file, part in parts if part.get("profile") == profile]
        used.append((profile, files[-1] if files else "", "profile"))
    identities: Mapping[str, Identity] = values.get("identities", {})
    used += [(one.profile, one.file, f"identities.{name}.profile") for name, one in identities.items() if one.profile]
    unknown = [place for place in used if place[0] not in names]
    if unknown:
        raise ConfigErrors.of(
            ConfigError(unknown_name("profile", name, names), file=file, key=key) for name, file, key in unknown
        )


def _broken_rules(values: Mapping[str, Any]) -> list[Problem]:
    """Return the problems of rules that cannot be read.

    As long as there is one, calls that do more than read on this machine are denied (security.md T28): its purpose is
    unknown.
    """
    rules: RuleSettings = values.get("rules", RuleSettings.model_construct())
    identities: Mapping[str, Identity] = values.get("identities", {})
    broken = (*rules.broken, *(message for one in identities.values() for message in one.broken))
    hint = "until it is corrected, everything but tools of this machine that only read is denied"
    return [Problem(source="rules", code="bad_config", message=message, hint=hint) for message in broken]


def _unknown_mode(mode: str, known: Sequence[str], file: str, key: str) -> ConfigError:
    message = f"there is no mode {mode!r}, only {', '.join(known)}{did_you_mean(mode, known)}"
    return ConfigError(message, file=file, key=key)


def _placed(values: Mapping[str, Any], path: Path, base: Path, *, named: bool) -> Mapping[str, Any]:
    """Return the values of one file with paths that count from where it stands."""
    found = placed(values, path, project=not named and path.parent.name == PROJECT_FOLDER)
    return workspace_at(chosen(found, path.parent), base)


def _behind_client(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `values` with the defaults of `guard: off`; each key that a file or an option sets keeps its value.

    Calls run unasked and for as long as a client waits; untrusted content is marked and asks nothing.
    """
    return {
        **_UNGUARDED,
        **values,
        "limits": values.get("limits", Limits()).over(Limits(timeout=Limits().max_timeout)),
        "untrusted": values.get("untrusted", Taint()).over(Taint(ask=False)),
    }


def _guarded(values: Mapping[str, Any], path: Path, problems: list[Problem]) -> Mapping[str, Any]:
    """Return the values of a file without `guard: off`: the library, the agent and jobs read the file, too."""
    if values.get("guard", True):
        return values
    message = f"{path}: `guard: off` has no effect in a file; it is an option of one gateway behind a client"
    hint = "`toolcrib connect` writes it into the client's entry"
    problems.append(Problem(source=str(path), code="notice", message=message, hint=hint))
    return {key: value for key, value in values.items() if key != "guard"}


def _last(entries: Iterable[ConfiguredEntry], problems: list[Problem], what: str = "a server") -> list[ConfiguredEntry]:
    """Of entries with one name the last counts; that the others do not is reported."""
    by_name: dict[str, ConfiguredEntry] = {}
    for entry in entries:
        if (earlier := by_name.pop(entry.name, None)) is not None:
            places = (one.file or f"keyword {one.key}" for one in (earlier, entry))
            message = "{}: not used, {} also has {} of this name and counts".format(*places, what)
            problems.append(Problem(source=entry.name, code="duplicate", message=message))
        by_name[entry.name] = entry
    return list(by_name.values())


def _unclaimed(
    sources: Iterable[ConfiguredEntry], specs: Iterable[ServerSpec], problems: list[Problem]
) -> Iterable[ConfiguredEntry]:
    """Yield the entries whose name no server has: sources are known by their names."""
    taken = {spec.name for spec in specs}
    for entry in sources:
        if entry.name in taken:
            problems.append(
                Problem(source=entry.name, code="duplicate", message=str(entry.error("a server has this name already")))
            )
        else:
            yield entry


def _settings(values: dict[str, Any], surroundings: _Surroundings) -> Settings:
    masked: list[str] = [*values.pop("redact", ()), values.get("token", ""), values.get("admin_token", "")]
    masked += surroundings.secrets
    masked += [text for value in values.values() for text in secret_texts(value)]
    for spec in values["servers"]:
        masked += secret_values(named=(spec.env, spec.headers), arguments=spec.args, url=spec.url)
        masked += secret_texts(spec.oauth)
    for api in values["openapi"]:
        masked += api_secrets(api)
    if "store" in values:
        masked += values["store"].secrets()
    if "plugins" in values:
        masked += secret_values(named=values["plugins"].texts(), arguments=(), url="")
    masked += tool_secrets(values.get("tools", {}))
    values["telemetry"] = telemetry_options(values.get("telemetry"), surroundings.environ)
    return Settings.of(
        surroundings.directories,
        **{**values, "servers": tuple(values["servers"]), "openapi": tuple(values["openapi"])},
        secrets=tuple(sorted(set(filter(None, masked)), key=lambda value: (-len(value), value))),
        environment=dict(surroundings.environ),
        files=tuple(surroundings.files),
        problems=tuple(surroundings.problems),
    )
