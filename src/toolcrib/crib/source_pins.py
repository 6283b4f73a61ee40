"""Pins of sources: what of each was reviewed, as earlier runs and other processes wrote it down."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Iterable, Mapping
from typing import Final

from ..catalog.pins import pin_of, seen_of
from ..core.tool import Tool
from ..store.definitions import Pin, Pins

INSTRUCTIONS: Final = "@instructions"
"""The name under which a server's instructions are pinned: no tool can have it."""


class SourcePins:
    """The pins by source and tool. Lives as long as its crib."""

    def __init__(self, stored: Pins) -> None:
        self._stored = stored
        self._pins: dict[str, dict[str, bytes]] = {}
        self._instructions: dict[str, bytes] = {}
        self._names: dict[str, str] = {}

    async def load(self) -> None:
        """Add those of the store."""
        for pin in await self._stored.all():
            if pin.tool == INSTRUCTIONS:
                self.take_instructions(pin)
            else:
                self._pins.setdefault(pin.source, {})[pin.tool] = pin.digest

    def identify(self, source: str, identity: str) -> None:
        """Note the identity of `source` behind its name: its pins do not count for another source of that name."""
        self._names[source] = f"{source} {identity}"

    def is_identified(self, source: str) -> bool:
        """Whether the identity of `source` is known: it is one of a configuration, not one that a developer mounted."""
        return source in self._names

    def name_of(self, source: str) -> str:
        """Return the name that a source has in its pins."""
        return self._names.get(source, source)

    def is_known(self, source: str) -> bool:
        """Whether anything of `source` was reviewed."""
        return self.name_of(source) in self._pins

    def of(self, source: str, tools: Iterable[Tool]) -> Mapping[str, bytes]:
        """Return the pins of a source by local name; of one that was configured otherwise those of `tools` that fit."""
        pins = self._pins.get(self.name_of(source))
        return self._known_by_name(source, tools) if pins is None else pins

    def instructions(self, source: str) -> bytes | None:
        """Return the digest of the instructions that were reviewed."""
        return self._instructions.get(self.name_of(source))

    def take(self, source: str, pins: Iterable[Pin]) -> None:
        """Count these as reviewed."""
        self._pins.setdefault(self.name_of(source), {}).update({pin.tool: pin.digest for pin in pins})

    def take_instructions(self, pin: Pin) -> None:
        """Count instructions as reviewed."""
        self._instructions[pin.source] = pin.digest

    def make(self, source: str, tools: Iterable[Tool], *, by: str) -> Generator[None, None, list[Pin]]:
        """Return pins of tools of a source as they are now, in steps of one tool."""
        now = time.time()
        pinned_as = self.name_of(source)
        pins: list[Pin] = []
        for tool in tools:
            digest, definition = pin_of(tool), seen_of(tool)
            pins.append(
                Pin(source=pinned_as, tool=tool.local_name, digest=digest, definition=definition, accepted=now, by=by)
            )
            yield
        return pins

    def of_instructions(self, source: str, text: str, *, by: str) -> Pin:
        """Return the pin of the instructions of a source."""
        return Pin(
            source=self.name_of(source),
            tool=INSTRUCTIONS,
            digest=hashlib.sha256(text.encode("utf-8", "replace")).digest(),
            definition={"instructions": text},
            accepted=time.time(),
            by=by,
        )

    def of_nothing(self, source: str) -> Pin:
        """Return the pin that says of a source without tools that it was reviewed."""
        return Pin(source=self.name_of(source), tool="", digest=b"", definition={}, accepted=time.time(), by="accept")

    def _known_by_name(self, source: str, tools: Iterable[Tool]) -> dict[str, bytes]:
        """Return the pins of tools that were reviewed word for word when `source` was configured otherwise.

        A changed argument of a server asks for no second review of what it left alone.
        """
        earlier = [pins for key, pins in self._pins.items() if key.partition(" ")[0] == source]
        known: dict[str, bytes] = {}
        for tool in tools if earlier else ():
            pin = pin_of(tool)
            if any(pins.get(tool.local_name) == pin for pins in earlier):
                known[tool.local_name] = pin
        return known
