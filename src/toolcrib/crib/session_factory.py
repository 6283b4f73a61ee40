"""Sessions of a crib: found, set up by their options, and begun anew for each interaction."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, cast

from ..catalog.success_rates import Learning
from ..config import Settings
from ..core.session import LOCAL, SessionState
from ..errors import UsageError
from ..policy.decision import Policy
from ..sources.source import Source
from .needs import provide
from .options import InteractionOptions, SessionOptions, check_options
from .profiles import ProfileRegistry
from .ruling import hold, identified
from .sessions import SessionTable
from .setup import begin, configure
from .shells import Shells
from .views import Views
from .workspaces import Workspaces

__all__ = ["SessionFactory"]


class SessionFactory:
    """Makes the sessions of a crib and finds those that live."""

    def __init__(
        self,
        settings: Settings,
        table: SessionTable,
        profiles: ProfileRegistry,
        policy: Policy,
        views: Views,
        workspaces: Workspaces,
        shells: Shells,
        sources: Mapping[str, Source],
        disabled: dict[str, None],
        learning: Learning,
    ) -> None:
        """`disabled` are the tools that are off for all sessions, `learning` what earlier calls taught."""
        self._settings = settings
        self._table = table
        self._profiles = profiles
        self._policy = policy
        self._views = views
        self._workspaces = workspaces
        self._shells = shells
        self._sources = sources
        self._disabled = disabled
        self._learning = learning

    def find(self, principal: str, key: str) -> SessionState | None:
        """Return the session of that principal and key if this process still has it."""
        return self._table.find(principal, key)

    def open(self, options: SessionOptions) -> SessionState:
        """Return the session that the options describe; a known key continues the session that it names.

        Raises `UsageError` for an option, a profile or a mode that does not exist.
        """
        check_options(options, SessionOptions)
        principal, key = options.get("principal") or LOCAL, options.get("key") or secrets.token_hex(16)
        is_new = self._table.find(principal, key) is None
        state = self._state(principal, key)
        profile = options.get("profile") or state.profile
        self._profiles.get_or_load(profile)
        self._policy.mode(options.get("mode") or state.mode)
        configure(state, options)
        hold(state, options, self._settings)
        self._workspaces.arrange(state, options, is_new=is_new)
        self._shells.arrange(state)
        provide(self._sources.values(), state.provided)
        state.profile = profile
        grows = options.get("grows", state.grows)
        state.grows = self._profiles.loads(profile) if grows is None else grows
        state.wary = frozenset(self._profiles.get_or_load(profile).wary)
        wanted: dict[str, Any] = {
            name: value for name, value in options.items() if name in InteractionOptions.__annotations__
        }
        if wanted or is_new:
            self.begin(state, cast("InteractionOptions", wanted))
        return state

    def begin(self, state: SessionState, options: InteractionOptions) -> None:
        """Begin the next interaction of a session; see `Session.begin`."""
        exact = options.get("tools")
        if isinstance(exact, str):
            raise UsageError(f"tools is a list of names, not the text {exact!r}")
        named = None if exact is None else self._views.named(state, exact)
        profile = self._profiles.get_or_load(state.profile)
        begin(state, options, profile=profile, exact=named, learning=self._learning)

    def enter(self, state: SessionState, mode: str) -> None:
        """Let a session work in a mode from now on; see `Session.mode`."""
        self._workspaces.enter(state, mode)

    def _state(self, principal: str, key: str) -> SessionState:
        state = self._table.find(principal, key)
        if state is None:
            state = SessionState(
                key=key,
                principal=principal,
                disabled_for_all=self._disabled,
                versions=self._settings.versions,
                **identified(self._settings, principal),
            )
            self._table.put(state)
        return state
