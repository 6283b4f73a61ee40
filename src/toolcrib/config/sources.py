"""Sources of the configuration beside the servers: APIs, entries of the listed kinds, YAML catalogs and skills.

An entry with errors is left out, with a `Problem` for each of them; the others are used.

Catalogs and skills that a project's own configuration names came with the project: they count once its user has
confirmed them.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, cast

from msgspec import Struct
from pydantic import AfterValidator, BeforeValidator

from ..core.documents.tree import Member, Node
from ..core.entry_points import SKILLS, folder_of, installed
from ..core.settings import Flag, Scalar, expected, secret_texts
from ..core.similar import did_you_mean
from ..errors import ConfigError, ConfigErrors
from ..net.urls import is_url, url_parts
from ..sources.configuration import ConfiguredSource
from ..sources.openapi.spec import ApiSettings, OpenApiSpec
from ..sources.settings import KINDS, CatalogSpec, PluginSettings, SkillsSpec
from ..sources.skill_folder import skill_file
from ..sources.skills.skill_scan import SkillRoot, find_folders, manifest_of, project_roots, user_roots
from . import files
from .directories import PROJECT_FOLDER, here
from .keys import CatalogEntry, SkillSettings
from .secrets import MIN_LENGTH, is_secret_name
from .servers import ConfiguredEntry, file_line
from .validation import SettingPlace, read_setting

KEY: Final = "sources"
"""The key of our file that this module reads."""
PATH: Final = (KEY, "openapi")
"""Path of the mapping from an API's name to its entry."""
_WRITTEN: Final = ("spec", "base_url", "auth", "headers")
"""Keys whose values are taken as they are written: a token of digits stays one."""
_SWITCHES: Final = ("disabled", "enabled")
"""Keys that every entry may have (`ServerEntry.is_off`)."""

_MARKS: Final = (PROJECT_FOLDER, ".git", ".agents", ".claude")
"""Entries that mark a folder as a project."""
_GROUPS: Final = "groups.yaml"


def is_api(entry: ConfiguredEntry) -> bool:
    """Whether the entry is an API, not a source of another kind."""
    return entry.key == ".".join(PATH)


def _description(text: str) -> str:
    if not text:
        raise expected("a path or a URL of the description")
    if is_url(text):
        url_parts(text)
    return text


class ApiEntry(ApiSettings):
    """One entry of `sources.openapi`, as a file has it."""

    spec: Annotated[Scalar, AfterValidator(_description)]
    """Path or URL of the description."""
    enabled: Flag = True
    """`false` leaves the API out."""
    disabled: Flag = False
    """`true` leaves the API out."""


def _mapping(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise expected("a mapping with `spec`")
    return cast("Any", value)


_Entry = Annotated[ApiEntry, BeforeValidator(_mapping)]


def source_entries(root: Node, path: Path | None, base: str) -> tuple[ConfiguredEntry, ...]:
    """Return the entries of a document, unchecked; relative paths count from `base`. `path` is None for keywords.

    Raises `ConfigError` unless they are mappings below keys of known kinds.
    """
    found: list[ConfiguredEntry] = []
    errors: list[ConfigError] = []
    around = root.find((KEY,))
    for member in _members(around, path, KEY):
        key = f"{KEY}.{member.key}"
        if member.key != PATH[1] and member.key not in KINDS:
            where = file_line(path, member.line)
            known = did_you_mean(member.key, (PATH[1], *KINDS))
            errors.append(ConfigError(f"unknown key{known}", file=where, key=key))
            continue
        try:
            members = _members(member.node, path, key)
        except ConfigError as error:
            errors.append(error)
            continue
        written = _WRITTEN if member.key == PATH[1] else ()
        found += [ConfiguredEntry.of(one, root, path, key=key, base=base, written=written) for one in members]
    if errors:
        raise ConfigErrors.of(errors)
    return tuple(found)


def api_spec(entry: ConfiguredEntry, environ: Mapping[str, str]) -> OpenApiSpec:
    """Return the specification of `entry`. Raises `ConfigError` with all of its errors."""
    read = cast("ApiEntry", read_setting(_Entry, entry.value, entry.place(environ)))
    spec = read.spec if is_url(read.spec) else str(Path(entry.base, os.path.expanduser(read.spec)))
    if Path(entry.base).name == PROJECT_FOLDER and not (is_url(spec) or read.base_url) and (read.auth or read.headers):
        message = "a project's description says no address for credentials, as it could change unseen: set `base_url`"
        raise entry.error(message, "spec")
    given = {name: getattr(read, name) for name in ApiSettings.model_fields}
    return OpenApiSpec(name=entry.name, spec=spec, settings=ApiSettings.model_construct(None, **given))


def api_settings(given: Mapping[str, Any]) -> ApiSettings:
    """Return the settings of an API that a program gave as keywords. Raises `ConfigError` with all of their errors."""
    return cast("ApiSettings", read_setting(ApiSettings, given, SettingPlace(environ=here().environ)))


def configured_source(entry: ConfiguredEntry, environ: Mapping[str, str]) -> ConfiguredSource:
    """Return the source that `entry`, of a listed kind, describes. Raises `ConfigError` with all of its errors."""
    kind = entry.key.removeprefix(f"{KEY}.")
    value: Any = entry.value
    if isinstance(value, Mapping):
        value = {name: inner for name, inner in cast("Mapping[str, Any]", value).items() if name not in _SWITCHES}
    read = read_setting(KINDS[kind].settings, value, entry.place(environ))
    return ConfiguredSource.model_construct(None, kind=kind, name=entry.name, settings=read, folder=Path(entry.base))


def api_secrets(spec: OpenApiSpec) -> list[str]:
    """Return the values of `spec` to mask wherever they turn up."""
    found = [value for name, value in spec.settings.headers.items() if is_secret_name(name)]
    return [value for value in (*found, *secret_texts(spec.settings)) if len(value) >= MIN_LENGTH]


def _members(node: Node | None, path: Path | None, key: str) -> Sequence[Member]:
    if node is None or (node.kind == "scalar" and node.value is None):
        return ()
    if node.kind != "mapping":
        raise ConfigError("a mapping was expected", file=file_line(path, node.line), key=key)
    return node.members


class PlacedSkills(Struct, frozen=True, kw_only=True):
    """The key `skills` of one file, with absolute paths."""

    settings: SkillSettings
    roots: tuple[SkillRoot, ...]
    groups: Path | None


def placed(values: Mapping[str, Any], file: Path, *, project: bool) -> Mapping[str, Any]:
    """Return the `values` of `file` with paths that count from its folder. `project`: it came with a project."""
    folder = file.parent
    found = dict(values)
    if "catalogs" in values:
        found["catalogs"] = tuple(_catalog(entry, folder, project=project) for entry in values["catalogs"])
    if (lock := named_lock(values, folder)) is not None:
        found["lock"] = lock
    if "store" in values and values["store"].path is not None:
        found["store"] = values["store"].model_copy(update={"path": _under(folder, values["store"].path)})
    if "plugins" in values:
        found["plugins"] = _plugins(values["plugins"], file, project=project)
    if "skills" in values:
        found["skills"] = _skills(values["skills"], folder, project=project)
    return found


def named_lock(values: Mapping[str, Any], folder: Path) -> Path | None:
    """Return the lock that `values` name, from `folder`; None where they name none."""
    lock = values.get("lock")
    return _under(folder, lock) if isinstance(lock, str | Path) else None


def skills_spec(given: PlacedSkills | None, home: Path, cwd: Path) -> SkillsSpec | None:
    """Return the folders that are searched for skills; None if none are configured.

    Named roots come first, then those of the project, of the user and of installed packages.
    """
    if given is None:
        return None
    shipped = shipped_skills() if given.settings.shipped else SkillsSpec(roots=())
    roots: list[SkillRoot] = [*given.roots]
    if given.settings.project:
        roots += project_roots(_project(cwd, home))
    if given.settings.user:
        roots += user_roots(home)
    roots += shipped.roots
    groups = (*((given.groups,) if given.groups else ()), *shipped.groups)
    return SkillsSpec(roots=tuple(roots), groups=groups) if roots else None


def shipped_skills() -> SkillsSpec:
    """Return the skills of installed packages: the folders of their entry points, and the `groups.yaml` in each."""
    folders = [folder for point in installed(SKILLS) if (folder := folder_of(point)) is not None]
    groups = tuple(folder / _GROUPS for folder in folders if (folder / _GROUPS).is_file())
    return SkillsSpec(roots=tuple(map(SkillRoot.named, folders)), groups=groups)


class Confirmable(NamedTuple):
    """A file that a user confirms; it is read once, so that what is shown is what is confirmed."""

    path: Path
    text: bytes
    """Content; of a lock, the names of the tools that it lists as reviewed."""
    content: bytes
    """Bytes that `Trust` compares: the content, or a digest of all files of a skill or those that a catalog runs."""


def confirmable_in(path: Path) -> list[Confirmable]:
    """Return the confirmable files at `path`: a file, or each skill at or below a folder.

    Raises `ConfigError` when there is nothing, when a skill is too large to be looked through, or changes meanwhile.
    """
    if path.is_file() and path.name.lower() != "skill.md":
        from ..sources.yaml.confirmation import confirmed_content  # few commands confirm

        text = files.read(path)
        return [Confirmable(path, text, confirmed_content(path, text))]
    root = SkillRoot.named(path.parent if path.is_file() else path)
    found: list[Confirmable] = []
    for _, folder in find_folders((root,), []):
        try:
            manifest, name = manifest_of(folder), skill_file(folder)
        except ValueError as error:
            raise ConfigError(str(error), file=str(folder)) from None
        text = files.read(folder / name)
        if not manifest.holds(name, text):
            raise ConfigError("changed while it was read: run the command again", file=str(folder / name))
        found.append(Confirmable(folder / name, text, manifest.content))
    if not found:
        raise ConfigError("there is neither a file nor a skill", file=str(path))
    return found


def _catalog(entry: CatalogEntry, folder: Path, *, project: bool) -> CatalogSpec:
    folders = () if isinstance(entry.code, bool) else entry.code
    return CatalogSpec(
        path=_under(folder, entry.file),
        name=entry.name,
        code=None if entry.code is False else tuple(_under(folder, path) for path in folders),
        confirm=project,
    )


def _plugins(plugins: PluginSettings, file: Path, *, project: bool) -> PluginSettings:
    """Return the plugins of `file`, with folders that count from its own.

    Raises `ConfigError` for folders in a file that came with a project: their code could change after it was confirmed.
    """
    if "folders" not in plugins.model_fields_set:
        return plugins
    if project and plugins.folders:
        message = "a project's configuration brings no plugins: name the folder in your own configuration"
        raise ConfigError(message, file=str(file), key="plugins.folders")
    folders = tuple(_under(file.parent, str(folder)) for folder in plugins.folders)
    return plugins.model_copy(update={"folders": folders})


def _skills(skills: SkillSettings, folder: Path, *, project: bool) -> PlacedSkills:
    paths = [_under(folder, path) for path in skills.paths]
    scope = "project" if project else "named"
    roots = tuple(SkillRoot(path=path, scope=scope, within=path) for path in paths)
    return PlacedSkills(settings=skills, roots=roots, groups=_under(folder, skills.groups) if skills.groups else None)


def _under(folder: Path, path: str | Path) -> Path:
    return folder / os.path.expanduser(path)


def _project(cwd: Path, home: Path) -> Path:
    """Return the nearest folder, from `cwd` upwards, that is a project; `cwd` itself when none is."""
    for folder in (cwd, *cwd.parents):
        if folder == home:
            break
        if any((folder / mark).exists() for mark in _MARKS):
            return folder
    return cwd
