"""Readers of what a profile discloses: they follow its own verbs and know nothing but the answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from toolcrib.crib import Session


async def discovered(session: Session, known: Iterable[str]) -> set[str]:
    """Return the catalog names of all tools that a model of this profile can find.

    `known` are names to ask for where the profile only answers questions: a search, a selection.
    """
    found = await _Reader(session, known).read()
    tools = (session.visible.find(name) for name in found)
    return {tool.name for tool in tools if tool is not None}


async def everything_said(session: Session, known: Iterable[str]) -> str:
    """Return all that the profile tells its model: definitions, instructions, and what its verbs answer."""
    reader = _Reader(session, known)
    before = session.listing.decode()
    await reader.read()
    return "\n".join([before, session.listing.decode(), session.instructions, *reader.heard])


class _Reader:
    """Asks by the verbs of the session's profile, whatever they are called, and keeps what it hears."""

    def __init__(self, session: Session, known: Iterable[str]) -> None:
        self.heard: list[str] = []
        self._session = session
        self._known = list(known)

    async def read(self) -> set[str]:
        """Return the names that the profile gives to what was found."""
        return await _WAYS[self._session.visible.profile.strategy](self)

    @property
    def shown(self) -> set[str]:
        return {tool.name for tool in self._session.tools}

    async def ask(self, verb: str, **arguments: Any) -> Any:
        """Return what a verb answers: structured content, else text."""
        result = await self._session.call(self._session.visible.profile.verbs[verb], arguments)
        self.heard.append(result.text)
        return result.text if result.structured_content is None else result.structured_content

    async def flat(self) -> set[str]:
        return self.shown

    async def adaptive(self) -> set[str]:
        found = self.shown
        if self._session.visible.profile.verbs["search"] not in found:
            return found
        for name in self._known:
            lines = str(await self.ask("search", query=name, limit=10)).splitlines()
            found |= {line.partition("(")[0] for line in lines if "(" in line}
        return found

    async def tiered(self) -> set[str]:
        for category in (await self.ask("browse"))["categories"]:
            await self.ask("load", category=category["name"])
        return self.shown

    async def introspection(self) -> set[str]:
        for category in (await self.ask("list"))["categories"]:
            listed = await self.ask("list", category=category["name"])
            await self.ask("schemas", names=[tool["name"] for tool in listed["tools"] if tool["enabled"]] or ["none"])
        return self.shown

    async def gateway(self) -> set[str]:
        found: set[str] = set()
        paths = ["root"]
        while paths:
            path = paths.pop()
            told = await self.ask("help", path=path, format="full")
            if told["type"] == "op":
                found.add(told["tool_name"])
            else:
                paths += [item["name"] for item in told.get("items", ()) if item["name"] != path]
        return found

    async def selection(self) -> set[str]:
        found = self.shown
        for name in self._known:
            self._session.begin(intent={"required_tools": [name]})
            found |= self.shown
        return found


_WAYS: Final[Mapping[str, Callable[[_Reader], Awaitable[set[str]]]]] = {
    "adaptive": _Reader.adaptive,
    "flat": _Reader.flat,
    "gateway": _Reader.gateway,
    "introspection": _Reader.introspection,
    "selection": _Reader.selection,
    "tiered": _Reader.tiered,
}
