"""State of one conversation, shared by the loop, the commands and a turn; it is saved and resumed here.

Saved are messages, mode, profile and pending file changes: one file for each conversation (0600) in
`$XDG_DATA_HOME/toolcrib/chats`, written after every turn. The first line says what it is, the second holds the
messages, so that a list of all reads a few hundred bytes of each. Secrets are masked as everywhere else; what only the
model's API can read (signatures, images) stays as it is.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, cast

import anyio
import orjson
from anyio import to_thread
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from toolcrib import Session, SessionOptions, Settings, Tool, Toolcrib
from toolcrib.agents import Redactor, definition_text, estimate
from toolcrib.config.files import write
from toolcrib.errors import ConfigError, ToolcribError, ToolFailure, UsageError
from toolcrib.plugin import LOCAL, SESSIONS, as_mapping, dumps

from ..events import EventListener, Message, Outcome
from ..limits import Usage
from .approval_prompts import Asker
from .call_view import CallRecord
from .keyboard import Keyboard
from .model_discovery import ModelChoice
from .screen import Screen, plain

_VERSION: Final = 1
_KEPT: Final = 500
"""Conversations; older ones are removed when one is written."""
_TITLE: Final = 80
_LONGEST: Final = 64 << 20
"""Bytes of a file that is read."""
_OPAQUE: Final = ("signature", "provider_details", "id", "tool_call_id", "provider_response_id", "timestamp")
"""Fields of messages that hold no text of anybody's."""
_ID: Final = re.compile(r"[0-9a-f]{4,32}")

_SHOWN_KEPT: Final = 200
"""Calls that `/show` remembers."""
_ORDER: Final = ("cautious", "review", "audit", "plan", "manual", "autonomous")
"""Order of Shift-Tab through the built-in modes; own modes come before the last, which asks for no approval."""

_MODE_STYLES: Final[Mapping[str, str]] = {
    "cautious": "green",
    "review": "cyan",
    "audit": "cyan",
    "plan": "blue",
    "manual": "magenta",
    "autonomous": "red",
}
"""The colour of a mode, wherever it is shown; own modes are yellow."""


class SavedChat(Struct, frozen=True, kw_only=True):
    """Metadata of a saved conversation, without its messages."""

    id: str
    folder: str
    """Working folder: `--continue` looks for a chat of the same folder."""
    model: str = ""
    profile: str = ""
    mode: str = ""
    title: str = ""
    """Description of the session, else its first prompt."""
    turns: int = 0
    created: float = 0.0
    changed: float = 0.0
    """Seconds since 1970."""
    usage: Mapping[str, Any] = field(default_factory=dict[str, Any])
    version: int = _VERSION


def new_id() -> str:
    """Return an id for a conversation: 48 random bits, hexadecimal."""
    return secrets.token_hex(6)


class Chats:
    """The conversations of one user."""

    def __init__(self, settings: Settings, redactor: Redactor) -> None:
        """Read and create files on first use only."""
        self._folder = settings.directories.data / "chats"
        self._redactor = redactor

    def save(self, chat: SavedChat, messages: Sequence[Any]) -> SavedChat:
        """Write a conversation down in one step; return what was written. Raises `ConfigError` when the disk refuses.

        `messages` are JSON. The oldest conversations beyond the limit are removed.
        """
        now = time.time()
        title = " ".join(self._redactor.text(chat.title).split())[:_TITLE]
        chat = replace(chat, title=title, created=chat.created or now, changed=now)
        clean = [_without_secrets(message, self._redactor) for message in messages]
        write(self._path(chat.id), dumps(chat) + b"\n" + dumps(clean) + b"\n")
        for old in self.all()[_KEPT:]:
            self._path(old.id).unlink(missing_ok=True)
        return chat

    def all(self, folder: str = "") -> list[SavedChat]:
        """Return the conversations held in `folder`, or all, the newest first. A file that is none is passed over."""
        found = [chat for path in self._folder.glob("*.jsonl") if (chat := _head(path)) is not None]
        return sorted((one for one in found if folder in ("", one.folder)), key=lambda one: -one.changed)

    def find(self, id: str) -> SavedChat:
        """Return the one conversation whose id begins with `id`. Raises `UsageError`."""
        fitting = [one for one in self.all() if one.id.startswith(id)] if _ID.fullmatch(id) else []
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise UsageError(f"several conversations begin with {id!r}: {', '.join(one.id for one in fitting[:5])}")
        newest = ", ".join(one.id for one in self.all()[:3])
        raise UsageError(f"there is no conversation {id[:40]!r}" + (f"; the newest are {newest}" if newest else ""))

    def messages(self, chat: SavedChat) -> list[Any]:
        """Return the messages of a conversation, as JSON. Raises `ConfigError` for a file that is broken."""
        path = self._path(chat.id)
        try:
            with path.open("rb") as file:
                content = file.read(_LONGEST + 1)
            data: Any = orjson.loads(content.split(b"\n", 2)[1])
        except (OSError, IndexError, ValueError) as error:
            raise ConfigError(f"the conversation cannot be read: {error}", file=str(path)) from error
        if not isinstance(data, list):
            raise ConfigError("the conversation cannot be read: a list of messages was expected", file=str(path))
        return cast("list[Any]", data)

    def _path(self, id: str) -> Path:
        return self._folder / f"{id}.jsonl"


def _head(path: Path) -> SavedChat | None:
    """Read the first line; None for another kind of file, and for a format newer than this version."""
    try:
        with path.open("rb") as file:
            data: Any = orjson.loads(file.readline(_LONGEST))
    except (OSError, ValueError):
        return None
    values = as_mapping(data)
    known = {key: values[key] for key in SavedChat.__struct_fields__ if key in values}
    is_ours = values.get("version") == _VERSION and values.get("id") == path.stem and "folder" in known
    if not is_ours or not isinstance(known.get("changed", 0), int | float):
        return None
    return SavedChat(**known)


def _without_secrets(message: Any, redactor: Redactor) -> Any:
    """Return a message with its texts clean, and what is opaque untouched."""
    if not isinstance(message, dict):
        return redactor.value(message)
    entries = cast("dict[str, Any]", message)
    parts: Any = entries.get("parts")
    clean = _clean(entries, redactor)
    if isinstance(parts, list):
        each = cast("list[Any]", parts)
        clean["parts"] = [_clean(cast("dict[str, Any]", part), redactor) for part in each if isinstance(part, dict)]
    return clean


def _clean(entries: Mapping[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Clean a message without its parts, or one part: pictures and sounds in its content stay as they are."""
    clean: dict[str, Any] = {}
    for key, value in entries.items():
        if key in _OPAQUE or key == "parts":
            clean[key] = value
        elif key == "content" and isinstance(value, list):
            pieces = cast("list[Any]", value)
            clean[key] = [piece if _is_binary(piece) else redactor.value(piece) for piece in pieces]
        else:
            clean |= redactor.value({key: value})
    return clean


def _is_binary(piece: Any) -> bool:
    return isinstance(piece, dict) and cast("dict[str, Any]", piece).get("kind") == "binary"


class ChatAgent(Protocol):
    """Interface of the agent that answers, as far as a chat uses it."""

    async def run(
        self, prompt: str, *, history: tuple[Message, ...] = (), on_event: EventListener | None = None
    ) -> Outcome:
        """Answer a request of the user, telling of it event by event. Raises `UsageError`."""
        ...

    def cancel(self) -> None:
        """End the run that goes on: it returns, with a valid history."""
        ...

    async def preview(self) -> tuple[str, tuple[Tool, ...]]:
        """Return the model's view now: the prompt, and the tools in their order."""
        ...

    async def compact(self, history: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the history with its older part summarised."""
        ...


class ChatSession(Struct, kw_only=True):
    """The state of a chat. Lives as long as the terminal it runs in; what must survive is in `saved`.

    The agent is made when it is first needed (`ready`), and anew after a change of the model or the session: loading
    Pydantic AI takes about a second, which the first screen does not wait for.
    """

    crib: Toolcrib
    session: Session
    settings: Settings
    """Loaded settings, `chat` and the workspace filled in."""
    screen: Screen
    keyboard: Keyboard
    asker: Asker
    chats: Chats
    saved: SavedChat
    agent_loader: Callable[[ChatSession], Awaitable[ChatAgent]]
    """Makes what answers, of the session and the model as they are. Raises `UsageError`."""
    choice: ModelChoice | None = None
    """Model of the chat; None without one: the user can make calls by hand."""
    agent: ChatAgent | None = None
    """None as long as it is not needed, or while it is loaded."""
    history: tuple[Message, ...] = ()
    unread: list[Any] = field(default_factory=list[Any])
    """The messages of a conversation that is gone on with, as JSON, until what reads them is loaded."""
    usage: Usage = field(default_factory=Usage)
    """Usage of the whole conversation."""
    context: int = 0
    """Tokens that the last request took of the model's window."""
    window: int = 0
    calls: list[CallRecord] = field(default_factory=list[CallRecord])
    is_leaving: bool = False
    queue: list[str] = field(default_factory=list[str])
    """Prompts typed while the model worked, sent next."""
    typed: str = ""
    """Unfinished text typed while the model worked; content of the next prompt."""
    interrupt: Callable[[], None] = lambda: None
    """Ends what goes on now."""
    _measured: tuple[object, int] = (None, 0)
    """Cache of `surface`, with its input: the status line asks for it at every key."""
    _making: anyio.Lock = field(default_factory=anyio.Lock)

    async def ready(self) -> ChatAgent:
        """Return the agent, made on first use. Raises `UsageError`."""
        async with self._making:
            if self.unread:
                self.history, self.unread = await self._read(), []
            while self.agent is None:
                wanted = self.choice, self.session
                made = await self.agent_loader(self)
                if wanted == (self.choice, self.session):  # another model may have been named meanwhile
                    self.agent = made
            return self.agent

    def go_on_with(self, profile: str) -> None:
        """Show the tools in another way from now on. Raises `UsageError` for a profile that does not exist."""
        self.session = self.crib.session(key=self.session.state.key, profile=profile)
        self.agent = None
        self.saved = replace(self.saved, profile=profile)

    async def _read(self) -> tuple[Message, ...]:
        unread = dumps(self.unread)

        def load_unread() -> tuple[Message, ...]:
            from ..messages import load

            return tuple(load(unread))

        return await to_thread.run_sync(load_unread)

    async def take_up(self, saved: SavedChat, messages: Sequence[Any] = ()) -> None:
        """Go on with a conversation, and with what waits for review in it; the one before is left as it was saved."""
        session = open_session(self.crib, self.asker, saved)
        await self.session.__aexit__(None, None, None)
        self.session, self.saved, self.history, self.agent = session, saved, (), None
        self.unread = list(messages)
        self.usage, self.context, self.calls = Usage(**saved.usage), 0, []

    def remember(self, shown: CallRecord) -> CallRecord:
        """Keep a call that has ended under the next number, and return it with that."""
        shown = replace(shown, number=self.calls[-1].number + 1 if self.calls else 1)
        self.calls.append(shown)
        del self.calls[:-_SHOWN_KEPT]
        return shown

    def set_mode(self, name: str) -> None:
        """Go to another mode, as strict as the user's own. Raises `UsageError` for one that does not exist."""
        self.session.mode = self.settings.policy.local_mode(name)
        self.saved = replace(self.saved, mode=self.session.mode)

    @property
    def surface(self) -> int:
        """Estimated tokens of the instructions and tool definitions, before the first message."""
        session = self.session
        state, tools = session.state, session.tools
        known = (session.visible.catalog.version, len(tools), state.profile, state.mode)
        if self._measured[0] != known:
            tokens = estimate(session.instructions) + sum(estimate(definition_text(tool)) for tool in tools)
            self._measured = (known, tokens)
        return self._measured[1]

    @property
    def model_name(self) -> str:
        """Short name of the model; `no model` without one."""
        return self.choice.model.partition("@")[0] if self.choice else "no model"


def open_session(crib: Toolcrib, asker: Asker | None, saved: SavedChat) -> Session:
    """Open the session of a conversation, its pending changes restored. Without `asker` calls are not approved.

    Raises `UsageError` for a mode or a profile that does not exist.
    """
    options: SessionOptions = {"key": f"chat-{saved.id}"}
    if saved.profile:
        options["profile"] = saved.profile
    if saved.mode:
        options["mode"] = crib.settings.policy.local_mode(saved.mode)
    if asker is not None:
        options["approver"], options["elicitor"] = asker, asker.clarify
    return crib.session(**options)


def next_mode(chat: ChatSession) -> str:
    """Return the mode that follows the one of the session."""
    modes = modes_of(chat.settings)
    own = [name for name in modes if name not in _ORDER]
    order = [*(name for name in _ORDER[:-1] if name in modes), *own, *(name for name in _ORDER[-1:] if name in modes)]
    place = order.index(chat.session.mode) if chat.session.mode in order else -1
    return order[(place + 1) % len(order)]


def modes_of(settings: Settings) -> list[str]:
    """Return the modes that the user of this machine can choose from."""
    return list(dict.fromkeys(map(settings.policy.local_mode, settings.policy.modes)))


def mode_style(mode: str) -> str:
    """Return the colour of a mode."""
    return _MODE_STYLES.get(mode, "yellow")


async def go_on(chat: ChatSession, saved: SavedChat) -> None:
    """Take `saved` up in this chat, and show where it was left. Raises `ConfigError` for a file that cannot be read."""
    messages = chat.chats.messages(saved)
    await chat.take_up(saved, messages)
    tell_where(chat)


def tell_where(chat: ChatSession) -> None:
    """Show the end of a resumed conversation; print no output for a new one."""
    messages, saved = chat.unread, chat.saved
    if not messages:
        return
    chat.screen.note(f"going on with {saved.id}: {saved.title} ({saved.turns} turns)")
    if prompt := _last(messages, "user-prompt"):
        chat.screen.say(plain(f"❯ {prompt}", "bold"))
    if text := _last(messages, "text"):
        chat.screen.say(chat.screen.markdown(text))
    chat.screen.gap()


def _last(messages: list[Any], kind: str) -> str:
    """Return the last text of the user or the model."""
    parts = [part for message in messages for part in message.get("parts", ()) if part.get("part_kind") == kind]
    return str(parts[-1].get("content", "")) if parts else ""


async def keep(chat: ChatSession, prompt: str, outcome: Outcome) -> None:
    """Take over the outcome of a turn and save the conversation; a write error is shown, not raised."""
    chat.history, chat.usage = outcome.history, chat.usage + outcome.usage
    saved = replace(
        chat.saved,
        model=chat.choice.model if chat.choice else "",
        profile=chat.session.state.profile,
        mode=chat.session.mode,
        title=await _description_of(chat) or chat.saved.title or prompt,
        turns=chat.saved.turns + 1,
        usage=asdict(chat.usage),
    )
    chat.saved = saved
    from ..messages import dump

    try:
        chat.saved = chat.chats.save(saved, orjson.loads(dump(outcome.history)))
    except ToolcribError as error:
        chat.screen.fail(f"this conversation is not saved: {error}")


async def _description_of(chat: ChatSession) -> str:
    """Return the session's description (`session_describe`); empty without one."""
    try:
        found = await chat.crib.store.records.get((LOCAL, SESSIONS), chat.session.state.key)
    except ToolFailure:  # the store cannot be used: it stays as it is called
        return ""
    return str(found.value.get("description", "")) if found is not None else ""
