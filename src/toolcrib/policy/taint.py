"""Taint of a session by untrusted content, and its effect on later calls (security.md T6).

The trust of a result follows from its origin (`policy.origin`). An untrusted result of any call taints the
session permanently: from then on, in every mode, a call with side effects and one that can carry data out needs
approval, unless a rule names that very tool. If the session has read private data as well, a call that can carry data
out needs approval despite any rule. A refused call taints nothing.

A read with a link as an argument can carry data out. A link from an untrusted result, followed unchanged, reveals
nothing to its author, and is free until private data was read. A result that is made of others, or of what this machine
kept of them, gives no such link: a program that a page asks for could append data to one.

    Provenance   note(tool, trust, session, text)   the result of a call reaches the session: taint, links, private data
    Examine      mark_tainted(tool, session)        suspicious text in an untrusted result
    Expand       mark_tainted(tool, session)        an untrusted artifact among the arguments
    Execute      mark_tainted_by(cause, session)    marked content was read from the store or from files
    Policy       asks(tool, arguments, session, …)  turns an allow into an ask; never the reverse

The taint of a session has no end within its conversation, and survives a restart where conversations are kept.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from ..core.patterns import regex
from ..core.permission import Decision
from ..core.result import Trust
from ..core.session import SessionState
from ..core.settings import Flag, Section, Texts
from ..core.tool import Tool
from .argument_conditions import glob
from .modes import kind_of, reads_by_action
from .origin import Origin, is_closed_world, is_local, origin_of
from .rules import names_of
from .shell.command_tools import runs_shell
from .shell.readonly_commands import is_read_only_call

_PASSING_SOURCES: Final = frozenset({"toolcrib", "jobs"})
"""Sources that only pass on: each call that they make is decided itself, and results keep their trust."""
_BUILT_IN: Final = "builtin"
"""The source whose word on `hands_on` counts here: a catalog or a program could excuse a tool of its own by it."""
_LINK_NAMES: Final = frozenset(
    """domain endpoint headers host hostname href link uri url urls webhook webpage website""".split()
)
"""Arguments whose texts leave the machine: addresses, and the headers of a request to one."""
_LINK: Final = regex(r"(?:https?://|www\.)[^\s\"'<>\\^`{|}()\[\]]{1,2000}", re.IGNORECASE)
_LINK_END: Final = ".,;:!?*_"
"""Characters that end the sentence around a link rather than the link."""
_MAX_SCANNED_LENGTH: Final = 256 * 1024
"""Characters of a result in which links are looked for."""
_MAX_LINKS: Final = 2048
"""Maximum of links that a session remembers; the oldest is dropped first."""
_MAX_DEPTH: Final = 8


class Taint(Section):
    """Trust of tools and sources; globs match a tool by any of its names, or a whole source by the source's name.

    One for a crib, immutable. `untrusted` comes before `trusted`, and both before the declarations of tool and origin.

    Attributes are lists of the operator; the state of a session is `core.taint.Taint`.
    """

    ask: Flag = True
    """Whether a session that read untrusted content asks before it acts; results are marked in any case."""
    trusted: Texts = ()
    """Tools and sources that the user vouches for."""
    untrusted: Texts = ()
    """Tools and sources whose results always taint a session, whatever they contain."""
    private: Texts = ()
    """Tools and sources that read private data, beside the tools with the trait `private`."""
    outbound: Texts = ()
    """Tools and sources that can carry data out, beside the tools with the trait `outbound` and open-world tools."""

    def origin_of(self, tool: Tool) -> Origin:
        """Return the class of `tool`'s results; `origin_of_result` narrows it for one of them."""
        return origin_of(
            tool, distrusted=_matches_tool(self.untrusted, tool), trusted=_matches_tool(self.trusted, tool)
        )

    def trust_of(self, tool: Tool) -> Trust:
        """Return the trust of `tool`'s results, whatever they contain."""
        return self.origin_of(tool).trust

    def is_noted(self, tool: Tool, trust: Trust) -> bool:
        """Whether such a result affects the session; most do not."""
        return trust == "untrusted" or "private" in tool.traits or _matches_tool(self.private, tool)

    def note(self, tool: Tool, trust: Trust, session: SessionState, text: str, *, is_strict: bool) -> None:
        """Record in `session` that a result of `tool`, with the text `text` and that trust, reached it.

        For an MCP client, the result of a call with side effects is a receipt, which taints only where its tool or
        source was declared untrusted: a gateway would otherwise hold every second call of a server that declares
        nothing. The library, the agent and jobs make no difference, nor does a gateway while its guard is switched on
        (`is_strict`).
        """
        if not session.taint.private_read_by and ("private" in tool.traits or _matches_tool(self.private, tool)):
            session.taint.private_read_by = tool.name
        if trust != "untrusted":
            return
        for link in links_in(text[:_MAX_SCANNED_LENGTH]):
            session.taint.links.pop(link, None)  # to the end: a link that is shown again is not the oldest
            session.taint.links[link] = None
        while len(session.taint.links) > _MAX_LINKS:
            del session.taint.links[next(iter(session.taint.links))]
        is_receipt = session.audience.is_client and not is_strict and tool.kind != "read"
        if not is_receipt or self.origin_of(tool).name == "declared":
            self.mark_tainted(tool, session)

    def mark_tainted(self, tool: Tool, session: SessionState) -> None:
        """Call `session` tainted by `tool`."""
        self.mark_tainted_by(tool.name, session)

    def mark_tainted_by(self, name: str, session: SessionState) -> None:
        """Call `session` tainted by what `name` brought. Answers that were to hold for it were given without knowing.

        For content that comes into a session without a call of its own: a history, the answer of a sub-agent.
        """
        if session.taint.source or not name:
            return
        session.taint.source = name
        for key, effect in list(session.approvals.remembered.items()):
            if effect == "allow":  # a `never` stays: what was read is not a reason to do more
                del session.approvals.remembered[key]

    def asks(
        self, tool: Tool, arguments: Mapping[str, Any], session: SessionState, allowed: Decision
    ) -> Decision | None:
        """Return the decision that replaces the allow `allowed`, naming the cause of the taint; None keeps it."""
        if not self.ask or not session.taint.cause or tool.source in _PASSING_SOURCES or _passes_calls_on(tool):
            return None
        carries = self._can_carry_data_out(tool, arguments, session)
        # Private data, a stranger's words and a way out together are a leak: no rule was written with that in mind.
        if session.taint.private_read_by and carries:
            read = f"private data ({session.taint.private_read_by}) and untrusted content ({session.taint.cause})"
            return Decision(
                effect="ask", rule=f"taint: this session has read {read}; calls that can carry data out ask"
            )
        if allowed.named or not (carries or _has_effect(tool, arguments, session)):
            return None
        kind = kind_of(tool, arguments)
        what = "a read that can carry data out" if kind == "read" else f"a {kind} tool"
        return Decision(
            effect="ask",
            rule=f"taint: this session has read untrusted content ({session.taint.cause}); {what} asks unless a rule "
            f"names {tool.name}",
        )

    def _can_carry_data_out(self, tool: Tool, arguments: Mapping[str, Any], session: SessionState) -> bool:
        """Whether this call can carry data out of the machine.

        True for `outbound` tools, and for anything but a read in the open world; a read carries by its address.
        """
        if "outbound" in tool.traits or _matches_tool(self.outbound, tool):
            return True
        is_closed = is_closed_world(tool, self.trust_of(tool))
        if is_closed or (runs_shell(tool) and is_local(tool) and is_read_only_call(arguments)):
            return False
        if tool.kind != "read" and not reads_by_action(tool, arguments):
            return True
        # A read carries out what its address says: one that a stranger wrote says nothing that he does not know.
        links = tuple(_links_in_arguments(arguments, linked=False))
        return bool(links) and (
            bool(session.taint.private_read_by)
            or not all(_strip_punctuation(link) in session.taint.links for link in links)
        )


def _passes_calls_on(tool: Tool) -> bool:
    """Whether all that a built-in tool does is calls of other tools, each of which asks by itself."""
    return "hands_on" in tool.traits and tool.source == _BUILT_IN and is_local(tool)


def _has_effect(tool: Tool, arguments: Mapping[str, Any], session: SessionState) -> bool:
    """Whether this call may have an effect without a review before it.

    A change that waits for review is not an effect yet: a person sees it before the disk does.
    """
    if kind_of(tool, arguments) == "read" or tool.approval == "never":
        return False
    if runs_shell(tool) and is_local(tool) and is_read_only_call(arguments):
        return False
    is_diverted = session.files.workspace is not None and session.files.workspace.diverts
    return not (is_diverted and "file_writer" in tool.traits)


def links_in(text: str) -> Iterator[str]:
    """Yield the links that `text` shows, without the punctuation around them."""
    for found in _LINK.finditer(text):
        yield _strip_punctuation(found.group())


def _strip_punctuation(link: str) -> str:
    """Return the link without the end of a sentence; both sides of the comparison pass through it."""
    return link.strip().rstrip(_LINK_END)


def _links_in_arguments(value: Any, *, linked: bool, depth: int = 0) -> Iterator[str]:
    """Yield the texts in arguments that are or contain a link; `linked`: the surrounding name marks one.

    An argument that is named as a link is one, with any content; other texts count where a link stands in them.
    """
    if isinstance(value, str):
        if value and (linked or _LINK.search(value)):
            yield value
    elif depth > _MAX_DEPTH:
        yield repr(value)  # too deep to be looked at, and never seen before
    elif isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, Any]", value).items():
            yield from _links_in_arguments(inner, linked=linked or _is_link_name(name), depth=depth + 1)
    elif isinstance(value, list | tuple):
        for inner in cast("list[Any]", value):
            yield from _links_in_arguments(inner, linked=linked, depth=depth + 1)


def _is_link_name(name: str) -> bool:
    """Whether a word of an argument's name means a link: `webhookUrl` and `Webhook-URL` are webhook and url."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return not _LINK_NAMES.isdisjoint(re.split(r"[^a-z0-9]+", words))


def _matches_tool(patterns: Iterable[str], tool: Tool) -> bool:
    """Whether one of `patterns` means `tool`, or its source."""
    patterns = tuple(patterns)
    if not patterns:
        return False
    names = names_of(tool) | {tool.source}
    return any(glob(pattern).fullmatch(name) for pattern in patterns for name in names)
