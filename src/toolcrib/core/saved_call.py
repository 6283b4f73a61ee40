"""Saved calls: a call in a form that can be stored and made again by another process.

Live objects are left out: the listener, the approver, the client. A call that is made again passes through the pipeline
from the top; its grant is represented by the id of an approval, which must be redeemed there.

    SavedCall.of(call) ──► store, encrypted ──► SavedCall.from_json ──► `crib.calls.SavedCalls.make` ──► the pipeline

Written for an open approval, and for a job. A field of `Call` or `SessionState` that a repeated call needs has a field
here, a line in `of` and, for the session, one in `SavedCalls.session`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from msgspec import Struct, field

from .call import Call
from .json import encodable, fields_of
from .permission import Effect
from .session import SessionState


def path_text(path: Path) -> str:
    """Return a path as text for JSON: a name that is not UTF-8 as its bytes, behind a NUL, which no path contains."""
    text = str(path)
    return text if encodable(text) is text else f"\0{os.fsencode(text).hex()}"


def path_of(text: str) -> Path:
    """Return the path that `path_text` wrote."""
    return Path(os.fsdecode(bytes.fromhex(text[1:])) if text.startswith("\0") else text)


class SavedSession(Struct, frozen=True, kw_only=True):
    """The session properties that affect its calls; JSON throughout. `allowed` None is every tool."""

    key: str
    principal: str
    instance: str = ""
    profile: str = "adaptive"
    mode: str = "cautious"
    rules: tuple[tuple[Effect, tuple[str, ...]], ...] = ()
    allowed: tuple[str, ...] | None = None
    exact: tuple[str, ...] | None = None
    contexts: tuple[str, ...] = ("global",)
    disabled: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    available: Mapping[str, Any] = field(default_factory=dict[str, Any])
    versions: Mapping[str, str] = field(default_factory=dict[str, str])
    user: str = ""
    cwd: str = "."
    """As `path_text` writes it."""
    roots: tuple[str, ...] = ()
    """Of its workspace, as `path_text` writes them; empty for none."""
    task: str = ""
    for_client: bool = False
    planning: bool = False
    tainted: str = ""
    confided: str = ""

    @classmethod
    def of(cls, session: SessionState) -> Self:
        """Return the stored properties of `session`."""
        return cls(
            key=session.key,
            principal=session.principal,
            instance=session.instance,
            profile=session.profile,
            mode=session.mode,
            rules=session.rules,
            allowed=None if session.scope.allowed is None else tuple(sorted(session.scope.allowed)),
            exact=session.scope.exact,
            contexts=tuple(sorted(session.scope.contexts)),
            disabled=tuple(session.scope.disabled),
            defaults=session.defaults,
            available=session.scope.available,
            versions=session.scope.versions,
            user=session.user,
            cwd=path_text(session.files.cwd),
            roots=tuple(map(path_text, session.files.workspace.roots)) if session.files.workspace is not None else (),
            task=session.files.task,
            for_client=session.audience.is_client,
            planning=session.scope.planning,
            tainted=session.taint.source,
            confided=session.taint.private_read_by,
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the session from the form of `fields_of`, or JSON of that.

        JSON has lists where the fields are tuples.
        """
        given: dict[str, Any] = {name: values[name] for name in cls.__struct_fields__ if name in values}
        for name in ("allowed", "exact", "contexts", "disabled", "roots"):
            if given.get(name) is not None:
                given[name] = tuple(given[name])
        given["rules"] = tuple((effect, tuple(texts)) for effect, texts in given.get("rules", ()))
        return cls(**given)


class SavedCall(Struct, frozen=True, kw_only=True):
    """One call that is to be made again under its own id.

    Fields have the names of those of `Call` and its groups: `crib.calls` hands them to `Call.evolve`.
    """

    id: str
    name: str
    """The real tool's name in the catalog."""
    arguments: Mapping[str, Any]
    """Validated, real arguments with defaults filled in; the store encrypts them."""
    session: SavedSession
    definition: str
    """Digest of the tool's definition (hexadecimal): another tool of the same name was not approved."""
    origin: str = "library"
    requested: str = ""
    timeout: float | None = None
    idempotency_key: str = ""
    parent: str = ""
    first: str = ""
    meta: Mapping[str, Any] | None = None
    client_name: str = ""
    op: str = ""
    verb: str = ""
    is_unlisted: bool = False
    reading: Mapping[str, Any] | None = None
    result_hint: str = ""
    raw: bool = False
    charged: bool = False
    """Its share of the budgets is taken: it is one call, however often it is made."""
    implementation: str = ""
    """What it would have run when a person was asked about it."""
    version: str = ""
    """Version that the call itself pinned."""
    migrated: str = ""
    """The arguments were migrated from this older version, and are not again."""

    @classmethod
    def of(cls, call: Call) -> Self:
        """Return the stored form of a call that was resolved and validated."""
        return cls(
            id=call.id,
            name=call.target.name,
            arguments=call.arguments,
            session=SavedSession.of(call.session),
            definition=call.target.digest.hex(),
            origin=call.origin,
            requested=call.route.requested,
            timeout=call.options.timeout,
            idempotency_key=call.options.idempotency_key,
            parent=call.parent,
            first=call.first,
            meta=call.client.meta,
            client_name=call.client.client_name,
            op=call.route.op,
            verb=call.route.verb,
            is_unlisted=call.route.is_unlisted,
            reading=call.route.reading,
            result_hint=call.options.result_hint,
            raw=call.options.raw,
            charged=call.charged,
            implementation=call.implementation,
            version=call.options.version,
            migrated=call.changes.migrated,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON; `from_json` makes the same value of it."""
        return fields_of(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the call from the form of `to_json`; keys of a newer Toolcrib are left out."""
        given: dict[str, Any] = {name: values[name] for name in cls.__struct_fields__ if name in values}
        given["session"] = SavedSession.from_json(values["session"])
        return cls(**given)
