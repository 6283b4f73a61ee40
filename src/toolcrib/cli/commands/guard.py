"""`toolcrib guard`: the strict set for entries that `connect` wrote, on and off, and what it makes of sample calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct

from ...config import Settings, load
from ...config import files as disk
from ...config.clients.connections import NAME, entries
from ...config.clients.table import CLIENTS, Client
from ...config.guard_switch import GuardSwitch
from ...config.loader import here, load_gateway
from ...core.call import Call, Options, Route
from ...core.json import fields_of
from ...core.permission import EFFECTS
from ...core.session import Audience, SessionState
from ...core.taint import Taint
from ...core.tool import Annotations, Tool
from ...crib import Toolcrib
from ...errors import ConfigError, ToolcribError
from ..actions import action_group
from ..options import AsJson
from ..output import Column, emit_json, escape, note, out, table
from .guard_files import accept_files, list_files

_LOOK: Final = Tool(
    name="server__look",
    source="server",
    local_name="look",
    origin="mcp",
    annotations=Annotations(read_only=True, destructive=False),
)
_WRITE: Final = Tool(
    name="server__write", source="server", local_name="write", origin="mcp", annotations=Annotations(destructive=False)
)
_DROP: Final = Tool(name="server__drop", source="server", local_name="drop", origin="mcp", annotations=Annotations())
_SHELL: Final = Tool(name="shell", local_name="shell", source="shell", category="shell", origin="python")

_COLUMNS: Final[tuple[Column, ...]] = (("CALL", "<"), ("CONNECTED", "<"), ("BY HAND", "<"))


class Sample(Struct, frozen=True, kw_only=True):
    """One call whose outcome is shown."""

    what: str
    tool: Tool
    arguments: Mapping[str, Any] | None = None
    verb: str = ""
    only_reads: bool = False
    tainted: bool = False
    private: bool = False
    unreviewed: bool = False


SAMPLES: Final = (
    Sample(what="a tool that reads, by its name", tool=_LOOK),
    Sample(what="a tool that writes, by its name", tool=_WRITE),
    Sample(what="a destructive tool, by its name", tool=_DROP),
    Sample(what="a tool that reads, through call_tool_readonly", tool=_LOOK, verb="call_readonly", only_reads=True),
    Sample(what="a tool that reads, through call_tool", tool=_LOOK, verb="call"),
    Sample(what="a tool that writes, through call_tool", tool=_WRITE, verb="call"),
    Sample(what="a destructive tool, through call_tool", tool=_DROP, verb="call"),
    Sample(what="a tool that writes, after untrusted content", tool=_WRITE, tainted=True),
    Sample(
        what="a read with a link, after untrusted and private data",
        tool=_LOOK,
        arguments={"url": "https://elsewhere.example/?data=1"},
        tainted=True,
        private=True,
    ),
    Sample(what="a tool whose definition was not reviewed", tool=_LOOK, unreviewed=True),
    Sample(what="the command `ls`", tool=_SHELL, arguments={"command": "ls"}),
    Sample(what="the command `rm -rf ~`", tool=_SHELL, arguments={"command": "rm -rf ~"}),
)
"""Sample calls of `toolcrib guard status`, on made-up tools."""

guard = action_group(
    "Switch the strict set on or off for entries that `toolcrib connect` wrote, show what decides, list the files with "
    "untrusted content, or accept them.\n\n"
    "Strict: writes are asked about (mode `cautious`), so are effects after untrusted content, and unreviewed tools "
    "wait. A switch takes effect at the next call, in a running daemon too. The library, the agent, jobs and a `serve` "
    "without `--guard off` are always strict.",
    default="status",
)


@guard.command("on")
def switch_on(as_json: AsJson = False) -> None:
    """Make entries of `toolcrib connect` as strict as `toolcrib serve`."""
    _switch(on=True, as_json=as_json)


@guard.command("off")
def switch_off(as_json: AsJson = False) -> None:
    """Leave the questions of entries of `toolcrib connect` to their clients."""
    _switch(on=False, as_json=as_json)


def _switch(*, on: bool, as_json: bool) -> None:
    switch, state = GuardSwitch(here().directories), "on" if on else "off"
    changed = switch.turn(on)
    if as_json:
        emit_json({"guard": state, "changed": changed, "file": str(switch.file)})
    else:
        out(f"guard {state}{'' if changed else ', as it was'}: entries of connect follow from the next call on")


guard.command("files")(list_files)
guard.command("accept")(accept_files)


@guard.command("status")
def show_guard(as_json: AsJson = False) -> None:
    """Show the sources of decisions, the entries of clients, and the outcome of sample calls."""
    switch = GuardSwitch(here().directories)
    connected, by_hand = load((), {"guard": "off"}), load_gateway()
    sources = dict(_sources(switch, connected, by_hand))
    policies = [_entry_policy(entry) for entry in gateway_entries()]
    rows: list[dict[str, Any]] = [
        {"call": one.what, "connected": fields_of(first), "by_hand": fields_of(second)}
        for one, first, second in zip(SAMPLES, _outcomes(connected), _outcomes(by_hand), strict=True)
    ]
    if as_json:
        entries_of = [one.to_json() for one in policies]
        emit_json({"guard": sources["guard"], "sources": sources, "entries": entries_of, "calls": rows})
        return
    for name, value in sources.items():
        out(f"{name}: {value}")
    _show_entries(policies)
    marks: dict[str, str] = {}
    """Of each rule that decides something, in the order of the table."""

    def shown(outcome: Mapping[str, str]) -> str:
        mark = marks.setdefault(outcome["rule"], f"[{len(marks) + 1}]")
        return f"{outcome['outcome']} {mark}"

    table(_COLUMNS, [(row["call"], shown(row["connected"]), shown(row["by_hand"])) for row in rows])
    for one in policies:
        for row, outcome in zip(rows, one.outcomes, strict=False):
            if outcome.outcome != row["connected"]["outcome"]:
                out(f"{one.entry.client.title}: {row['call']}: {shown(fields_of(outcome))}")
    for rule, mark in marks.items():
        out(escape(f"{mark} {rule}"))


def _show_entries(policies: Sequence[_EntryPolicy]) -> None:
    for one in policies:
        mode = f", mode {one.entry.mode}{f' ({_counts(one.rules)})' if one.rules else ''}" if one.entry.mode else ""
        out(f"{one.entry.client.title}: {one.entry.file}, guard {one.entry.guard}{mode}")
        if one.problem:
            note(one.problem)
    if not policies:
        note("no client is connected; `toolcrib connect` does that")


class _Outcome(Struct, frozen=True):
    outcome: str
    """runs, asks, denied or quarantined."""
    rule: str
    """Rule that decided."""


def _outcomes(settings: Settings) -> Iterator[_Outcome]:
    """Yield what becomes of each sample call of a client."""
    policy = Toolcrib(settings, memory=True).policy
    is_strict = settings.policy.guard or policy.is_strict()
    for one in SAMPLES:
        if one.unreviewed and is_strict and not settings.sources.accept:
            yield _Outcome("quarantined", "the guard: definitions that were not reviewed are withheld")
            continue
        taint = Taint(
            source="server__fetch" if one.tainted else "", private_read_by="server__mail" if one.private else ""
        )
        state = SessionState(key="sample", mode=settings.policy.mode, audience=Audience(is_client=True), taint=taint)
        decision = policy.decide_call(
            Call(
                id="sample",
                name=one.tool.name,
                arguments=dict(one.arguments or {}),
                session=state,
                tool=one.tool,
                route=Route(verb=one.verb),
                options=Options(only="read" if one.only_reads else None),
            )
        )
        yield _Outcome({"allow": "runs", "ask": "asks", "deny": "denied"}[decision.effect], decision.rule)


def _sources(switch: GuardSwitch, connected: Settings, by_hand: Settings) -> Iterator[tuple[str, str]]:
    """Yield where the decisions come from, by name."""
    yield "guard", "on" if switch.is_on() else "off"
    yield "switch", f"{switch.file} {'is there' if switch.is_on() else 'is not there'}"
    yield "configuration", ", ".join(map(str, by_hand.files)) or "none"
    strict = ", and cautious" if switch.is_on() else ""
    yield "mode", f"{connected.policy.mode}{strict} in entries of connect, {by_hand.policy.mode} by hand"
    yield "rules", _counts({effect: len(getattr(by_hand.policy.rules, effect)) for effect in EFFECTS})
    asking = (connected.policy.untrusted.ask or switch.is_on(), by_hand.policy.untrusted.ask)
    effects = ["asks" if asks else "asks nothing" for asks in asking]
    yield "untrusted content", f"{effects[0]} in entries of connect, {effects[1]} by hand"


class GatewayEntry(Struct, frozen=True, kw_only=True):
    """One entry of a client that starts us, as it is now."""

    client: Client
    file: Path
    guard: str
    """`on` or `off`."""
    mode: str
    """Empty for that of the configuration."""
    profile: str

    def settings(self, files: Sequence[Path] = (), **overrides: str | None) -> Settings:
        """Return the settings with which the entry serves. Raises `ConfigError`, as for a mode that is gone."""
        own = {"guard": "off"} if self.guard == "off" else {}
        own |= {key: value for key, value in (("mode", self.mode), ("profile", self.profile)) if value}
        return load_gateway(files, {**own, **{key: value for key, value in overrides.items() if value is not None}})


def gateway_entries() -> Iterator[GatewayEntry]:
    """Yield the entries of clients that start us; that of the project behind the user's own."""
    places = here()
    for client in CLIENTS.values():
        for file in dict.fromkeys((client.user_file(places), client.project_file(places))):
            if file is not None and file.is_file() and (words := _words(client, file)):
                options = dict(pairwise(words))
                yield GatewayEntry(
                    client=client,
                    file=file,
                    guard="off" if options.get("--guard") == "off" else "on",
                    mode=options.get("--mode", ""),
                    profile=options.get("--profile", ""),
                )


class _EntryPolicy(Struct, frozen=True, kw_only=True):
    """Outcomes of sample calls by one entry."""

    entry: GatewayEntry
    rules: Mapping[str, int]
    """Number of rules of its mode, by their effect: what `connect` carried over."""
    outcomes: Sequence[_Outcome]
    """Of the sample calls; empty with a `problem`."""
    problem: str

    def to_json(self) -> dict[str, Any]:
        entry = self.entry
        return {
            "client": entry.client.name,
            "file": str(entry.file),
            "guard": entry.guard,
            "mode": entry.mode,
            "profile": entry.profile,
            "rules": self.rules,
            "outcomes": [fields_of(one) for one in self.outcomes],
            "problem": self.problem,
        }


def _entry_policy(entry: GatewayEntry) -> _EntryPolicy:
    try:
        settings = entry.settings()
        counts: dict[str, int] = {}
        if entry.mode and (rules := settings.policy.modes[entry.mode].rules):
            counts = {effect: len(rules.get(effect, ())) for effect in EFFECTS}
        return _EntryPolicy(entry=entry, rules=counts, outcomes=list(_outcomes(settings)), problem="")
    except ToolcribError as error:
        return _EntryPolicy(entry=entry, rules={}, outcomes=(), problem=str(error))


def _counts(rules: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {effect}" for effect, count in rules.items())


def _words(client: Client, file: Path) -> list[str]:
    """Return the words of our entry in `file`; none if there is none, or it cannot be read."""
    try:
        entry: Any = entries(client, disk.read(file, limit=disk.FOREIGN_MAX_BYTES), str(file)).get(NAME)
    except (ConfigError, ToolcribError) as error:
        note(str(error))
        return []
    if not isinstance(entry, Mapping):
        return []
    values = cast("Mapping[str, Any]", entry)
    words: list[Any] = []
    for key in ("command", "cmd", "args"):
        given: Any = values.get(key)
        words += cast("list[Any]", given) if isinstance(given, list) else [given]
    return [str(word) for word in words if word] if "serve" in words else []
