"""A collection of Bruno, the open-source API client, as a service."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, cast

from anyio import to_thread
from pydantic import Field

from toolcrib.plugin import Context, ToolFailure, Workspace, tool

from .._records import names_of
from .._workspace.place import entry_at, workspace_of
from .bru import Bru, read_bru
from .collection import Collection, Request, described
from .discovering import summary_of
from .shelf import Alias, Service, base_of, keep

__all__ = ["import_bruno_collection"]

_MOST_FILES: Final = 5_000
_MOST_BYTES: Final = 1 << 20
"""Of one file."""
_PROBLEMS: Final = 20


@tool(
    op="x.service.import_bruno",
    category="api",
    kind="write",
    open_world=False,
    idempotent=True,
    needs=["workspace"],
    tags=["bruno", "bru", "rest", "http", "openapi", "endpoints"],
    timeout=120,
    examples=[
        {"path": "api-collection", "service_name": "shop", "environment": "Local"},
        {"path": "api-collection", "service_name": "shop", "base_url": "https://shop.example.org"},
    ],
    policy={
        "edge_cases": [
            "Tokens and passwords that stand in the files are not taken over: configure_service_auth sets up a login.",
            "Scripts and tests of the collection are not run.",
        ]
    },
)
async def import_bruno_collection(
    path: Annotated[str, Field(min_length=1, max_length=1_000)],
    service_name: Alias,
    ctx: Context,
    base_url: Annotated[str, Field(max_length=2_000)] = "",
    environment: Annotated[str, Field(max_length=200)] = "",
) -> dict[str, Any]:
    """Import the requests of a Bruno collection (.bru files) as the endpoints of a service, to look through and call.

    It is kept for later conversations. Returns how many endpoints there are, the logins, and what was left out.

    Args:
        path: Folder of the collection, the one with bruno.json.
        service_name: Alias to call the service by.
        base_url: Address of the service, in the place of the variable that addresses begin with.
        environment: Environment whose variables are filled in; the only one needs no saying.
    """
    workspace = workspace_of(ctx)
    folder, files = await _files(workspace, path)
    read = await workspace.read_many([str(folder / name) for name in files], limit=_MOST_BYTES)
    texts: dict[str, str] = {}
    problems: list[str] = []
    for name, content in zip(files, read, strict=True):
        if isinstance(content, ToolFailure):
            problems.append(f"{name}: {content.message}")
        else:
            texts[name] = content.decode("utf-8", "replace")
    address = base_of(base_url, (), "") if base_url.strip() else ""
    document, more = await to_thread.run_sync(_document, texts, environment.strip(), address, problems)
    if not document["paths"]:
        raise ToolFailure("invalid_arguments", f"path: {path!r} has no request to import; {'; '.join(more[:5])}")
    base = base_of(address, tuple(server["url"] for server in document["servers"]), "")
    made = await ctx.lent.apis.put(ctx.principal, service_name, document)
    service = Service(name=service_name, base_url=base, source=f"Bruno collection {folder}")
    told = summary_of(await keep(ctx, service, made), made)
    return told | ({"left_out": more[:_PROBLEMS], "left_out_total": len(more)} if more else {})


async def _files(workspace: Workspace, path: str) -> tuple[PurePosixPath, list[str]]:
    """Return the folder of a collection and the files in it that belong to it, by their paths below it."""
    entry = await entry_at(workspace, path)
    folder = PurePosixPath(entry.path)
    if entry.kind != "folder":
        folder = folder.parent
    entries = await workspace.walk(str(folder), limit=_MOST_FILES + 1)
    if len(entries) > _MOST_FILES:
        raise ToolFailure(
            "too_large", f"path: {path!r} has more than {_MOST_FILES:,} files", hint="name the collection"
        )
    names = [str(PurePosixPath(one.path).relative_to(folder)) for one in entries if one.kind == "file"]
    if "bruno.json" not in names:
        is_open = "opencollection.yml" in names
        what = "is an OpenCollection (YAML), which is not read" if is_open else "has no bruno.json"
        found = sorted(str(PurePosixPath(name).parent) for name in names if name.endswith("/bruno.json"))
        hint = f"collections below it: {', '.join(found[:10])}" if found else "name the folder with bruno.json"
        raise ToolFailure("invalid_arguments", f"path: {path!r} {what}", hint=hint)
    return folder, sorted(name for name in names if name.endswith(".bru") or name == "bruno.json")


def _document(
    texts: Mapping[str, str], environment: str, base_url: str, problems: list[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the description of a collection and what is wrong with it. Raises `ToolFailure`."""
    settings = _settings(texts.get("bruno.json", ""))
    parsed: dict[str, Bru] = {}
    for name, text in texts.items():
        ignored = any(name == skipped or name.startswith(f"{skipped}/") for skipped in settings["ignore"])
        if not name.endswith(".bru") or ignored:
            continue
        try:
            parsed[name] = read_bru(text)
        except ValueError as error:
            problems.append(f"{name}: not read: {error}")
    environments = {
        PurePosixPath(name).stem: bru for name, bru in parsed.items() if re.fullmatch(r"environments/[^/]+", name)
    }
    chosen = _chosen(environments, environment)
    requests = [
        Request(file=name, bru=bru, folders=_folders(parsed, name))
        for name, bru in sorted(parsed.items(), key=lambda one: (one[0].rpartition("/")[0], _order(one[1]), one[0]))
        if not name.startswith("environments/") and PurePosixPath(name).name not in ("collection.bru", "folder.bru")
    ]
    collection = Collection(
        name=settings["name"],
        root=parsed.get("collection.bru", Bru()),
        variables=environments[chosen].mapping("vars") if chosen else {},
        requests=requests,
    )
    document, more = described(collection, base_url)
    return document, [*problems, *more]


def _settings(text: str) -> dict[str, Any]:
    try:
        read: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ToolFailure("invalid_arguments", f"path: its bruno.json is no JSON: {error}") from None
    given: Mapping[str, Any] = cast("Mapping[str, Any]", read) if isinstance(read, Mapping) else {}
    ignore: Any = given.get("ignore")
    names = cast("Sequence[Any]", ignore) if isinstance(ignore, list) else ()
    return {"name": str(given.get("name") or "collection"), "ignore": [str(name).strip("/") for name in names]}


def _chosen(environments: Mapping[str, Bru], wanted: str) -> str:
    """Return the name of the environment that is used, an empty one for none. Raises `ToolFailure`."""
    if wanted and wanted not in environments:
        raise ToolFailure("not_found", f"environment: there is no {wanted!r}", hint=names_of(sorted(environments)))
    return wanted or (next(iter(environments)) if len(environments) == 1 else "")


def _folders(parsed: Mapping[str, Bru], name: str) -> list[Bru]:
    around = reversed([str(parent) for parent in PurePosixPath(name).parents if str(parent) != "."])
    return [parsed[f"{folder}/folder.bru"] for folder in around if f"{folder}/folder.bru" in parsed]


def _order(bru: Bru) -> float:
    try:
        return float(bru.get("meta", "seq") or "inf")
    except ValueError:
        return float("inf")
