"""Profiles of sub-agents: files that name a role, its instructions, and the tools that it is restricted to.

    # ~/.config/toolcrib/agents/reviewer.yaml, or .toolcrib/agents/reviewer.yaml in a project
    description: Reads changes and says what is wrong with them
    tools: [git, read_file, search]
    system_instructions: Review the change. Name file and line of each finding.
    max_turns: 3

A profile takes away and never gives: its tools are those that the parent has too. Profiles of a project came with its
files, as `AGENTS.md` does: they choose no model, and their instructions are marked as the project's. One that a tainted
session wrote is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, cast

from anyio import to_thread
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from toolcrib import Session
from toolcrib.errors import ConfigError, ToolFailure
from toolcrib.plugin import nearest, parse_yaml

_PROFILE_FOLDER: Final = "agents"
_FILE_ENDINGS: Final = (".yaml", ".yml", ".json")
_MAX_FILE_BYTES: Final = 64 * 1024
"""Bytes of a profile's file."""
_MAX_FILES: Final = 100
"""Profiles of a folder that are read."""
_NAME_PATTERN: Final = r"^[A-Za-z0-9][\w.-]{0,63}$"
_IGNORED_KEY: Final = "auto_approved"
"""A key of the original: here a profile approves nothing, each call of a sub-agent is decided as its parent's."""

_NonEmptyText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class SubAgentProfile(BaseModel):
    """The keys of a profile's file."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str = Field(default="", pattern=_NAME_PATTERN)
    description: str = Field(default="", max_length=1000)
    tools: list[_NonEmptyText] | None = None
    """Names or categories of tools; None is every tool of the parent."""
    plugins: list[_NonEmptyText] | None = None
    """Categories or names, as `tools`; both are taken together."""
    model: str = ""
    system_instructions: str = ""
    max_turns: int | None = Field(default=None, ge=1)
    extends: str = ""
    """Another profile; what this one leaves out is that one's, and its tools are those in both lists."""


class LoadedProfile(Struct, frozen=True, kw_only=True):
    """A profile with what it extends."""

    name: str
    path: str
    values: SubAgentProfile
    restrictions: tuple[tuple[str, ...], ...] = ()
    """Lists of tools; a sub-agent has what is in each of them."""
    is_from_project: bool = False
    """True if it, or one that it extends, is the project's."""


class ProfileReport(Struct, frozen=True, kw_only=True):
    """Problems of a profile's file."""

    path: str
    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    profile: SubAgentProfile | None = None


class _ProfileFile(Struct, frozen=True, kw_only=True):
    path: str
    text: str
    is_from_project: bool
    distrust_reason: str = ""
    """Reason why its text is not used: a tainted session wrote it."""


async def list_profiles(session: Session) -> list[dict[str, Any]]:
    """Return name, description and state of each profile that the session's sub-agents may have."""
    files = await _read_files(session)
    listed: list[dict[str, Any]] = []
    for name, file in sorted(files.items()):
        report = _check_file(file, files, session)
        values = report.profile or SubAgentProfile()
        entry: dict[str, Any] = {"name": name, "description": values.description, "path": file.path}
        entry["scope"] = "project" if file.is_from_project else "user"
        if values.tools or values.plugins:
            entry["tools"] = [*(values.tools or ()), *(values.plugins or ())]
        if values.max_turns is not None:
            entry["max_turns"] = values.max_turns
        if report.errors:
            entry["errors"] = list(report.errors)
        listed.append(entry)
    return listed


async def find_profile(session: Session, name: str) -> LoadedProfile:
    """Return the profile of that name with what it extends. Raises `ToolFailure` if it is missing or wrong."""
    files = await _read_files(session)
    if name not in files:
        close = nearest(name, files, 3)
        known = f"did you mean {', '.join(close)}?" if close else f"profiles: {', '.join(sorted(files)) or 'none'}"
        raise ToolFailure("not_found", f"there is no sub-agent profile {name!r}", hint=known)
    report = _check_file(files[name], files, session)
    if report.errors or report.profile is None:
        raise ToolFailure(
            "invalid_arguments", f"the profile {name} cannot be used: {'; '.join(report.errors)}", hint=report.path
        )
    return _merge_chain(name, files)


async def validate_file(session: Session, path: str) -> ProfileReport:
    """Check the profile in a file of the workspace. Raises `ToolFailure` if the file cannot be read."""
    workspace = session.state.files.workspace
    if workspace is None:
        raise ToolFailure("unavailable", "this session has no workspace to read the file in")
    try:
        content = await workspace.read(path, limit=_MAX_FILE_BYTES)
    except ToolFailure as failure:
        if failure.code != "too_large":
            raise
        return ProfileReport(path=path, errors=(f"the file is larger than {_MAX_FILE_BYTES // 1024} KiB",))
    file = _ProfileFile(path=path, text=content.decode("utf-8", "replace"), is_from_project=True)
    files = await _read_files(session)
    return _check_file(file, files, session)


def resolve_tools(session: Session, words: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the catalog names that the words mean in the session, and the words that mean none."""
    visible = session.visible
    names, unknown = set[str](), list[str]()
    tools = list(visible.tools())
    for word in words:
        tool = visible.find(word)
        found = {one.name for one in tools if word in (one.category, one.source, visible.category(one))}
        if tool is not None:
            found.add(tool.name)
        names |= found
        if not found:
            unknown.append(word)
    return frozenset(names), tuple(unknown)


def _check_file(file: _ProfileFile, files: Mapping[str, _ProfileFile], session: Session) -> ProfileReport:
    """Return the problems of one file, and of the profiles that it extends."""
    errors, warnings = list[str](), list[str]()
    profile = _parse(file, errors, warnings)
    if profile is None:
        return ProfileReport(path=file.path, errors=tuple(errors), warnings=tuple(warnings))
    stem = Path(file.path).name.rpartition(".")[0]
    if profile.name and profile.name != stem:
        warnings.append(f"name: the profile is spawned by the name of its file, {stem}, not {profile.name}")
    if profile.model and file.is_from_project:
        errors.append("model: a profile of a project chooses no model; move the profile to your own folder")
    _, unknown = resolve_tools(session, [*(profile.tools or ()), *(profile.plugins or ())])
    for word in unknown:
        close = nearest(word, {one for tool in session.visible.tools() for one in (tool.name, tool.category)} - {""}, 1)
        meant = f"; did you mean {close[0]}?" if close else ""
        warnings.append(f"tools: no tool and no category {word!r} in this session{meant}")
    if not profile.description:
        warnings.append("description: empty, so that a model cannot tell what the profile is for")
    seen, next_name = [stem], profile.extends
    while next_name:
        if next_name in seen:
            errors.append(f"extends: {' extends '.join([*seen, next_name])}, which has no end")
            break
        if next_name not in files:
            errors.append(f"extends: there is no profile {next_name!r}")
            break
        problems = list[str]()
        parent = _parse(files[next_name], problems, [])
        errors += [f"extends {next_name}: {problem}" for problem in problems]
        seen.append(next_name)
        next_name = parent.extends if parent is not None else ""
    return ProfileReport(path=file.path, errors=tuple(errors), warnings=tuple(warnings), profile=profile)


def _parse(file: _ProfileFile, errors: list[str], warnings: list[str]) -> SubAgentProfile | None:
    if file.distrust_reason:
        errors.append(file.distrust_reason)
        return None
    try:
        document: Any = parse_yaml(file.text, Path(file.path).name).plain()
    except (ConfigError, ValueError) as error:
        errors.append(str(error))
        return None
    if not isinstance(document, dict):
        errors.append("a profile is a mapping of keys: description, tools, system_instructions …")
        return None
    values: dict[str, Any] = {str(key): value for key, value in cast("dict[Any, Any]", document).items()}
    if values.pop(_IGNORED_KEY, None) is not None:
        warnings.append(f"{_IGNORED_KEY}: without effect; each call of a sub-agent is decided as a call of its parent")
    try:
        return SubAgentProfile.model_validate(values)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            place = ".".join(map(str, one["loc"]))
            if one["type"] == "extra_forbidden":
                close = nearest(place, SubAgentProfile.model_fields, 1)
                meant = f"; did you mean {close[0]}?" if close else ""
                errors.append(f"{place}: there is no such key{meant}")
            else:
                errors.append(f"{place}: {one['msg'][:1].lower()}{one['msg'][1:]}")
        return None


def _merge_chain(name: str, files: Mapping[str, _ProfileFile]) -> LoadedProfile:
    """Return a checked profile with what it extends."""
    chain = list[tuple[_ProfileFile, SubAgentProfile]]()
    next_name = name
    while next_name:
        file = files[next_name]
        values = _parse(file, [], [])
        assert values is not None  # `_check_file` has parsed it
        chain.append((file, values))
        next_name = values.extends
    merged: dict[str, Any] = {}
    for _, values in reversed(chain):
        merged |= values.model_dump(exclude_unset=True, exclude={"tools", "plugins", "extends"})
    restrictions = [
        (*(values.tools or ()), *(values.plugins or ()))
        for _, values in chain
        if values.tools is not None or values.plugins
    ]
    model_file = next((file for file, values in chain if values.model), None)
    if model_file is not None and model_file.is_from_project:
        merged["model"] = ""
    turns = [values.max_turns for _, values in chain if values.max_turns is not None]
    merged["max_turns"] = min(turns, default=None)
    return LoadedProfile(
        name=name,
        path=chain[0][0].path,
        values=SubAgentProfile(**merged),
        restrictions=tuple(restrictions),
        is_from_project=any(file.is_from_project for file, _ in chain),
    )


async def _read_files(session: Session) -> dict[str, _ProfileFile]:
    """Return the files of profiles by name: the user's, and the project's where the user has none of that name."""
    found = await _read_project_files(session)
    own = session.parts.settings.directories.config / _PROFILE_FOLDER
    return found | await to_thread.run_sync(_read_user_files, own)


def _read_user_files(folder: Path) -> dict[str, _ProfileFile]:
    found: dict[str, _ProfileFile] = {}
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in _FILE_ENDINGS)
    except OSError:
        return found
    for path in paths[:_MAX_FILES]:
        try:
            with path.open("rb") as file:
                text = file.read(_MAX_FILE_BYTES).decode("utf-8", "replace")
        except OSError:
            continue
        found.setdefault(path.stem, _ProfileFile(path=str(path), text=text, is_from_project=False))
    return found


async def _read_project_files(session: Session) -> dict[str, _ProfileFile]:
    """Read through the workspace: a file that the session may not read is not a profile of it either."""
    workspace = session.state.files.workspace
    found: dict[str, _ProfileFile] = {}
    if workspace is None:
        return found
    for root in workspace.roots:
        folder = root / ".toolcrib" / _PROFILE_FOLDER
        try:
            entry = await workspace.stat(str(folder))
            entries: Sequence[Any] = await workspace.list(str(folder)) if entry is not None else ()
        except ToolFailure:
            continue
        for one in [one for one in entries if Path(one.path).suffix in _FILE_ENDINGS][:_MAX_FILES]:
            path = folder / Path(one.path).name
            try:
                content = await workspace.read(str(path), limit=_MAX_FILE_BYTES)
            except ToolFailure:
                continue
            text = content.decode("utf-8", "replace")
            mark = await session.parts.file_marks.of_read(path, content)
            reason = f"it is untrusted: it is {mark.reason}; `toolcrib guard accept {path}` by a person" if mark else ""
            found.setdefault(
                path.stem, _ProfileFile(path=str(path), text=text, is_from_project=True, distrust_reason=reason)
            )
    return found
