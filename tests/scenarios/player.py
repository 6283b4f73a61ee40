"""A scripted model that does a case well: it finds its tools by the profile's own verbs, and calls what it then has.

It goes by what it is given and told: it calls only tools that the request declares, takes an op or a category from the
answer that names it, and copies into an argument what it has read. Where the profile does not lead it to a tool, it
says so and gives up, and the case fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import yaml
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from scenarios.case import Case, Turn, Wanted, is_like
from toolcrib.crib import Session
from toolcrib.disclosure.introspection import category_of

PHRASES: Final[Mapping[str, str]] = yaml.load(
    Path(__file__).with_name("phrases.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
"""Tool → what somebody who needs it, and does not know it, looks for."""


_WORKS_FOR: Final = "for another agent"
"""Words of a sub-agent's instructions."""


@dataclass(frozen=True, kw_only=True)
class Heard:
    """What a request brings the model: the tools that it has now, and what its calls returned."""

    tools: frozenset[str] = frozenset()
    returns: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All returns."""
        return "\n".join(self.returns)


@dataclass(frozen=True, kw_only=True)
class Calling:
    """Calls that the model makes at once: shown name and arguments each."""

    calls: Sequence[tuple[str, Mapping[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class Saying:
    """The model's answer."""

    text: str


Play = Generator[Calling | Saying, Heard, None]
"""What a model does in one turn, move by move; it is sent what comes of each."""


class Lost(Exception):
    """The profile did not lead to a tool."""


@dataclass(kw_only=True)
class Player:
    """The model of one case in one session."""

    case: Case
    session: Session
    play: Callable[[Player, Turn, Heard], Play]
    _turns: list[Turn] = field(init=False)
    read: list[str] = field(default_factory=list[str])
    """What the calls of the case returned so far, those of earlier turns too."""
    _now: Play | None = None
    _calls: int = 0

    def __post_init__(self) -> None:
        self._turns = list(self.case.turns)

    @property
    def model(self) -> FunctionModel:
        """Return it as Pydantic AI has models."""
        return FunctionModel(stream_function=self._stream, model_name="scripted")

    def move(self, instructions: str, tools: Iterable[str], returns: Iterable[str]) -> Calling | Saying:
        """Return what the model does after a request with these tools, and with what its last calls returned."""
        if _WORKS_FOR in instructions:  # a sub-agent, which may outlive the turn of its parent
            return Saying(text="I have looked at it: everything is as it should be.")
        heard = Heard(tools=frozenset(tools), returns=tuple(returns))
        if self._now is None:
            self._now = self.play(self, self._turns.pop(0), heard)
            move = next(self._now)
        else:
            move = self._now.send(heard)
        if isinstance(move, Saying):
            self._now = None
        return move

    def next_id(self) -> str:
        """Return an id that no other call has."""
        self._calls += 1
        return f"script_{self._calls}"

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | DeltaToolCalls]:
        last = max((at for at, one in enumerate(messages) if isinstance(one, ModelResponse)), default=-1)
        new = [part for message in messages[last + 1 :] for part in message.parts]
        returns = [str(part.content) for part in new if isinstance(part, ToolReturnPart)]
        move = self.move(info.instructions or "", (tool.name for tool in info.function_tools), returns)
        if isinstance(move, Saying):
            yield move.text
        else:
            yield {
                place: DeltaToolCall(name=name, json_args=json.dumps(given), tool_call_id=self.next_id())
                for place, (name, given) in enumerate(move.calls)
            }

    # What the profile calls things

    @property
    def verbs(self) -> Mapping[str, str]:
        """The shown names of the profile's verbs."""
        return self.session.visible.profile.verbs

    def shown(self, tool: str) -> str:
        """Return what the profile calls a tool of the catalog."""
        if tool == "read_artifact":
            return self.verbs["read"]
        known = self.session.visible.catalog.get(tool)
        return self.session.visible.aliases.name(known) if known is not None else tool

    def said(self, name: str, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tool's own arguments as they are said under a name of the profile.

        Own words are taken too, but for those that mean another argument there. A name that may mean several tools
        gets what chooses this one.
        """
        label = self.session.visible.aliases.rename_of(name)
        if label is None:
            return dict(arguments)
        words = {ours: theirs for theirs, ours in label.args.items()}
        chosen = next((one.when for one in label.instead if one.tool == tool), dict[str, Any]())
        own = {words.get(key, key) if key in label.args else key: value for key, value in arguments.items()}
        return {**chosen, **own}

    def op(self, tool: str) -> str:
        """Return the op of a tool of the catalog."""
        known = self.session.visible.catalog.get(tool)
        return self.session.op_of(known) if known is not None else tool


def done_well(player: Player, turn: Turn, heard: Heard) -> Play:
    """Make the right calls of a turn, each after its tool was found, and answer with what they returned."""
    reach = _WAYS[player.session.visible.profile.strategy]
    said: list[str] = []
    try:
        for step in turn.steps:
            last = heard
            for call in step:
                if player.shown(call.tool) not in heard.tools:
                    heard = yield from reach(player, call.tool, call.find or PHRASES.get(call.tool, turn.ask), heard)
            heard = yield Calling(calls=[_way(player, call, last, heard) for call in step])
            said.extend(heard.returns)
            player.read.extend(heard.returns)
        if not turn.calls and turn.find:
            yield from _look(player, turn.find, heard)
    except Lost as lost:
        said.append(f"I am lost: {lost}")
    yield Saying(text="\n".join(said) or "That cannot be done with what I have.")


def sent(wanted: Wanted, heard: Heard, read: Sequence[str] = ()) -> dict[str, Any]:
    """Return the arguments of a call as a model sends them that has just heard `heard`, and has `read` before."""
    texts = (heard.text, *reversed(read))
    return {key: _value(f"{wanted.tool}: no {key}", value, texts) for key, value in wanted.arguments.items()}


def _value(lacks: str, value: Any, texts: Sequence[str]) -> Any:
    """Return a value as it is sent; what is copied comes from the first of the texts that has it."""
    if isinstance(value, list):
        return [_value(lacks, one, texts) for one in cast("list[Any]", value)]
    if not is_like(value):
        given = cast("dict[str, Any]", value)
        return {key: _value(lacks, one, texts) for key, one in given.items()} if isinstance(value, dict) else value
    if "from" not in value:
        return value["say"]
    for text in texts:
        if found := re.search(value["from"], text):
            return found[1]
    raise Lost(f"{lacks} in {texts[0][:300]!r}")


def _way(player: Player, call: Wanted, last: Heard, heard: Heard) -> tuple[str, dict[str, Any]]:
    """Return the call by which a model of this profile makes it; with what it read before it looked for the tool."""
    name = player.shown(call.tool)
    arguments = player.said(name, call.tool, sent(call, last, player.read))
    if name not in heard.tools and player.verbs.get("exec") in heard.tools:
        return player.verbs["exec"], {"op": player.op(call.tool), "args": arguments}
    if name not in heard.tools and player.verbs.get("call") in heard.tools:
        return player.verbs["call"], {"name": name, "arguments": arguments}
    return name, arguments


Way = Callable[[Player, str, str, Heard], Generator[Calling | Saying, Heard, Heard]]
"""Make the profile's moves until a tool can be called; returns what was heard last."""


def _ask(verb: str, **arguments: Any) -> Calling:
    return Calling(calls=[(verb, arguments)])


def _declared(player: Player, tool: str, find: str, heard: Heard) -> Generator[Calling | Saying, Heard, Heard]:
    """Have no way: every tool of the task is declared from the start."""
    yield from ()
    raise Lost(f"{player.shown(tool)} is not declared")


def _searched(player: Player, tool: str, find: str, heard: Heard) -> Generator[Calling | Saying, Heard, Heard]:
    name = player.shown(tool)
    heard = yield _ask(player.verbs["search"], query=find)
    if not re.search(rf"^{re.escape(name)}\(", heard.text, re.MULTILINE):
        raise Lost(f"a search for {find!r} does not find {name}: {heard.text}")
    if name not in heard.tools:
        raise Lost(f"{name} was found and is not declared")
    return heard


def _loaded(player: Player, tool: str, find: str, heard: Heard) -> Generator[Calling | Saying, Heard, Heard]:
    name = player.shown(tool)
    known = player.session.visible.catalog.tools[tool]
    category = player.session.visible.category(known) or known.source
    heard = yield _ask(player.verbs["browse"])
    if f'"name":"{category}"' not in heard.text:
        raise Lost(f"{category} is not browsed")
    heard = yield _ask(player.verbs["load"], category=category)
    if name not in heard.tools:
        raise Lost(f"{name} is not there after its category was loaded")
    return heard


def _activated(player: Player, tool: str, find: str, heard: Heard) -> Generator[Calling | Saying, Heard, Heard]:
    name = player.shown(tool)
    visible = player.session.visible
    category = category_of(visible, visible.catalog.tools[tool])
    heard = yield _ask(player.verbs["list"])
    if f'"name":"{category}"' not in heard.text:
        raise Lost(f"{category} is not listed")
    heard = yield _ask(player.verbs["list"], category=category)
    if f'"name":"{name}"' not in heard.text:
        raise Lost(f"{name} is not listed in {category}")
    heard = yield _ask(player.verbs["schemas"], names=[name])
    if name not in heard.tools:
        raise Lost(f"{name} is not there after it was activated")
    return heard


def _helped(player: Player, tool: str, find: str, heard: Heard) -> Generator[Calling | Saying, Heard, Heard]:
    """Follow the pages from the root, each time to what the op begins with."""
    op, path = player.op(tool), "root"
    while tool != "read_artifact":  # the profile's instructions tell of that op
        heard = yield _ask(player.verbs["help"], path=path)
        told: dict[str, Any] = json.loads(heard.text)
        if told["type"] == "op":
            return heard
        named = [str(item["name"]) for item in told.get("items", ())]
        fitting = sorted((name for name in named if op.startswith(name.rstrip("*")) and name != path), key=len)
        if not fitting:
            raise Lost(f"help({path}) does not lead to {op}: {named}")
        path = fitting[-1]
    return heard


_WAYS: Final[Mapping[str, Way]] = {
    "adaptive": _searched,
    "flat": _declared,
    "gateway": _helped,
    "introspection": _activated,
    "selection": _declared,
    "tiered": _loaded,
}


def _look(player: Player, find: str, heard: Heard) -> Generator[Calling | Saying, Heard, None]:
    """Look for what is not there, as far as the profile has a way."""
    verbs = player.verbs
    for verb, arguments in (("search", {"query": find}), ("browse", {}), ("list", {}), ("help", {"path": "root"})):
        if verbs.get(verb) in heard.tools:
            yield _ask(verbs[verb], **arguments)
