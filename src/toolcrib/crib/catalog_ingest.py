"""Ingest of the catalog: a source's listing is reviewed by the lock or the pins, and named by the registry.

    Source.open(publish)  ─►  ToolRegistry  ─►  CatalogIngest.publish
                                                   │  short listings and our own at once, long ones in slices
                                                   │  beside everything else (`ListingQueue`)
                          _review                  accepted │ withheld │ used without a review
                          SourcePins.make          pins of definitions that are seen for the first time
                          Registry.claim           names, free of collisions
    ── in force ────────  Registry.take            new catalog ─► listeners of `on_change`

Up to the line nothing is changed, so that a newer listing of the source, or a new pin, begins it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, cast

import anyio
from msgspec.structs import replace

from ..catalog.catalog import About
from ..catalog.pins import Review, difference, pin_of, reviewing, seen_of
from ..catalog.preflight import text_findings
from ..catalog.registry import Registry
from ..catalog.resources import FeatureRegistry
from ..core.builds import build_at_once
from ..core.events import CatalogChanged, Listeners, Problem
from ..core.json import dumps_or_none
from ..core.sanitize import escape
from ..core.server_features import NO_FEATURES
from ..core.tool import Tool
from ..errors import ToolFailure, UsageError
from ..sources.listing_queue import ListingQueue
from ..sources.source import Amendment, Listing
from ..store.store import Store
from ..system.tasks import Background
from .enforced_lock import EnforcedLock
from .problem_summaries import summaries
from .source_pins import INSTRUCTIONS, SourcePins

_LOOK_AGAIN: Final = 2.0
"""Seconds between two looks at what others have accepted, while something is withheld."""

_TAKEN_AT_ONCE: Final = 100
"""Tools of a listing that is taken in one go, 0.04 ms each; a longer one is made ready in slices."""

_QUOTED: Final = 500
"""Characters of withheld instructions that their problem quotes."""

_logger = logging.getLogger(__name__)


class CatalogIngest:
    """Takes listings. One for a crib, used from its event loop."""

    def __init__(
        self, registry: Registry, waiting: ListingQueue, store: Store, locking: EnforcedLock, *, guarded: bool
    ) -> None:
        """`store` keeps the pins over a restart; if there is a lock, only what it says counts as reviewed.

        Without `guarded`, definitions that need a review are reported, logged and used; a lock withholds all the same.
        """
        self._withholds = guarded or locking.is_on
        self._unreviewed: dict[str, frozenset[str]] = {}
        """By source the tools that are used without a review."""
        self._reported: dict[str, list[Problem]] = {}
        self.locking = locking
        """Entries of the lock."""
        self._registry = registry
        self._store = store
        self._pins = SourcePins(store.pins)
        self._listings: dict[str, Listing] = {}
        self._judged: set[str] = set()
        """Sources whose definitions need a review."""
        self._amended: dict[str, dict[str, Tool | None]] = {}
        """By source and name what changed since its listing; None is gone."""
        self._listeners = Listeners[CatalogChanged]()
        self.waiting = waiting
        """Long listings that are made ready."""
        self.features = FeatureRegistry()
        """Resources and prompts of sources; a source of which nothing was reviewed has none here."""
        self._feature_listeners: list[Callable[[], None]] = []

    def on_features(self, listener: Callable[[], None]) -> None:
        """Call `listener` when `features` changed, before the listeners of the catalog."""
        self._feature_listeners.append(listener)

    async def open(self, stack: AsyncExitStack) -> None:
        """Read the pins that earlier runs wrote down, and follow those that other processes write."""
        await self._load_pins()
        await self.waiting.open(stack)
        tasks = Background()
        await tasks.start()
        stack.push_async_callback(tasks.stop)
        tasks.spawn(self._follow)

    def is_unreviewed(self, tool: Tool) -> bool:
        """Whether the tool is in use although its definition is unreviewed."""
        return tool.local_name in self._unreviewed.get(tool.source, ())

    def may_have_resources(self, source: str) -> bool:
        """Whether a source has listed resources, withheld ones too, or nothing yet; a cached list counts."""
        listing = self._listings.get(source)
        return listing is None or listing.features.reads

    def identify(self, source: str, identity: str) -> None:
        """Note the identity of `source` behind its name: its pins do not count for another source of that name."""
        self._pins.identify(source, identity)

    def publish(self, source: str, listing: Listing, *, accept: bool, trusted: bool) -> None:
        """Take a listing. `trusted` sources are our own code: their definitions need no review.

        A long one of others is in force when `waiting` has it no more, whole and in one step: until then the listing
        before it is.
        """
        take = partial(self._take, source, listing, accept=accept, trusted=trusted)
        if trusted or len(listing.tools) <= _TAKEN_AT_ONCE or not self.waiting.is_open:
            self.waiting.drop(source)
            build_at_once(take())
        else:
            self.waiting.put(source, take, is_first=source not in self._listings)

    def _take(self, source: str, listing: Listing, *, accept: bool, trusted: bool) -> Generator[None, None, None]:
        """Make a listing ready in steps that change nothing, and put it in force after the last of them."""
        yield from _share_properties(listing.tools)
        outcome = yield from self._review(source, listing.tools, accept=accept, trusted=trusted)
        unreviewed = frozenset(problem.tool for problem in outcome.unreviewed)
        vouched = tuple(tool for tool in outcome.tools if tool.local_name not in unreviewed)
        kept_elsewhere = trusted or self.locking.is_on
        is_new = not kept_elsewhere and bool(vouched) and not self._pins.is_known(source)
        # A cached definition that was accepted without a review would withhold what the server lists now.
        reviewed = () if listing.is_cached or self.locking.is_on else vouched if is_new else outcome.accepted
        pins = yield from self._pins.make(source, reviewed, by="--accept" if accept else "reviewed before")
        claim = yield from self._registry.claim(source, outcome.tools)
        self._listings[source] = listing
        (self._judged.discard if trusted else self._judged.add)(source)
        self._amended.pop(source, None)
        self._note_unreviewed(source, outcome)
        if pins:
            self._pins.take(source, pins)
            self._store.pins.note(pins)
        is_known = not self.locking.is_on and self._pins.is_known(source)
        is_reviewed = trusted or accept or bool(outcome.tools) or not self._withholds or is_known
        instructions, held = self._review_instructions(source, listing, is_reviewed, trusted=trusted)
        about = About(
            title=listing.title, description=listing.description, instructions=instructions, server=listing.server
        )
        problems = (*listing.problems, *outcome.unreviewed, *((held,) if held else ()))
        self._change(
            lambda: self._registry.take(source, claim, problems=problems, withheld=outcome.withheld, about=about)
        )
        if self._listings.get(source) is listing:  # a listener may have led to another
            self._listings[source] = replace(listing, tools=claim.held(listing.tools))
        self._announce_features(self.features.put(source, listing.features if is_reviewed else NO_FEATURES))

    def amend(self, source: str, change: Amendment) -> None:
        """Take what came and went of a trusted source: at the price of the change, not of all its tools."""
        amended = self._amended.setdefault(source, {})
        amended.update(dict.fromkeys(change.removed))
        amended.update((tool.local_name, tool) for tool in change.added)
        self._change(lambda: self._registry.amend(source, change.added, change.removed))

    def report(self, problem: Problem) -> None:
        """Keep a problem of a source that could not even be made, beside its earlier ones."""
        known = self._reported.setdefault(problem.source, [])
        if problem not in known:
            known.append(problem)
        self._registry.put(problem.source, (), problems=known)

    def forget(self, source: str) -> None:
        """Take the tools of `source` away."""
        self.waiting.drop(source)
        self._listings.pop(source, None)
        self._amended.pop(source, None)
        self._unreviewed.pop(source, None)
        self._reported.pop(source, None)
        self._change(lambda: self._registry.remove(source))
        self._announce_features(self.features.remove(source))

    async def accept(self, source: str, tools: Iterable[str] | None = None) -> list[str]:
        """Take what `source` lists now as reviewed, or those `tools` of it; return the names that were withheld before.

        Raises `UsageError` for a source that has listed nothing, and for one text in place of a list of names.
        """
        if isinstance(tools, str):
            raise UsageError(f"tools is a list of names, not the text {tools!r}; write tools=[{tools!r}]")
        if self.locking.is_on:
            raise UsageError(f"what is reviewed stands in {self.locking.file}; `toolcrib lock` writes it anew")
        await self.waiting.wait(source)
        listing = self._listings.get(source)
        if listing is None:
            listed = ", ".join(self._listings) or "none"
            raise UsageError(f"no source named {source} has listed anything; there are {listed}")
        before = build_at_once(self._review(source, listing.tools, accept=False, trusted=False))
        named = None if tools is None else set(tools)
        taken = [tool for tool in listing.tools if named is None or tool.local_name in named]
        pins = build_at_once(self._pins.make(source, taken, by="accept"))
        self._pins.take(source, pins)
        await self._store.pins.put(pins)
        if named is None and listing.instructions:
            pin = self._pins.of_instructions(source, listing.instructions, by="accept")
            self._pins.take_instructions(pin)
            await self._store.pins.put([pin])
        if not listing.tools:
            await self._store.pins.put([self._pins.of_nothing(source)])
        self._judge_again(source)  # it may list something else by now, or be gone
        await self.waiting.wait(source)
        waiting = (*before.withheld, *(problem.tool for problem in before.unreviewed))
        return [name for name in waiting if named is None or name in named]

    async def changes(self, source: str) -> dict[str, str]:
        """Return by local name how what `source` lists differs from what was reviewed, as unified diffs.

        Where `source` was configured otherwise when it was reviewed, that review is what is compared with.
        """
        if self.locking.is_on:
            locked = self.locking.reviewed(source)
            listed = ((tool.local_name, seen_of(tool)) for tool in self.listed(source) if tool.local_name in locked)
            return {name: text for name, seen in listed if (text := difference(locked[name], seen))}
        pins = await self._store.pins.all()
        same = {pin.tool: pin for pin in pins if pin.source == self._pins.name_of(source)}
        earlier = {pin.tool: pin for pin in pins if pin.source.partition(" ")[0] == source}
        reviewed = {**earlier, **same}
        changed = {
            tool.local_name: difference(reviewed[tool.local_name].definition, seen_of(tool))
            for tool in self.listed(source)
            if tool.local_name in reviewed and reviewed[tool.local_name].digest != pin_of(tool)
        }
        pinned, listing = same.get(INSTRUCTIONS), self._listings.get(source)
        if pinned is not None and listing is not None and pinned.definition["instructions"] != listing.instructions:
            changed[INSTRUCTIONS] = difference(pinned.definition, {"instructions": listing.instructions})
        return {
            name: text or "what changed reads the same: an escape instead of the character"
            for name, text in changed.items()
        }

    def listed(self, source: str) -> tuple[Tool, ...]:
        """Return the tools that `source` lists, withheld ones included; for showing, never for calling."""
        listing, amended = self._listings.get(source), self._amended.get(source)
        tools = tuple(tool.renamed(tool.local_name) for tool in listing.tools) if listing else ()
        if not amended:
            return tools
        by_name = {tool.local_name: tool for tool in tools} | amended
        return tuple(tool for tool in by_name.values() if tool is not None)

    def on_change(self, callback: Callable[[CatalogChanged], None]) -> Callable[[], None]:
        """Call `callback` with every change of the catalog; returns what ends it. One that breaks is logged."""
        return self._listeners.add(callback)

    def announce(self, names: Iterable[str]) -> None:
        """Announce tools that only changed in display: switched off, or on again."""
        version = self._registry.catalog.version
        self._listeners.tell(CatalogChanged(version=version, added=(), removed=(), changed=tuple(names)))

    async def _follow(self) -> None:
        """Take what is accepted elsewhere: `toolcrib accept` in another terminal reaches a crib that runs."""
        seen = await self._store.pins.stamp()
        while not self.locking.is_on:
            await anyio.sleep(_LOOK_AGAIN)
            waiting = {problem.source for problem in self._registry.catalog.withheld.values()} & self._judged
            waiting |= {source for source, tools in self._unreviewed.items() if tools}
            try:
                now = await self._store.pins.stamp() if waiting else seen
                if now != seen:
                    await self._store.flush()  # what is only noted so far would be read as it was before
                    await self._load_pins()
            except ToolFailure as failure:
                _logger.warning("what others accept is not seen: %s", failure)
                continue
            if now != seen:
                seen = now
                for source in waiting:
                    self._judge_again(source)

    def _judge_again(self, source: str) -> None:
        """Compare the newest listing of `source`, if there is one, with the pins as they are now."""
        if source in self.waiting:
            self.waiting.restart()
        elif source in self._listings:
            self.publish(source, self._listings[source], accept=False, trusted=False)

    async def _load_pins(self) -> None:
        await self._pins.load()
        self.waiting.restart()

    def _review(
        self, source: str, tools: Iterable[Tool], *, accept: bool, trusted: bool
    ) -> Generator[None, None, Review]:
        if trusted:
            return Review(tools=tuple(tools), withheld={}, accepted=())
        listed = tuple(tools)
        if (locked := self.locking.pins(source)) is not None:
            how = "`toolcrib lock` takes it as reviewed"
            return (yield from reviewing(source, listed, locked, accept=False, how=how))
        pins = self._pins.of(source, listed)
        return (yield from reviewing(source, listed, pins, accept=accept, withhold=self._withholds))

    def _note_unreviewed(self, source: str, outcome: Review) -> None:
        """Log what is used without a review, once for as long as it stays so."""
        before = self._unreviewed.get(source, frozenset())
        self._unreviewed[source] = frozenset(problem.tool for problem in outcome.unreviewed)
        for _, line in summaries(problem for problem in outcome.unreviewed if problem.tool not in before):
            _logger.warning("%s", line)

    def _review_instructions(
        self, source: str, listing: Listing, is_reviewed: bool, *, trusted: bool
    ) -> tuple[str, Problem | None]:
        """Return the instructions of a configured server as far as they may be shown, and why they are held back.

        Those of a reviewed server are taken as they are first seen, unless they give orders. From then on they are
        pinned like a definition: others need `accept`.
        """
        text = listing.instructions
        if not text or trusted or not self._pins.is_identified(source):
            return text, None  # of our own code, or of a source that a developer mounted
        if not is_reviewed:
            return "", None
        pin = self._pins.of_instructions(source, text, by="reviewed before")
        known, flagged = self._pins.instructions(source), text_findings("the text", text)
        if known == pin.digest:
            return text, None
        if known is None and not flagged:
            if not listing.is_cached:
                self._pins.take_instructions(pin)
                self._store.pins.note([pin])
            return text, None
        why = "; ".join(flagged) or "they are not those that were reviewed"
        outcome = "withheld" if self._withholds else "used without a review"
        return "" if self._withholds else text, Problem(
            source=source,
            code=("quarantined" if known is None else "definition_changed") if self._withholds else "unreviewed_change",
            message=f"the instructions of {source} are {outcome}: {why}. They read: {escape(text[:_QUOTED])!r}",
            hint=f"`toolcrib accept {source}` takes them, and its tools, as reviewed",
        )

    def _announce_features(self, changed: bool) -> None:
        """Announce that resources changed; the catalog may be as it was."""
        if changed:
            for listener in self._feature_listeners:
                listener()
            self.announce(())

    def _change(self, change: Callable[[], bool]) -> None:
        if change():
            self._listeners.tell_of(lambda: self._registry.last_change)


def _share_properties(tools: Iterable[Tool]) -> Generator[None, None, None]:
    """Let equal schemas of arguments in one listing be one object: a fifth of the memory of 100,000 tools.

    They are put into the schemas of the source itself, which it may keep: nothing else about them changes.
    """
    known: dict[bytes, Any] = {}
    for tool in tools:
        properties = tool.input_schema.get("properties")
        if isinstance(properties, dict):
            for name, schema in cast("dict[str, Any]", properties).items():
                if (text := dumps_or_none(schema)) is not None:
                    properties[name] = known.setdefault(text, schema)
        yield
