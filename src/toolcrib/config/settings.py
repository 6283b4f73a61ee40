"""Settings of a crib: one frozen value, made by `load` and read by every floor above.

The keys of our file stand in sections: `jobs: {working: 4}` is `settings.jobs.working`. Keys that one feature reads
together without a section in the file are grouped here: `mode: plan` is `settings.policy.mode`.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

from ..core.budget import NO_BUDGETS, Budgets
from ..core.events import Problem
from ..core.json import canonical
from ..core.session import Limits
from ..core.settings import LIMITING, POLICY, REACH, RECORDING, KeyInfo, Section, identity_of, info_of
from ..disclosure.settings import DisclosureSettings
from ..jobs.job import JobLimits
from ..policy.asking.settings import ApprovalSettings
from ..policy.settings import PolicySettings
from ..results.artifacts import Keeping
from ..sources.settings import SourceSettings
from ..store.store import Retention
from ..telemetry.sdk import TelemetryOptions
from .directories import Directories
from .sections import ChatSettings, HttpSettings, ShellSpec, StoreSpec, WorkspaceSpec

__all__ = ["FILE_KEYS", "GROUPS", "FileKey", "Settings"]


def _key(**facts: Any) -> Mapping[str, KeyInfo]:
    return {"key": KeyInfo(**facts)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One configuration, with every variable replaced. Values of `servers`, `token` and `secrets` are never printed."""

    directories: Directories
    sources: SourceSettings = field(default_factory=SourceSettings.model_construct)
    """Which tools exist: servers, openapi, catalogs, skills, plugins, workflows, builtins, no_prefix, accept, lock."""
    disclosure: DisclosureSettings = field(default_factory=DisclosureSettings.model_construct)
    """How they are presented: profile, profiles, versions, ranking."""
    policy: PolicySettings = field(default_factory=PolicySettings.model_construct)
    """What is allowed: mode, modes, rules, identities, tool_permissions, approval_wait, untrusted, guard."""
    http: HttpSettings = field(default_factory=HttpSettings.model_construct)
    """Who reaches it over HTTP: host, port, token, admin_token, tokens, registration."""
    approvals: ApprovalSettings = field(default_factory=ApprovalSettings.model_construct, metadata=_key(why=POLICY))
    limits: Limits = field(default_factory=Limits.model_construct, metadata=_key(why=LIMITING))
    budgets: Budgets = field(default=NO_BUDGETS, metadata=_key(why=LIMITING))
    jobs: JobLimits = field(default_factory=JobLimits.model_construct, metadata=_key(why=LIMITING))
    workspace: WorkspaceSpec = field(default_factory=WorkspaceSpec.model_construct, metadata=_key(why=REACH))
    shell: ShellSpec = field(default_factory=ShellSpec.model_construct, metadata=_key(why=POLICY))
    """What commands may do that tools run."""
    tools: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]], metadata=_key(secret=True)
    )
    """Settings of built-in tools, by category."""
    chat: ChatSettings = field(
        default_factory=ChatSettings.model_construct,
        metadata=_key(why="it decides which model is asked, and what is allowed there"),
    )
    telemetry: TelemetryOptions = field(default_factory=TelemetryOptions.model_construct, metadata=_key(why=RECORDING))
    results: Keeping = field(
        default_factory=Keeping.model_construct, metadata=_key(why="it holds several values: name one of them")
    )
    """How much of long results is kept, and for how long."""
    store: StoreSpec = field(default_factory=StoreSpec.model_construct, metadata=_key(secret=True))
    records: Retention = field(default_factory=Retention.model_construct, metadata=_key(why=RECORDING))
    """How long calls stay in the record."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values to mask wherever they turn up, longest first."""
    files: tuple[Path, ...] = field(default=(), compare=False)
    """Files that were read, in the order of precedence, lowest first."""
    problems: tuple[Problem, ...] = field(default=(), compare=False)
    """Parts of the configuration that are not used; the rest works."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    """Ours, as it was read; a server that is started gets only the harmless part of it."""

    @classmethod
    def of(cls, directories: Directories, **values: Any) -> Settings:
        """Return the settings with these values, by the keys of the file; the others have their defaults."""
        return cls(directories=directories).with_values(**values)

    def with_values(self, **values: Any) -> Settings:
        """Return the settings with other values, by the keys of the file: `mode`, `builtins`, `limits`.

        A mapping for a section is validated. Raises `TypeError` for an unknown key.
        """
        for name, value in values.items():
            model = FILE_KEYS[name].annotation if name in FILE_KEYS else None
            if isinstance(value, Mapping) and isinstance(model, type) and issubclass(model, Section):
                values[name] = model.model_validate(value)
        own = {name: value for name, value in values.items() if name not in _GROUP_OF}
        for group in GROUPS:
            changed = {name: value for name, value in values.items() if _GROUP_OF.get(name) == group}
            own |= {group: getattr(self, group).model_copy(update=changed)} if changed else {}
        return replace(self, **own)

    def value(self, key: str) -> Any:
        """Return the value of a key at the top of the file."""
        return getattr(getattr(self, _GROUP_OF[key]) if key in _GROUP_OF else self, key)

    def at_once(self) -> Settings:
        """Return these settings for an opening that does not wait for sources: of a process that serves, or waits."""
        return self.with_values(ready_timeout=0.0)

    def digest(self) -> str:
        """Return 64 hex digits over the configuration, the resolved environment and our version.

        Equal digests serve the same: the key of the local daemon. It covers every field that is compared, the user's
        directories included; of the environment what the configuration uses, and the file of each server's command.
        """
        commands = [spec.command for spec in self.sources.servers if spec.command]
        programs = [shutil.which(command, path=self.environment.get("PATH")) for command in commands]
        parts = {"version": version("toolcrib"), "programs": programs, "settings": identity_of(self)}
        return hashlib.sha256(canonical(parts)).hexdigest()


GROUPS: Final[Mapping[str, type[Section]]] = {
    "sources": SourceSettings,
    "disclosure": DisclosureSettings,
    "policy": PolicySettings,
    "http": HttpSettings,
}
"""Sections of `Settings` whose keys stand at the top of a file."""

_GROUP_OF: Final = {name: group for group, model in GROUPS.items() for name in model.model_fields}


class FileKey(NamedTuple):
    """One key at the top of our file."""

    annotation: Any
    info: KeyInfo
    default: Any


def _file_keys() -> Mapping[str, FileKey]:
    hints = get_type_hints(Settings, include_extras=True)
    keys: dict[str, FileKey] = {}
    for one in fields(Settings):
        if one.name in GROUPS:
            for name, inner in GROUPS[one.name].model_fields.items():
                if info_of(inner).in_code:
                    continue
                annotation = get_type_hints(GROUPS[one.name], include_extras=True)[name]
                keys[name] = FileKey(annotation, info_of(inner), inner.get_default(call_default_factory=True))
        elif "key" in one.metadata:
            default = one.default_factory() if one.default_factory is not MISSING else one.default
            keys[one.name] = FileKey(hints[one.name], one.metadata["key"], default)
    return keys


FILE_KEYS: Final[Mapping[str, FileKey]] = _file_keys()
"""Every key at the top of our file with a value in `Settings`."""
