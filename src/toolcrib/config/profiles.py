"""Profiles of the user's own: under `profiles:` in our file, as files in two folders, and as a path in place of a name.

    profiles:
      tiered: {core: [create_task, list_tasks]}      # changes the built-in one
      mine: {extends: introspection, envelope: mcp}  # one of our own

They are data here; the code that builds a profile reports its errors. The environment variables of the
seed systems are read here too: they have the lowest precedence.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from ..core.events import Problem
from ..disclosure.settings import GivenProfile
from ..errors import ConfigError
from ..policy.settings import ApprovalSettings
from . import files as disk
from .directories import PROJECT_FOLDER, Directories
from .trust import Trust, unconfirmed

_FOLDER: Final = "profiles"
_SUFFIXES: Final = (".yaml", ".yml")
_ON: Final = frozenset({"1", "on", "true", "yes"})
_OFF: Final = frozenset({"0", "false", "no", "off"})

_DEFERRED: Final = "JAATO_DEFERRED_TOOLS"
"""Seed 003: false shows all tools of `introspection` at once."""
_PARALLEL: Final = "JAATO_PARALLEL_TOOLS"
"""Seed 003: false runs the calls of `introspection` one after the other."""
_PERMISSION_TIMEOUT: Final = "JAATO_PERMISSION_TIMEOUT"
"""Seed 003: seconds that an approver has."""
_GATEWAY: Final = "AGENTIC_CHAT_TOOL_GATEWAY"
"""Seed 001: on makes `gateway` the default profile, off switches that profile to the plain list."""


def together(earlier: Mapping[str, GivenProfile], later: Mapping[str, GivenProfile]) -> dict[str, GivenProfile]:
    """Return both; of a profile in both, the later one's keys win."""
    both = dict(earlier)
    for name, given in later.items():
        before = both.get(name)
        values = {**before.values, **given.values} if before else given.values
        both[name] = GivenProfile(name=name, values=values, file=given.file)
    return both


def chosen(values: Mapping[str, Any], folder: Path, trust: Trust | None = None) -> Mapping[str, Any]:
    """Return `values` with the name of a profile where `profile` is the path of one, and that profile beside it.

    A relative path counts from `folder`. With `trust`, that file came with a project: it may allow everything, so that
    it has to be confirmed as well. Raises `ConfigError` for one that is not, and for an invalid one.
    """
    path = named_profile(values, folder)
    if path is None:
        return values
    content = disk.read(path)
    if trust is not None:
        trust.require(path, content, "profile")
    given = _parsed(path, content)
    profiles = together(values.get("profiles", {}), {given.name: given})
    return {**values, "profile": given.name, "profiles": profiles}


def named_profile(values: Mapping[str, Any], folder: Path) -> Path | None:
    """Return the file of the profile that `values` name by its path; None where they name none so."""
    profile = values.get("profile")
    if not isinstance(profile, str) or not ("/" in profile or "\\" in profile or profile.endswith(_SUFFIXES)):
        return None
    return folder / os.path.expanduser(profile)


def read_profile(path: Path) -> GivenProfile:
    """Return the profile in a file, named by its `name` or after the file. Raises `ConfigError`."""
    return _parsed(path, disk.read(path))


def profile_files(root: Path | None) -> list[Path]:
    """Return the files of a folder that holds `profiles/`, in the order of their names."""
    folder = root / _FOLDER if root else None
    if folder is None or not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file())


def found_profiles(directories: Directories, project: Path | None, problems: list[Problem]) -> dict[str, GivenProfile]:
    """Return the user's profiles and those of a project that the user has confirmed; the project's win.

    A file that cannot be read, or that is not confirmed, is a problem and hides no other.
    """
    found: dict[str, GivenProfile] = {}
    for path, content in _readable(directories, project, problems):
        try:
            given = _parsed(path, content)
        except ConfigError as error:
            problems.append(Problem(source=str(path), code="bad_config", message=str(error)))
        else:
            found = together(found, {given.name: given})
    return found


def environment_values(environ: Mapping[str, str], problems: list[Problem]) -> dict[str, Any]:
    """Return the values of the seed systems' variables by our keys; an invalid one is a problem."""
    values: dict[str, Any] = {}
    introspection: dict[str, Any] = {}
    if _flag(environ, _DEFERRED, problems) is False:
        introspection["progressive"] = False
    if _flag(environ, _PARALLEL, problems) is False:
        introspection["parallel"] = 1
    gateway = _flag(environ, _GATEWAY, problems)
    if gateway:
        values["profile"] = "gateway"
    seconds = _seconds(environ, problems)
    if seconds is not None:
        values["approvals"] = ApprovalSettings.model_construct({"timeout"}, timeout=seconds)
    given = {"introspection": introspection, "gateway": {"progressive": False} if gateway is False else {}}
    values["profiles"] = {
        name: GivenProfile(name=name, values=keys, file="environment") for name, keys in given.items() if keys
    }
    return values


def _parsed(path: Path, content: bytes) -> GivenProfile:
    data: Any = disk.parse(content, str(path)).plain()
    if not isinstance(data, dict):
        raise ConfigError("a profile is a mapping of keys to values", file=str(path))
    values = cast("dict[str, Any]", data)
    name = values.get("name", path.stem)
    if not isinstance(name, str) or not name:
        raise ConfigError("a name was expected", file=str(path), key="name")
    return GivenProfile(name=name, values=values, file=str(path))


def _readable(directories: Directories, project: Path | None, problems: list[Problem]) -> Iterator[tuple[Path, bytes]]:
    trust = Trust(directories)
    own = [(path, False) for path in profile_files(directories.config)]
    theirs = [(path, True) for path in profile_files(project / PROJECT_FOLDER if project else None)]
    for path, needs_trust in (*own, *theirs):
        try:
            content = disk.read(path)
        except ConfigError as error:
            problems.append(Problem(source=str(path), code="bad_config", message=str(error)))
            continue
        if needs_trust and not trust.covers(path, content):
            problems.append(unconfirmed(path, f"{path} "))
        else:
            yield path, content


def _flag(environ: Mapping[str, str], name: str, problems: list[Problem]) -> bool | None:
    """Return the value of a variable; None when it is not set or not valid."""
    text = environ.get(name, "").strip().lower()
    if text in _ON or text in _OFF:
        return text in _ON
    if text:
        problems.append(_senseless(name, environ[name], "true or false"))
    return None


def _seconds(environ: Mapping[str, str], problems: list[Problem]) -> float | None:
    text = environ.get(_PERMISSION_TIMEOUT, "").strip()
    try:
        seconds = float(text) if text else None
    except ValueError:
        seconds = 0.0
    if seconds is None or 0 < seconds < float("inf"):
        return seconds
    problems.append(_senseless(_PERMISSION_TIMEOUT, text, "seconds above 0"))
    return None


def _senseless(name: str, text: str, expected: str) -> Problem:
    message = f"{name}={text[:40]!r} is not used: {expected} was expected"
    return Problem(source="environment", code="bad_config", message=message)
