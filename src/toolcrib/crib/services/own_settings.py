"""Configuration as a crib's tools read and change it (`core.services.host.Configuration`).

A changed key is written into the user's own file, or into the last one that was named when the crib was started. It
holds from the next start on. A file of a project is never changed: other users may trust it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final, cast

import anyio
import anyio.to_thread

from ...config import Settings, files, load
from ...config.directories import PROJECT_FOLDER
from ...config.keys import CHANGEABLE, MODEL, check, fixed_by, shown, steps_of, value_of
from ...core.exceptions import ErrorList
from ...core.services.host import Setting
from ...errors import ConfigError, ToolFailure

_YAML: Final = (".yaml", ".yml")

_PROFILES: Final = ("profile", "chat.profile")

_BACKENDS: Final = "tools: {settings: {backends: {NAME: 'provider:model'}}}"


class OwnSettings:
    """The configuration of one crib, for the person who runs it. Changes come one after the other."""

    def __init__(self, settings: Settings, *, has_files: bool, profiles: Callable[[], Collection[str]]) -> None:
        """`has_files` is false for a crib that a program has made; `profiles` are the names that there are."""
        self._settings = settings
        self._has_files = has_files
        self._profiles = profiles
        self._changing = anyio.Lock()

    def all(self) -> Mapping[str, Any]:
        """Return every key that may be shown with its value; see `core.services.host.Configuration`, here and below."""
        return {key: value_of(self._settings, key) for key in shown()}

    def get(self, key: str) -> Setting:
        """Return one setting. Raises `ToolFailure`: `not_found` for an unknown key, `denied` for a secret one."""
        try:
            reason = fixed_by(key)
            if reason == "it holds secrets":
                raise ToolFailure("denied", f"{key} holds secrets: no tool shows it, and no tool changes it")
            return Setting(key=key, value=value_of(self._settings, key), fixed=reason)
        except ConfigError as error:
            raise ToolFailure("not_found", str(error), hint=f"the keys are {', '.join(shown())}") from error

    async def update(self, key: str, value: str | float | bool) -> Setting:
        """Write a setting into the user's file; return it as it will be."""
        if reason := self.get(key).fixed:
            raise ToolFailure(
                "denied",
                f"{key} is not for tools to change: {reason}",
                hint=f"the user can change it in the configuration file; tools can change {', '.join(CHANGEABLE)}",
            )
        if isinstance(value, str) and "${" in value:
            raise ToolFailure("invalid_arguments", f"value: {key} takes no variables here")
        if key in _PROFILES and value not in self._profiles():
            names = ", ".join(sorted(self._profiles()))
            raise ToolFailure("invalid_arguments", f"value: there is no profile {value!r}, only {names}")
        return await self._change(key, value)

    async def switch(self, backend: str) -> Setting:
        """Let `toolcrib chat` ask another of the models that the operator has listed."""
        backends = self._settings.tools.get("settings", {}).get("backends")
        listed = cast("dict[str, Any]", backends) if isinstance(backends, dict) else dict[str, Any]()
        if not listed:
            hint = f"the operator can list them in the configuration: `{_BACKENDS}`"
            raise ToolFailure("unavailable", "no backends are listed here", hint=hint)
        model = listed.get(backend)
        if not isinstance(model, str):
            raise ToolFailure("not_found", f"there is no backend {backend!r}", hint=f"there are {', '.join(listed)}")
        return await self._change(MODEL, model)

    async def _change(self, key: str, value: Any) -> Setting:
        async with self._changing:
            return await anyio.to_thread.run_sync(self._write, key, value)

    def _write(self, key: str, value: Any) -> Setting:
        from ...config.own_file import set_key  # it brings the readers of YAML catalogs: few programs change settings

        steps, file = steps_of(key), self._file()
        nested = value
        for step in reversed(steps[1:]):
            nested = {step: nested}
        errors = ErrorList()
        try:
            check({steps[0]: nested}, {}, errors)
            errors.raise_all()
        except ConfigError as error:
            raise ToolFailure("invalid_arguments", f"value: {error}") from error
        try:
            before = files.read(file) if file.is_file() else None
            content = set_key(file, steps, value)
            files.write(file, content)
            after = self._settled(file, before, key, value)
        except ConfigError as error:
            raise ToolFailure("tool_error", f"nothing was changed: {error}") from error
        return Setting(key=key, value=after, before=value_of(self._settings, key), file=str(file))

    def _settled(self, file: Path, before: bytes | None, key: str, value: Any) -> Any:
        """Return the setting as the file gives it now; a change without effect is taken back."""
        try:
            named = self._named()
            fresh = load(named, environ=self._settings.environment)
            wanted = load([file], environ=self._settings.environment) if file not in named else fresh
            effective, expected = value_of(fresh, key), value_of(wanted, key)
            if effective != expected or file not in fresh.files:
                raise ConfigError("another file says something else, and counts more", file=str(file), key=key)
        except ConfigError:
            if before is None:
                file.unlink()
            else:
                files.write(file, before)
            raise
        return effective

    def _named(self) -> list[Path]:
        """Configuration files named at start; empty if the default locations were searched."""
        own = self._settings.directories.config / "config.yaml"
        return [file for file in self._settings.files if file != own and file.parent.name != PROJECT_FOLDER]

    def _file(self) -> Path:
        if not self._has_files:
            raise ToolFailure("unavailable", "this Toolcrib was made by a program, which says how it is configured")
        named = self._named()
        if not named:
            return self._settings.directories.config / "config.yaml"
        ours = [file for file in named if file.suffix.lower() in _YAML]
        if not ours:
            raise ToolFailure("unavailable", f"{named[-1]} is another program's file: nothing is changed there")
        return ours[-1]
