"""Settings of the sources: which tools exist, and where they come from."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, cast

from msgspec import Struct
from pydantic import BeforeValidator

from ..core.settings import (
    INSTRUCTIONS,
    LIMITING,
    POLICY,
    REACH,
    Flag,
    Section,
    Text,
    Texts,
    Wait,
    expected,
    setting,
)
from ..mcp.client.spec import ServerSpec
from . import kinds
from .configuration import ConfiguredSource, SourceKind
from .openapi.spec import OpenApiSpec
from .skills.skill_scan import SkillRoot

KINDS: Final[Mapping[str, SourceKind]] = {
    name: kind for name, kind in vars(kinds).items() if isinstance(kind, SourceKind)
}
"""Every kind of source that has entries under `sources`, by the key there (`kinds`)."""


class CatalogSpec(Struct, frozen=True, kw_only=True):
    """One YAML catalog that is to be mounted."""

    path: Path
    name: str = ""
    """Empty takes one from the file's name."""
    code: tuple[Path, ...] | None = ()
    """Folders, beside the catalog's own, that its modules may come from; None: it may not load code."""
    confirm: bool = False
    """It came with a project, and counts only as its user has confirmed it."""


class SkillsSpec(Struct, frozen=True, kw_only=True):
    """Folders of skills, first to last, and their groups."""

    roots: tuple[SkillRoot, ...]
    groups: tuple[Path, ...] = ()
    """YAML files with `skill_groups`; a group that several have is joined."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GivenWorkflow:
    """One entry below `workflows`, not yet checked."""

    name: str
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    file: str = dataclasses.field(default="", compare=False)
    """Position in the configuration: `file:line`."""


class PluginSettings(Section):
    """The key `plugins`."""

    folders: tuple[Path, ...] = ()
    """Folders of plugins, beside the user's own (`plugins` in the configuration directory)."""
    disabled: Texts = ()
    """Plugins that are not exposed."""
    config: Mapping[str, Mapping[str, Any]] = setting({}, hidden=True)
    """Arguments of each plugin's `initialize`, by the plugin's name."""

    def texts(self) -> tuple[Mapping[str, str], ...]:
        """Return the texts of each plugin's configuration, by key: some are secrets."""
        return texts_of(self.config)


def texts_of(config: Mapping[str, Mapping[str, Any]]) -> tuple[Mapping[str, str], ...]:
    """Return the texts of each part of a configuration, by key."""
    return tuple({key: value for key, value in given.items() if isinstance(value, str)} for given in config.values())


def _builtins(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list | tuple):
        raise expected("true, false or a list of categories and tools")
    return tuple(cast("list[Any]", value))


Builtins = Annotated[bool | tuple[Text, ...], BeforeValidator(_builtins)]
"""true for all, false for none, or the mounted ones by category or name."""


class SourceSettings(Section):
    """The keys of a file that decide which tools exist."""

    servers: tuple[ServerSpec, ...] = setting((), why=REACH, names_only=True, hidden=True)
    """MCP servers, by name."""
    openapi: tuple[OpenApiSpec, ...] = setting((), why=REACH, names_only=True, hidden=True)
    """HTTP APIs by their OpenAPI descriptions."""
    configured: tuple[ConfiguredSource, ...] = setting((), in_code=True, in_digest=True)
    """Sources of the other kinds under `sources`."""
    catalogs: tuple[CatalogSpec, ...] = setting((), why=REACH)
    """YAML catalogs to mount."""
    skills: SkillsSpec | None = setting(None, why=INSTRUCTIONS)
    """Folders of skills; without it no skill is looked for."""
    plugins: PluginSettings = setting(PluginSettings.model_construct(), why=REACH)
    """Plugins, and their settings."""
    workflows: tuple[GivenWorkflow, ...] = setting((), why=REACH, names_only=True)
    """Several calls as one tool each."""
    builtins: Builtins = setting(True, why=REACH)
    """Installed guests (entry points `toolcrib.tools`): all, none, or those of a list that no server covers already.

    A gateway has none unless it is set.
    """
    ready_timeout: Wait = setting(10.0, why=LIMITING)
    """Seconds that opening and mounting wait for sources that have neither listed nor failed; a cached list counts."""
    first_list_timeout: Wait = setting(5.0, why=LIMITING)
    """Seconds after the start of `serve` within which a client's list waits for servers that were never seen before."""
    starts_on_use: Flag = setting(False, in_code=True)
    """Whether a server whose list was cached within a day starts at its first call only: for commands that end soon."""
    no_prefix: Flag = setting(False, why="rules go by the names of tools, and it changes them")
    """Whether tools of a single server keep their names."""
    accept: Flag = setting(False, why=POLICY)
    """Whether the definitions of these servers count as reviewed."""
    lock: Path | None = setting(None, why=POLICY)
    """File of the reviewed definitions; without it the reviews are in the store."""
    lock_digest: str = setting("", in_code=True, in_digest=True)
    """SHA-256 of what the user confirmed of a project's lock; empty where no project names the lock."""
