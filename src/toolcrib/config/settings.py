"""Settings of a crib: one frozen value, made by `load` and read by every floor above."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

from pydantic import PlainValidator

from ..core.budget import NO_BUDGETS, Budgets
from ..core.events import Problem
from ..core.json import canonical
from ..core.permission import Effect
from ..core.session import Limits
from ..core.settings import ChangedBy, Flag, Number, Text, expected, identity_of
from ..jobs.job import JobLimits
from ..mcp.client.spec import ServerSpec
from ..policy.asking.settings import ApprovalSettings
from ..policy.modes import MODES, Mode
from ..policy.taint import Taint
from ..results.artifacts import Keeping
from ..sources.openapi.spec import OpenApiSpec
from ..store.retention import Retention
from ..telemetry.sdk import TelemetryOptions
from .catalogs import CatalogSpec, SkillsSpec
from .chatting import ChatSettings
from .directories import Directories
from .plugins import PluginSettings
from .profiles import GivenProfile
from .ruling import Identity
from .serving import RegistrationSettings, Tokens
from .shells import ShellSpec
from .storing import StoreSpec
from .workflows import GivenWorkflow
from .workspaces import WorkspaceSpec

__all__ = ["DEFAULT_PORT", "FILE_KEYS", "MODELS", "POLICY", "FileKey", "Settings"]

DEFAULT_PORT: Final = 8737
"""Default port of `serve --http`."""


POLICY: Final = "it decides what is allowed"
_LIMIT: Final = "it limits what may be used"
_REACH: Final = "it decides which tools exist, and what they may reach"
_RECORD: Final = "it decides what is recorded, and where that goes"
_WORDS: Final = "it decides which instructions a model gets"
_CLIENTS: Final = "it decides who can reach this program"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKey:
    """Facts about a key of our file, in the metadata of its field in `Settings`, which has the same name."""

    why: str = ""
    """Why a tool may not change it; the single keys of a section may still say `changed_by="tool"`."""
    changed_by: ChangedBy = "user"
    secret: bool = False
    """Whether it is never displayed."""
    names_only: bool = False
    """Whether only the names below it are displayed: their values may be secret, or long."""
    typed: bool = True
    """Whether the field's type validates it; other keys have a reader in `keys`."""


def _key(**facts: Any) -> Mapping[str, FileKey]:
    return {"key": FileKey(**facts)}


def _port(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 65535:
        raise expected("a port from 0 (any free one) to 65535")
    return value


_Port = Annotated[int, PlainValidator(_port)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One configuration, with every variable replaced. Values of `servers`, `token` and `secrets` are never printed."""

    directories: Directories
    servers: tuple[ServerSpec, ...] = field(
        default=(), repr=False, metadata=_key(why=_REACH, names_only=True, typed=False)
    )
    """MCP servers, by name."""
    openapi: tuple[OpenApiSpec, ...] = field(
        default=(), repr=False, metadata=_key(why=_REACH, names_only=True, typed=False)
    )
    """HTTP APIs by their OpenAPI descriptions."""
    catalogs: tuple[CatalogSpec, ...] = field(default=(), metadata=_key(why=_REACH, typed=False))
    """YAML catalogs to mount."""
    skills: SkillsSpec | None = field(default=None, metadata=_key(why=_WORDS, typed=False))
    """Folders of skills; without it no skill is looked for."""
    chat: ChatSettings = field(
        default_factory=ChatSettings.model_construct,
        metadata=_key(why="it decides which model is asked, and what is allowed there"),
    )
    profile: Text = field(default="adaptive", metadata=_key(changed_by="tool"))
    """How tools are shown to sessions that name no profile."""
    profiles: tuple[GivenProfile, ...] = field(default=(), metadata=_key(why=_WORDS, names_only=True, typed=False))
    """Changes to the built-in profiles, and profiles of the user."""
    lock: Path | None = field(default=None, metadata=_key(why=POLICY))
    """File of the reviewed definitions; without it the reviews are in the store."""
    plugins: PluginSettings = field(default_factory=PluginSettings.model_construct, metadata=_key(why=_REACH))
    tools: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict[str, Mapping[str, Any]], metadata=_key(secret=True, typed=False)
    )
    """Settings of built-in tools, by category."""
    workflows: tuple[GivenWorkflow, ...] = field(default=(), metadata=_key(why=_REACH, names_only=True, typed=False))
    """Several calls as one tool each."""
    versions: Mapping[str, str] = field(default_factory=dict[str, str], metadata=_key(changed_by="tool", typed=False))
    """Versions that sessions pin unless they say otherwise, by the tool's name."""
    mode: Text = field(default="cautious", metadata=_key(why=POLICY))
    """Mode of sessions that name none."""
    modes: Mapping[str, Mode] = field(
        default_factory=lambda: MODES, metadata=_key(why=POLICY, names_only=True, typed=False)
    )
    """Modes of the user, and changes to the built-in ones."""
    deny: tuple[str, ...] = ()
    """Rules by effect, as they are written; `policy.rules` reads them."""
    ask: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    broken_rules: tuple[str, ...] = ()
    """What is wrong with rules that could not be read; while there are any, only local reads are not denied."""
    identities: Mapping[str, Identity] = field(
        default_factory=dict[str, Identity], metadata=_key(why=POLICY, names_only=True, typed=False)
    )
    """Profile, mode, rules and limits of a principal's sessions, by its name."""
    tool_permissions: Mapping[str, Effect] = field(
        default_factory=dict[str, Effect], metadata=_key(why=POLICY, typed=False)
    )
    """allow, ask or deny by a tool's name or pattern, in every mode that does not name the tool."""
    limits: Limits = field(default_factory=Limits.model_construct, metadata=_key(why=_LIMIT))
    approval_timeout: Number = field(default=120.0, metadata=_key(why=POLICY))
    """Seconds that an approver has; no answer is a no."""
    approval_wait: Number = field(default=25.0, metadata=_key(why=POLICY))
    """Seconds that a call waits for an answer from elsewhere, before it ends as `approval_pending`."""
    approvals: ApprovalSettings = field(default_factory=ApprovalSettings.model_construct, metadata=_key(why=POLICY))
    jobs: JobLimits = field(default_factory=JobLimits.model_construct, metadata=_key(why=_LIMIT))
    workspace: WorkspaceSpec = field(default_factory=WorkspaceSpec.model_construct, metadata=_key(why=_REACH))
    shell: ShellSpec = field(default_factory=ShellSpec.model_construct, metadata=_key(why=POLICY))
    """What commands may do that tools run."""
    budgets: Budgets = field(default=NO_BUDGETS, metadata=_key(why=_LIMIT))
    telemetry: TelemetryOptions = field(default_factory=TelemetryOptions.model_construct, metadata=_key(why=_RECORD))
    results: Keeping = field(
        default_factory=Keeping.model_construct, metadata=_key(why="it holds several values: name one of them")
    )
    """How much of long results is kept, and for how long."""
    untrusted: Taint = field(default_factory=Taint.model_construct, metadata=_key(why=POLICY))
    """What counts as content of strangers, and whether a session that read some asks before it acts."""
    token: Text = field(default="", repr=False, metadata=_key(secret=True))
    """Bearer token of HTTP clients; without it only loopback is served."""
    admin_token: Text = field(default="", repr=False, metadata=_key(secret=True))
    """Bearer token of admin scope; without it, and without one in `tokens`, HTTP has no administration."""
    tokens: Tokens = field(default=(), repr=False, metadata=_key(secret=True))
    """Further bearer tokens, each with its scope, its principal and the instances it may work as."""
    registration: RegistrationSettings = field(
        default_factory=RegistrationSettings.model_construct, metadata=_key(secret=True)
    )
    """What instances may register over REST."""
    host: Text = field(default="127.0.0.1", metadata=_key(why=_CLIENTS))
    """Address that `serve --http` listens on."""
    port: _Port = field(default=DEFAULT_PORT, metadata=_key(why=_CLIENTS))
    """_Port that `serve --http` listens on; 0 is any free one."""
    no_prefix: Flag = field(default=False, metadata=_key(why="rules go by the names of tools, and it changes them"))
    """Whether tools of a single server keep their names."""
    accept: Flag = field(default=False, metadata=_key(why=POLICY))
    """Whether the definitions of these servers count as reviewed."""
    guard: bool = field(default=True, metadata=_key(why=POLICY, typed=False))
    """`off` behind a client that guards its user itself: definitions that were not reviewed are reported and used, only
    the user's own tools are declared, and results carry no fence. Other defaults change with it."""
    builtins: Flag = field(default=True, metadata=_key(why=_REACH))
    """Whether installed guests (entry points `toolcrib.tools`) are mounted."""
    embedder: str = ""
    """What makes vectors for ranking by meaning: `minilm`, an entry point or a model's folder; empty ranks by words."""
    store: StoreSpec = field(default_factory=StoreSpec.model_construct, metadata=_key(secret=True))
    records: Retention = field(default_factory=Retention.model_construct, metadata=_key(why=_RECORD))
    """How long calls stay in the record."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values to mask wherever they turn up, longest first."""
    files: tuple[Path, ...] = field(default=(), compare=False)
    """What was read, in the order of precedence, lowest first."""
    problems: tuple[Problem, ...] = field(default=(), compare=False)
    """What could not be taken; the rest works."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False, compare=False)
    """Ours, as it was read; a server that is started gets only the harmless part of it."""

    def digest(self) -> str:
        """Return 64 hex digits over the configuration, the resolved environment and our version.

        Equal digests serve the same: the key of the local daemon. It covers every field that is compared, the user's
        directories included; of the environment what the configuration uses, and the file of each server's command.
        """
        programs = [
            shutil.which(spec.command, path=self.environment.get("PATH")) for spec in self.servers if spec.command
        ]
        parts = {"version": version("toolcrib"), "programs": programs, "settings": identity_of(self)}
        return hashlib.sha256(canonical(parts)).hexdigest()


FILE_KEYS: Final[Mapping[str, FileKey]] = {
    one.name: one.metadata["key"] for one in fields(Settings) if "key" in one.metadata
}
"""The facts about every key of our file that has a field in `Settings`."""

MODELS: Final[Mapping[str, Any]] = {
    name: hint
    for name, hint in get_type_hints(Settings, include_extras=True).items()
    if name in FILE_KEYS and FILE_KEYS[name].typed
}
"""The types of the keys that their fields in `Settings` describe completely."""
