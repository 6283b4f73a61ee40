"""Readers of what a profile discloses: they follow its own verbs and know nothing but the answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from contract.seats import PROFILES
from toolcrib.crib import Session

__all__ = ["discovered", "everything_said"]


async def discovered(session: Session, known: Iterable[str]) -> set[str]:
    """Return the catalog names of all tools that a model of this profile can find.

    `known` are names to ask for where the profile only answers questions: a search, a selection.
    """
    found = await _READERS[session.state.profile](session, known)
    tools = (session.scene.find(name) for name in found)
    return {tool.name for tool in tools if tool is not None}


async def everything_said(session: Session, known: Iterable[str]) -> str:
    """Return all that the profile tells its model: definitions, instructions, and what its verbs answer."""
    said: list[str] = []
    call = session.call

    async def heard(name: str, arguments: Any = None, **options: Any) -> Any:
        result = await call(name, arguments, **options)
        said.append(result.text)
        return result

    session.call = heard  # the answers pass by here, on their way to the reader
    try:
        await _READERS[session.state.profile](session, known)
    finally:
        session.call = call
    return "\n".join([session.listing.decode(), session.instructions, *said])


def _shown(session: Session) -> set[str]:
    return {tool.name for tool in session.tools}


async def _told(session: Session, name: str, arguments: Mapping[str, Any]) -> Any:
    return (await session.call(name, arguments)).structured_content


async def _flat(session: Session, known: Iterable[str]) -> set[str]:
    return _shown(session)


async def _search(session: Session, known: Iterable[str]) -> set[str]:
    found = _shown(session)
    for name in known:
        result = await session.call("search_tools", {"query": name, "limit": 10})
        found |= {line.partition("(")[0] for line in result.text.splitlines() if "(" in line}
    return found


async def _browse(session: Session, known: Iterable[str]) -> set[str]:
    for category in (await _told(session, "browse_tools", {}))["categories"]:
        await _told(session, "load_tools", {"category": category["name"]})
    return _shown(session)


async def _list(session: Session, known: Iterable[str]) -> set[str]:
    for category in (await _told(session, "list_tools", {}))["categories"]:
        listed = await _told(session, "list_tools", {"category": category["name"]})
        names = [tool["name"] for tool in listed["tools"] if tool["enabled"]]
        await _told(session, "get_tool_schemas", {"names": names or ["none"]})
    return _shown(session)


async def _help(session: Session, known: Iterable[str]) -> set[str]:
    found: set[str] = set()
    paths = ["root"]
    while paths:
        path = paths.pop()
        told = await _told(session, "tool_help", {"path": path, "format": "full"})
        if told["type"] == "op":
            found.add(told["tool_name"])
        else:
            paths += [item["name"] for item in told.get("items", ()) if item["name"] != path]
    return found


async def _select(session: Session, known: Iterable[str]) -> set[str]:
    found = _shown(session)
    for name in known:
        session.begin(intent={"required_tools": [name]})
        found |= _shown(session)
    return found


_READERS: Final[Mapping[str, Callable[[Session, Iterable[str]], Awaitable[set[str]]]]] = dict(
    zip(PROFILES, (_search, _flat, _help, _list, _select, _browse), strict=True)
)
