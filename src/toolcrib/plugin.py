"""The interface for guests, and their arrival: a package names itself under the entry point group `toolcrib.tools`.

    [project.entry-points."toolcrib.tools"]
    weather = "weather_tools"

The target is anything that `Toolcrib.add` takes: a function, a module, an object with `@tool` methods, a list of them.
A package stands for its modules, so that a new tool is a new file. A guest that cannot be loaded is reported with its
reason, and hides nothing else.

Tools that need a configuration, a beginning and an end are a `Plugin`, under the group `toolcrib.plugins`. Commands,
REST resources and services have groups of their own: `core.services.contributions`.

    # weather_tools/__init__.py
    from toolcrib.plugin import tool

    @tool(kind="read")
    async def forecast(city: str) -> str:
        "Weather forecast of a city."
        return f"{city}: sun"

`crib.plugins` loads the guests when it collects the sources of a crib, in the order of their names. A package that
declares its tools static is listed without an import (`sources.python.static_tools`).
"""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Final

from msgspec import Struct

from .core.call_guards import Signal
from .core.context import Context
from .core.documents.yaml import parse_yaml
from .core.elicitation import DISMISSED, Blank
from .core.entry_points import folder_of, installed, origin_of
from .core.events import Problem
from .core.exceptions import innermost, reason_of
from .core.json import as_list, as_mapping, dumps, read_json
from .core.processes import is_alive
from .core.result import PAGE_BYTES, ToolResult, fit_page
from .core.sandbox import KEEPS_SHELL, SHELL_FOLDER, Command, Finished, Reach, Running, Sandbox, guides_programs
from .core.sanitize import clip, escape
from .core.schema import FieldError, Validator, compile_schema, invalid_argument
from .core.services.apis import ApiPlace, ApiRequest, Apis, Described, Endpoint
from .core.services.console_view import ConsoleView, ViewFields, ViewForm, ViewLink, ViewPage, ViewTable, ViewText
from .core.services.contributions import (
    CommandHost,
    RestResource,
    RestRoute,
    Service,
    ServiceHost,
    SignatureCheck,
    SignedCall,
    SignedRequest,
    ToolCaller,
)
from .core.services.host import SESSIONS, Host, Page, ServedTools, Web
from .core.services.named_rows import finds_rows, id_named, rehearsal, takes_names
from .core.services.records import Record, Records
from .core.services.schedules import Schedule, Schedules
from .core.services.shared_storage import (
    Event,
    EventLog,
    Member,
    Role,
    Row,
    Rows,
    Schema,
    SharedStorage,
    Table,
    TextHit,
)
from .core.session import LOCAL
from .core.similar import did_you_mean, nearest
from .core.workspace import FileEntry, OpenFile, Workspace, Written
from .errors import ToolFailure, UsageError
from .net.urls import climbs
from .results.untrusted_text import fenced_text
from .sources.plugins import Plugin, Services
from .sources.python.declaration import find, tool
from .sources.python.static_tools import Loading, Part, Place, kept_tools
from .system.tasks import Background
from .workspace.git import harmless as harmless_git
from .workspace.marked_workspace import note_shown, unshown

__all__ = [
    "DISMISSED",
    "GROUP",
    "KEEPS_SHELL",
    "LOCAL",
    "PAGE_BYTES",
    "SESSIONS",
    "SHELL_FOLDER",
    "ApiPlace",
    "ApiRequest",
    "Apis",
    "Background",
    "Blank",
    "Command",
    "CommandHost",
    "ConsoleView",
    "Context",
    "Described",
    "Endpoint",
    "Event",
    "EventLog",
    "FieldError",
    "FileEntry",
    "Finished",
    "Guest",
    "Host",
    "Member",
    "OpenFile",
    "Page",
    "Plugin",
    "Reach",
    "Record",
    "Records",
    "RestResource",
    "RestRoute",
    "Role",
    "Row",
    "Rows",
    "Running",
    "Sandbox",
    "Schedule",
    "Schedules",
    "Schema",
    "ServedTools",
    "Service",
    "ServiceHost",
    "Services",
    "SharedStorage",
    "Signal",
    "SignatureCheck",
    "SignedCall",
    "SignedRequest",
    "Table",
    "TextHit",
    "ToolCaller",
    "ToolFailure",
    "ToolResult",
    "UsageError",
    "Validator",
    "ViewFields",
    "ViewForm",
    "ViewLink",
    "ViewPage",
    "ViewTable",
    "ViewText",
    "Web",
    "Workspace",
    "Written",
    "as_list",
    "as_mapping",
    "climbs",
    "clip",
    "compile_schema",
    "did_you_mean",
    "dumps",
    "escape",
    "fenced_text",
    "finds_rows",
    "fit_page",
    "guides_programs",
    "harmless_git",
    "id_named",
    "innermost",
    "invalid_argument",
    "is_alive",
    "load_entry_points",
    "nearest",
    "note_shown",
    "parse_yaml",
    "read_json",
    "rehearsal",
    "takes_names",
    "tool",
    "unshown",
]

_logger = logging.getLogger(__name__)

GROUP: Final = "toolcrib.tools"
_MODULES: Final = "TOOL_MODULES"


class Guest(Struct, frozen=True, kw_only=True):
    """Something to add, and who brought it."""

    origin: str
    """Distribution, version and entry point: `weather-tools 1.2 (weather)`."""
    thing: object
    name: str = ""
    """Name of the entry point."""


def load_entry_points(group: str = GROUP) -> tuple[tuple[Guest, ...], tuple[Problem, ...]]:
    """Load every guest of `group`, in the order of their names; return them, and what could not be loaded.

    Runs the guests' own import code: for installed packages, which the operator chose.

    An exception at the import of a guest, `SystemExit` included, becomes a problem. Blocks.
    """
    guests: list[Guest] = []
    problems: list[Problem] = []
    unchanged = set[Place]()
    for point in installed(group):
        origin = origin_of(point)
        folder = None if point.attr else folder_of(point)
        parts = None if folder is None else kept_tools(folder, unchanged)
        for name, thing in _load(point, origin, problems) if parts is None else parts:
            guests.append(Guest(origin=f"{origin}, {name}" if name else origin, thing=thing, name=point.name))
    return tuple(guests), tuple(problems)


def _load(point: EntryPoint, origin: str, problems: list[Problem]) -> Sequence[Part]:
    """Return the parts of a guest: a package without tools of its own has one for each of its modules with tools.

    `TOOL_MODULES` of the package names them; without it they are all in its folder, but for names with `_`.
    """
    loading = Loading.now()
    try:
        thing = point.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a guest may break in any way
        problems.append(_problem(origin, error))
        return ()
    if not (isinstance(thing, ModuleType) and hasattr(thing, "__path__")):
        return [("", thing)]
    if _has_tools(thing):
        return loading.parts(thing, [("", thing)])
    failed = len(problems)
    parts = _load_modules(thing, origin, problems)
    return loading.parts(thing, parts) if len(problems) == failed else parts


def _has_tools(module: ModuleType) -> bool:
    try:
        return bool(find(module))
    except UsageError:
        return False


def _load_modules(package: ModuleType, origin: str, problems: list[Problem]) -> Sequence[Part]:
    parts: list[Part] = []
    in_folder = sorted(info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_"))
    for name in getattr(package, _MODULES, in_folder):
        try:
            parts.append((name, import_module(f"{package.__name__}.{name}")))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a guest may break in any way
            problems.append(_problem(f"{origin}, {name}", error))
    return parts


def _problem(origin: str, error: BaseException) -> Problem:
    _logger.warning("guest %s cannot be loaded", origin, exc_info=error)
    message = f"{origin} cannot be loaded: {reason_of(error)}"
    hint = "Correct, update or uninstall the package."
    return Problem(source="plugins", code="unavailable", message=message, hint=hint)
