"""Everything that a crib is configured with: one frozen value, made by `load` and read by everybody above."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from ..core.budget import NO_BUDGETS, Budgets
from ..core.events import Problem
from ..core.json import canonical
from ..core.permission import Effect
from ..core.session import Limits
from ..core.settings import identity_of
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
from .serving import RegistrationSettings, TokenSpec
from .shells import ShellSpec
from .storing import StoreSpec
from .workflows import GivenWorkflow
from .workspaces import WorkspaceSpec

__all__ = ["DEFAULT_PORT", "Settings"]

DEFAULT_PORT: Final = 8737
"""Where `serve --http` listens unless told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One configuration, with every variable replaced. Values of `servers`, `token` and `secrets` are never printed."""

    directories: Directories
    servers: tuple[ServerSpec, ...] = field(default=(), repr=False)
    openapi: tuple[OpenApiSpec, ...] = field(default=(), repr=False)
    """HTTP APIs by their OpenAPI descriptions."""
    catalogs: tuple[CatalogSpec, ...] = ()
    """YAML catalogs to mount."""
    skills: SkillsSpec | None = None
    """Where skills are looked for; None looks nowhere."""
    chat: ChatSettings = field(default_factory=ChatSettings)
    profile: str = "adaptive"
    profiles: tuple[GivenProfile, ...] = ()
    """What the user says of profiles: changes to the built-in ones, and own ones. Built by the crib."""
    lock: Path | None = None
    """The file with the definitions that count as reviewed; None keeps the reviews in the store."""
    plugins: PluginSettings = field(default_factory=PluginSettings)
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """What built-in tools are told, by category."""
    workflows: tuple[GivenWorkflow, ...] = ()
    """Several calls as one tool each."""
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    """Versions that sessions pin unless they say otherwise, by the tool's name."""
    mode: str = "cautious"
    modes: Mapping[str, Mode] = field(default_factory=lambda: MODES)
    """The modes there are: the built-in ones and the user's own."""
    deny: tuple[str, ...] = ()
    """Rules by effect, as they are written; `policy.rules` reads them."""
    ask: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    broken_rules: tuple[str, ...] = ()
    """What is wrong with rules that could not be read; while there are any, only local reads are not denied."""
    identities: Mapping[str, Identity] = field(default_factory=dict[str, Identity])
    """What holds for the sessions of a principal, by its name."""
    tool_permissions: Mapping[str, Effect] = field(default_factory=dict[str, Effect])
    """allow, ask or deny by a tool's name or pattern, in every mode that says nothing of the tool itself."""
    limits: Limits = field(default_factory=Limits)
    approval_timeout: float = 120.0
    """Seconds that an approver has; no answer is a no."""
    approvals: ApprovalSettings = field(default_factory=ApprovalSettings)
    jobs: JobLimits = field(default_factory=JobLimits)
    workspace: WorkspaceSpec = field(default_factory=WorkspaceSpec)
    shell: ShellSpec = field(default_factory=ShellSpec)
    """What commands may do that tools run."""
    budgets: Budgets = NO_BUDGETS
    telemetry: TelemetryOptions = field(default_factory=TelemetryOptions)
    results: Keeping = field(default_factory=Keeping)
    """How much of long results is kept, and for how long."""
    untrusted: Taint = field(default_factory=Taint)
    """What counts as content of strangers, and whether a session that read some asks before it acts."""
    token: str = field(default="", repr=False)
    """The bearer token that HTTP clients must send; empty asks for none, which only loopback allows."""
    admin_token: str = field(default="", repr=False)
    """The bearer token of admin scope; empty: nobody administers over HTTP, unless `tokens` has one."""
    tokens: tuple[TokenSpec, ...] = field(default=(), repr=False)
    """Further bearer tokens, each with its scope, its principal and the instances it may work as."""
    registration: RegistrationSettings = field(default_factory=RegistrationSettings)
    """What instances may register over REST."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    no_prefix: bool = False
    """Tools of a single server keep their names."""
    accept: bool = False
    """The definitions of these servers count as reviewed."""
    guard: bool = True
    """False behind a client that guards its user itself: definitions that were not reviewed are reported and used, only
    the user's own tools are declared, and results carry no fence. `load` sets the other defaults that go with it."""
    builtins: bool = True
    """Whether installed guests (entry points `toolcrib.tools`) are mounted."""
    embedder: str = ""
    """What makes vectors for ranking by meaning: `minilm`, an entry point or a model's folder; empty ranks by words."""
    store: StoreSpec = field(default_factory=StoreSpec)
    records: Retention = field(default_factory=Retention)
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
