"""Loader: from files, overrides and the environment to `Settings`. With the entry point, the only reader of the latter.

Without `files` three are looked for: the user's own, the project's `.toolcrib/config.yaml` and `.toolcrib/local.yaml`;
the project's only count once they are trusted. Files that are named count as trusted, and nothing else is read then.
Later files win, key by key and server by server; rules and values to redact add up. Overrides win over all.

    lowest    variables of the seed systems (`profiles.environment_values`)
              profiles/*.yaml of the user, then those of the project
              config.yaml of the user, .toolcrib/config.yaml, .toolcrib/local.yaml; or the named files in their order
    highest   overrides: options of a command, keywords of `Toolcrib`

    file ─► `_read`          parsed; keys validated, variables replaced; paths made absolute; entries still as text;
                            a project's lock and profile have to be confirmed
         ─► `_merged`        one mapping of checked values
         ─► `_check`         every error of all parts at once
         ─► `_add_sources`   entries, the last of each name, as specifications
         ─► `Settings`

An error of a key raises, together with every other error of all files: half of a configuration may allow what the
whole denies. An entry that cannot be used costs that server or source alone, and is a problem of the settings.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import filterfalse
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from ..catalog.embedding.embedder import unknown_embedder
from ..core.documents.tree import Node
from ..core.events import Problem
from ..core.exceptions import ErrorList
from ..core.json import as_mapping
from ..core.session import LOCAL, Limits
from ..core.settings import secret_texts
from ..core.similar import did_you_mean, unknown_name
from ..disclosure.settings import BUILT_IN, seed_tools
from ..errors import ConfigError, ConfigErrors
from ..mcp.client.spec import ServerSpec
from ..policy.modes import MODES, Mode, ModeSettings, resolve_modes
from ..policy.settings import Identity, RuleSettings
from ..policy.taint import Taint
from . import files as disk
from .clients.table import inputs_of
from .confirmation import trusted_files, with_pins
from .directories import PROJECT_FOLDER, Directories, here, project_root
from .file_parts import SERVER_KEYS, FilePart, is_foreign, part_of, read_all, translated
from .keys import merge, tool_secrets
from .profiles import chosen, environment_values, found_profiles
from .secrets import secret_values
from .servers import ConfiguredEntry, read_entries, specs_of, unused_keys
from .settings import Settings, telemetry_options, workspace_at, workspace_spec
from .sources import api_secrets, api_spec, configured_source, is_api, placed, shipped_skills, skills_spec
from .trust import Trust

__all__ = ["bare", "here", "load", "load_gateway", "servers_in"]

_UNGUARDED: Final[Mapping[str, Any]] = {"mode": "autonomous", "builtins": False}
"""Defaults of `guard: off`, beside those of single entries in `_behind_client`."""


class _Surroundings(Struct, frozen=True, kw_only=True):
    """Origin of the values, and the problems that one load finds."""

    directories: Directories
    environ: Mapping[str, str]
    folder: Path
    """Working directory, absolute."""
    named: bool
    """Whether the files are named: they count as trusted, and no others are looked for."""
    problems: list[Problem]


class _Inputs(Struct, frozen=True, kw_only=True):
    """Files in their order, then the overrides."""

    files: Sequence[Path]
    parts: Sequence[FilePart]
    values: Sequence[Mapping[str, Any]]
    """Checked values of each part, with absolute paths."""


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
    around = _Surroundings(
        directories=Directories.of(environ),
        environ=environ,
        folder=Path(cwd or here().project).absolute(),
        named=files is None or bool(files),
        problems=[],
    )
    inputs = _read(files or (), overrides or {}, around)
    of_environment = {} if files is None else environment_values(environ, around.problems)
    values = _merged(inputs, of_environment, around)
    _check(values, inputs)
    _restrict_local(values, (overrides or {}).get("mode") or "")
    around.problems.extend([*_broken_rules(values), *_unknown_embedder(values)])
    _add_sources(values, inputs, around)
    return _settings(values, inputs, around)


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
        identity = settings.policy.identities.get(LOCAL, Identity.model_construct())
        settings = settings.with_values(
            mode=identity.mode or settings.policy.mode,
            profile=(overrides or {}).get("profile") or identity.profile or settings.disclosure.profile,
        )
    if "builtins" in settings.sources.model_fields_set:
        return settings
    profile = settings.disclosure.profile
    if profile == "selection" and settings.sources.skills is None:  # the only one that shows a skill as a tool
        settings = settings.with_values(skills=shipped_skills())
    tools = seed_tools(profile)
    if "read_file" in tools and not settings.workspace.roots:
        message = f"the tools for files, git and commands that the profile {profile} has need a workspace: none is set"
        hint = "write `workspace: FOLDER` into the configuration"
        problem = Problem(source="builtins", code="notice", message=message, hint=hint)
        settings = settings.with_values(problems=(*settings.problems, problem))
    return settings.with_values(builtins=tools or False)


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
    key = next((key for key in SERVER_KEYS if key in as_mapping(config)), "")
    servers = config[key] if key else None
    if not isinstance(servers, Mapping):
        wanted = "a mapping `mcpServers` from a server's name to its entry was expected"
        raise ConfigError(f"{wanted}; `Toolcrib.load` takes the path of a file")
    environ = here().environ if environ is None else environ
    base = str(Path(cwd or here().project).absolute())
    named = cast("Mapping[str, Any]", servers).items()
    raw = [ConfiguredEntry(name=str(name), value=value, key=key, base=base) for name, value in named]
    entries, problems = translated(raw, "", environ, inputs_of(config))
    specs, bad = specs_of(entries, environ)
    return specs, [*bad, *problems]


def _read(files: Sequence[str | Path], overrides: Mapping[str, Any], around: _Surroundings) -> _Inputs:
    """Read and check each file by itself; its errors stay with its part."""
    folder, directories, problems = around.folder, around.directories, around.problems
    found = [folder / os.path.expanduser(name) for name in files]
    contents = {} if around.named else dict(trusted_files(directories, folder, problems))
    found += contents
    parts = read_all(found, [_base(path, around) for path in found], around.environ, contents)
    problems += [problem for part in parts for problem in part.problems]
    kept = [_guarded(part.values, path, problems) for path, part in zip(found, parts, strict=True)]
    trust = None if around.named else Trust(directories)
    values = [_placed(one, path, Path(part.base), trust) for one, path, part in zip(kept, found, parts, strict=True)]
    keywords = part_of(Node.of(overrides), None, str(folder), around.environ)
    values.append(_placed(keywords.values, folder / "overrides", folder, None))
    return _Inputs(files=found, parts=(*parts, keywords), values=values)


def _base(path: Path, around: _Surroundings) -> str:
    """Return the working directory of this file's servers: its project, the user's home, or `cwd` for a named file."""
    if around.named:
        return str(around.folder)
    return str(path.parent.parent if path.parent.name == PROJECT_FOLDER else around.directories.home)


def _merged(inputs: _Inputs, of_environment: Mapping[str, Any], around: _Surroundings) -> dict[str, Any]:
    """Return one mapping of the values of all parts, with the defaults that depend on where they come from."""
    directories, folder, problems = around.directories, around.folder, around.problems
    project = project_root(folder, directories.home)
    profiles = {} if around.named else found_profiles(directories, project, problems)
    values = merge([of_environment, {"profiles": profiles}, *inputs.values])
    values["profiles"] = tuple(values["profiles"].values())
    values["workflows"] = tuple(values.get("workflows", {}).values())
    values["skills"] = skills_spec(values.get("skills"), directories.home, folder)
    if not values.get("guard", True):
        values = _behind_client(values)
    if around.named and all(is_foreign(path) for path in inputs.files):
        values.setdefault("builtins", False)  # another client's list of servers, or keywords: only what they name
    values["workspace"] = workspace_spec(values.get("workspace"), problems)
    return values


def _check(values: dict[str, Any], inputs: _Inputs) -> None:
    """Set the modes; raise every error of all parts, with those of modes and profiles that the merged values have."""
    errors = ErrorList()
    errors.found += [error for part in inputs.parts for error in part.errors]
    wrong = {error.key.partition(".")[0] for error in errors.found}
    if "modes" not in wrong:
        with errors.part():
            values["modes"] = _modes(values, inputs)
    if "profiles" not in wrong:
        with errors.part():
            _check_profiles(values, inputs)
    errors.raise_all()


def _restrict_local(values: dict[str, Any], option: str) -> None:
    """Add each mode as strict as that of the identity `local`, which an option makes stricter still."""
    identity: Identity | None = values.get("identities", {}).get(LOCAL)
    if identity is None or not identity.mode:
        return
    modes: dict[str, Mode] = values["modes"]
    bound, permissions = modes[identity.mode], values.get("tool_permissions", {})
    restricted = {name: mode.restricted_by(bound, permissions) for name, mode in modes.items()}
    values["modes"] = {**modes, **{mode.name: mode for mode in restricted.values()}}
    if option:
        changed = identity.model_copy(update={"mode": restricted[option].name})
        values["identities"] = {**values["identities"], LOCAL: changed}


def _modes(values: Mapping[str, Any], inputs: _Inputs) -> Mapping[str, Mode]:
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
        errors.append(_unknown_mode(mode, names, _place_of("mode", mode, inputs), "mode"))
    identities: Mapping[str, Identity] = values.get("identities", {})
    for name, identity in identities.items():
        if identity.mode and identity.mode not in names:
            errors.append(_unknown_mode(identity.mode, names, identity.file, f"identities.{name}.mode"))
    if errors:
        raise ConfigErrors.of(errors)
    return modes


def _place_of(key: str, value: Any, inputs: _Inputs) -> str:
    """Return `file:line` of the last file that sets the key to this value; empty where none does."""
    files = zip(inputs.files, inputs.parts, inputs.values, strict=False)  # without the overrides
    places = [part.places[key] for _, part, values in files if values.get(key) == value]
    return places[-1] if places else ""


def _check_profiles(values: Mapping[str, Any], inputs: _Inputs) -> None:
    """Raise `ConfigError` with every profile in use that does not exist: the default one, and those of identities."""
    names = tuple(dict.fromkeys((*BUILT_IN, *(given.name for given in values["profiles"]))))
    used: list[tuple[str, str, str]] = []
    if profile := values.get("profile"):
        used.append((profile, _place_of("profile", profile, inputs), "profile"))
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


def _unknown_embedder(values: Mapping[str, Any]) -> list[Problem]:
    name = values["ranking"].embedder if "ranking" in values else ""
    message = unknown_embedder(name) if name else ""
    hint = "until it is corrected, tools are ranked by their words"
    return [Problem(source="ranking", code="bad_config", message=message, hint=hint)] if message else []


def _unknown_mode(mode: str, known: Sequence[str], file: str, key: str) -> ConfigError:
    message = f"there is no mode {mode!r}, only {', '.join(known)}{did_you_mean(mode, known)}"
    return ConfigError(message, file=file, key=key)


def _placed(values: Mapping[str, Any], path: Path, base: Path, trust: Trust | None) -> Mapping[str, Any]:
    """Return the values of one file with paths that count from where it stands; `trust` None: it was named."""
    trust = trust if path.parent.name == PROJECT_FOLDER else None
    found = placed(values, path, project=trust is not None)
    if (lock := found.get("lock")) is not None:
        found = {**found, "lock_digest": "" if trust is None else _confirmed_lock(lock, trust)}
    return workspace_at(chosen(found, path.parent, trust), base)


def _confirmed_lock(lock: Path, trust: Trust) -> str:
    """Return the digest of a project's lock: the file is read again when it is enforced, and may be another by then."""
    content = disk.read(lock, limit=disk.LOCK_MAX_BYTES) if lock.exists() else b""
    if content:
        trust.require(lock, content, "lock")
    return hashlib.sha256(content).hexdigest()


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


def _add_sources(values: dict[str, Any], inputs: _Inputs, around: _Surroundings) -> None:
    """Set the specifications of servers, OpenAPI documents and other sources: of each name the last entry."""
    problems, parts = around.problems, inputs.parts
    entries = _last([used for part in parts for entry in part.entries if (used := entry.at(around.folder))], problems)
    servers, of_servers = specs_of(entries, around.environ)
    problems += unused_keys(entries, servers)
    values["servers"] = tuple(
        servers if around.named else with_pins(servers, entries, around.directories, around.folder)
    )
    others = _last([entry for part in parts for entry in part.sources], problems, "a source")
    others = list(_unclaimed(others, values["servers"], problems))
    apis, of_apis = read_entries(filter(is_api, others), around.environ, api_spec)
    configured, of_configured = read_entries(filterfalse(is_api, others), around.environ, configured_source)
    values |= {"openapi": tuple(apis), "configured": tuple(configured)}
    problems += [*of_servers, *of_apis, *of_configured]


def _settings(values: dict[str, Any], inputs: _Inputs, around: _Surroundings) -> Settings:
    masked: list[str] = [*values.pop("redact", ()), values.get("token", ""), values.get("admin_token", "")]
    masked += [secret for part in inputs.parts for secret in part.secrets]
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
    values["telemetry"] = telemetry_options(values.get("telemetry"), around.environ)
    return Settings.of(
        around.directories,
        **values,
        secrets=tuple(sorted(set(filter(None, masked)), key=lambda value: (-len(value), value))),
        environment=dict(around.environ),
        files=tuple(inputs.files),
        problems=tuple(around.problems),
    )
