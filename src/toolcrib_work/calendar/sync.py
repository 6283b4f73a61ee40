"""Two-way synchronisation with calendar servers.

Local changes are sent first, each on the condition that the server still has the version that it was based on; then
the server's changes since the last token are read. Where both sides changed an event, neither is overwritten: the event
has `sync_status: conflict` and both versions until the user chooses one. Every step may be repeated: after a restart,
or beside another process, it finds that it was done.

    change here     pending ──> server has our etag, or what was sent to it last: PUT ──> synced
                       │         └─ another version, or it is gone: _meet ──> same content: synced
                       │                                               └─> conflict ──> resolve ──> pending or synced
    deleted here    deleting (hidden) ──> DELETE on our etag ──> row deleted
    change there    new etag in the answer ──> synced, or conflict where it waits here

`etag` and `synced` of a row are the version of the server that the local one is based on; `ical` is its text, or the
one that was sent last: the server has it although its answer was lost. No transaction is open during
a request: what was changed meanwhile shows by the revision of the row, and still waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
from msgspec import Struct, field

from toolcrib.plugin import Row, Rows, SharedStorage, ToolFailure, Web

from ..graph.calendar_tables import is_deleting
from ..graph.nodes import new_id
from .event_rows import delete_event, hide_event, insert_event, show_event
from .ical import MAX_BYTES, Parsed, needs, parse, same_events, write
from .model import FIELDS, ensure_personal, personal
from .remote import Account, Changes, Found, Remote, Resource

_BATCH: Final = 50
"""Events that one transaction stores."""
_SECONDS: Final = 25.0
"""For one account."""


class Sync(Struct, kw_only=True):
    """Synchronisation of one principal's accounts, for one call.

    Accounts are synchronised at the same time, the calendars of one account after each other.
    """

    storage: SharedStorage
    invitations: SharedStorage
    """The same tables, for invitations: they are content of strangers."""
    web: Web
    accounts: Sequence[Account]
    zone: tzinfo
    now: float
    warnings: list[str] = field(default_factory=list[str])

    async def run(self, *, older_than: float = 0.0, calendar_id: str = "") -> None:
        """Synchronise the accounts that were last tried more than so many seconds ago, or one calendar.

        An account that failed since is left alone also for the calendar: each change would wait for a silent server.
        What fails is a warning: the local events stay as they are.
        """
        try:
            async with anyio.create_task_group() as tasks:
                for account in self.accounts:
                    tasks.start_soon(self._run_account, account, older_than, calendar_id)
        except* ToolFailure as group:  # the store cannot be used
            raise group.exceptions[0] from None
        self.warnings[:] = dict.fromkeys(self.warnings)

    async def make_calendar(self, account: Account, row: Row) -> None:
        """Create the calendar of a project on a server, and send its events there."""
        remote = Remote(self.web, account)
        home, _ = await remote.calendars()
        href = f"{home.rstrip('/')}/{row['id']}/"
        try:
            await remote.make_calendar(href, row["name"], row["description"] or "")
        except ToolFailure:
            if href not in {one.href for one in (await remote.calendars())[1]}:  # created by a call that was cut off
                raise

        def work(rows: Rows) -> None:
            rows.update("calendars", row["id"], {"account": account.name, "href": href, "sync_token": None})
            sql = "SELECT * FROM {events} AS e WHERE project_id = ? AND calendar_id IS NULL AND origin = 'ontology'"
            for event in rows.select(sql, [row["project_id"]]):
                changes = {"calendar_id": row["id"], "href": f"{href}{event['uid']}.ics", "sync_status": "pending"}
                rows.update("events", event["id"], changes)

        await self.storage.write(work)

    async def rename_calendar(self, account: Account, row: Row) -> None:
        """Change the name and description of a calendar on its server."""
        await Remote(self.web, account).rename_calendar(row["href"], row["name"], row["description"] or "")

    async def _run_account(self, account: Account, older_than: float, calendar_id: str) -> None:
        known = await self.storage.read(partial(_calendars_of, account))
        if calendar_id and calendar_id not in {row["id"] for row in known}:
            return
        state = next((row for row in known if row["kind"] == "account"), None)
        is_recent = state is not None and self.now - (state["checked_at"] or 0) < older_than
        if state is not None and is_recent and (state["sync_error"] or not calendar_id):
            if state["sync_error"]:
                self._warn(f"calendar account {account.name}", state["sync_error"])
            self._repeat_warnings(known)
            return
        error, is_checked = "", not calendar_id
        try:
            remote = Remote(self.web, account)
            await anyio.to_thread.run_sync(needs, "a calendar account")
            with anyio.fail_after(_SECONDS):
                tokens: dict[str, str] | None = None
                if not calendar_id:
                    _, found = await remote.calendars()
                    known = await self.storage.write(partial(_remember, account, found))
                    tokens = {one.href: one.sync_token for one in found}
                for calendar in known:
                    if calendar["kind"] != "account" and calendar_id in ("", calendar["id"]):
                        await self._run_calendar(remote, calendar, tokens)
        except ToolFailure as failure:
            error = failure.message if not failure.hint else f"{failure.message}: {failure.hint}"
            is_checked = failure.code != "denied" or bool(await account.login())  # else the user logs in, and looks
        except TimeoutError:
            error, is_checked = f"no answer within {_SECONDS:g} s", True
        if error:
            self._warn(f"calendar account {account.name}", error)
        await self.storage.write(partial(_note_account, account, error, checked=is_checked))

    async def _run_calendar(self, remote: Remote, calendar: Row, tokens: Mapping[str, str] | None) -> None:
        """Synchronise one calendar; its failure is its own, but one of the server ends the account's turn.

        `tokens` are those of the calendars that the server listed in this run, by their addresses.
        """
        if not calendar["sync_enabled"]:
            return
        error = ""
        try:
            await self._push(remote, calendar)
            token = (tokens or {}).get(calendar["href"], "")
            if not token or token != calendar["sync_token"]:
                await self._pull(remote, calendar, is_listed=tokens is None or calendar["href"] in tokens)
        except ToolFailure as failure:
            if failure.code in ("unavailable", "timeout"):
                raise
            error = failure.message
            self._warn(f"calendar {calendar['name']}", error)
        await self.storage.write(partial(_note_calendar, calendar["id"], error))

    async def _push(self, remote: Remote, calendar: Row) -> None:
        sql = (
            "SELECT * FROM {events} AS e WHERE calendar_id = ? AND sync_status IN ('pending', 'deleting')"
            " ORDER BY updated_at, id"
        )
        for row in await self.storage.read(lambda rows: rows.select(sql, [calendar["id"]])):
            await (self._push_deletion if row["sync_status"] == "deleting" else self._push_event)(remote, row)

    async def _push_event(self, remote: Remote, row: Row) -> None:
        """Send one event; nothing is sent over a version that was not seen here."""
        there = await remote.get(row["href"])
        synced: Mapping[str, Any] = row["synced"] or {}
        if there is not None and there.etag != row["etag"]:
            known = await anyio.to_thread.run_sync(self._known_fields, row, there)
            if known is None:
                return await self._meet(row, there)
            synced = known
        elif there is None and row["etag"]:
            return await self._meet(row, None)
        changed = {name: row[name] for name in FIELDS if there is None or row[name] != synced.get(name)}
        if there is not None and not changed:
            await self.storage.write(partial(_pushed, row, there.etag, there.data, self.now))
            return
        base = there.data if there is not None else None
        data = await anyio.to_thread.run_sync(write, row, base, changed, self.zone, self.now)
        if (sending := await self.storage.write(partial(_sending, row, data))) is None:
            return  # it was changed meanwhile: the next run sends what it is then
        row = sending
        etag = await remote.put(row["href"], data, there.etag if there is not None else "")
        if etag is None:
            return await self._meet(row, await remote.get(row["href"]))
        await self.storage.write(partial(_pushed, row, etag, data, self.now))

    async def _push_deletion(self, remote: Remote, row: Row) -> None:
        etag = row["etag"]
        if not etag:  # it may have been sent by a call that was cut off
            there = await remote.get(row["href"])
            if there is not None and not await anyio.to_thread.run_sync(self._is_same, row, there):
                return await self._meet(row, there)
            etag = there.etag if there is not None else ""
            if there is None:
                await self.storage.write(partial(_forget, row["id"]))
                return
        is_gone = await remote.delete(row["href"], etag)
        there = None if is_gone else await remote.get(row["href"])
        if there is not None and await anyio.to_thread.run_sync(same_events, row["ical"], there.data):
            is_gone = await remote.delete(row["href"], there.etag)  # what was sent last, whose answer was lost
        if is_gone:
            await self.storage.write(partial(_forget, row["id"]))
        else:
            await self._meet(row, there)

    async def _meet(self, row: Row, there: Resource | None) -> None:
        """Store a version of the server that a local change does not know: the same one, or a conflict."""
        is_same = there is not None and await anyio.to_thread.run_sync(self._is_same, row, there)
        if there is not None and is_same and row["sync_status"] == "pending":
            await self.storage.write(partial(_pushed, row, there.etag, there.data, self.now))
            return
        if there is None and row["sync_status"] == "deleting":
            await self.storage.write(partial(_forget, row["id"]))
            return
        conflict = await anyio.to_thread.run_sync(self._conflict_of, row["sync_status"], there)
        await self._storage_of(there).write(partial(_conflict, row["id"], conflict))

    async def _pull(self, remote: Remote, calendar: Row, *, is_listed: bool) -> None:
        is_gone = False
        try:
            changes = await remote.changes(calendar["href"], calendar["sync_token"] or "")
        except ToolFailure as failure:
            is_gone = failure.code == "not_found" and calendar["kind"] == "user" and not is_listed
            if not is_gone:
                raise
            changes = Changes(etags={}, deleted=(), token="", is_whole=True)  # its events went with it
        sql = "SELECT id, href, etag FROM {events} AS e WHERE calendar_id = ? AND href IS NOT NULL"
        known = {row["href"]: row for row in await self.storage.read(lambda rows: rows.select(sql, [calendar["id"]]))}
        gone = _gone(changes, known)
        wanted = [
            href
            for href, etag in changes.etags.items()
            if href not in gone and (href not in known or not etag or known[href]["etag"] != etag)
        ]
        for first in range(0, len(wanted), _BATCH):
            part = wanted[first : first + _BATCH]
            resources = await remote.read(calendar["href"], part)
            parsed = await anyio.to_thread.run_sync(self._parsed, calendar, resources)
            for storage in (self.storage, self.invitations):
                if own := [one for one in parsed if self._storage_of(one[0]) is storage]:
                    await storage.write(partial(self._store, calendar, own))
        for first in range(0, len(gone), _BATCH):
            await self.storage.write(partial(self._remove, calendar, gone[first : first + _BATCH]))
        synced = {"sync_token": changes.token or None, "synced_at": self.now}  # the next run begins behind all of it
        await self.storage.write(lambda rows: rows.update("calendars", calendar["id"], synced))
        if is_gone:
            await self.storage.write(partial(_forget_calendar, calendar["id"]))

    def _storage_of(self, resource: Resource | None) -> SharedStorage:
        return self.invitations if resource is not None and resource.is_invitation else self.storage

    def _parsed(self, calendar: Row, resources: Sequence[Resource]) -> list[tuple[Resource, Parsed]]:
        """Return the events among resources. Runs in a thread: reading fifty takes a quarter of a second."""
        events: list[tuple[Resource, Parsed]] = []
        for resource in resources:
            try:
                if len(resource.data.encode()) > MAX_BYTES:
                    raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
                parsed = parse(resource.data, self.zone)
            except Exception as error:  # noqa: BLE001 - one event that the library cannot read hides no other one
                self._warn(f"calendar {calendar['name']}", f"{resource.href} cannot be read: {error}")
                continue
            if parsed is not None:
                events.append((resource, parsed))
        return events

    def _store(self, calendar: Row, events: Sequence[tuple[Resource, Parsed]], rows: Rows) -> None:
        for resource, parsed in events:
            self._store_one(rows, calendar, resource, parsed)

    def _store_one(self, rows: Rows, calendar: Row, resource: Resource, parsed: Parsed) -> None:
        sql = "SELECT * FROM {events} AS e WHERE calendar_id = ? AND href = ?"
        found = rows.select(sql, [calendar["id"], resource.href])
        values = _synced_values(parsed, resource, self.now)
        if not found:
            new = {
                **values,
                "project_id": calendar["project_id"],
                "uid": parsed.uid or resource.href,
                "calendar_id": calendar["id"],
                "origin": "external",
                "href": resource.href,
                "type_key": "event.work",
            }
            row = insert_event(rows, new)
            _publish(rows, "create", row)
            return
        row = found[0]
        if row["etag"] == resource.etag:
            return
        if row["sync_status"] == "synced":
            _publish(rows, "update", rows.update("events", row["id"], values))
        elif row["sync_status"] == "pending" and all(row[name] == parsed.fields[name] for name in FIELDS):
            rows.update("events", row["id"], values)
        else:
            intent = row["conflict"]["intent"] if row["conflict"] else row["sync_status"]
            _conflict(row["id"], self._conflict_of(intent, resource), rows)

    def _remove(self, calendar: Row, gone: Sequence[str], rows: Rows) -> None:
        """Store deletions of the server."""
        for href in gone:
            sql = "SELECT * FROM {events} AS e WHERE calendar_id = ? AND href = ?"
            for row in rows.select(sql, [calendar["id"], href]):
                intent = row["conflict"]["intent"] if row["conflict"] else row["sync_status"]
                if row["sync_status"] == "synced" or intent == "deleting":
                    delete_event(rows, row)
                    _publish(rows, "delete", row)
                else:
                    _conflict(row["id"], self._conflict_of(intent, None), rows)

    def _known_fields(self, row: Row, there: Resource) -> dict[str, Any] | None:
        """Return the fields of the server's version if they are those that it had, or was sent, when last asked."""
        try:
            before, now = parse(row["ical"] or "", self.zone), parse(there.data, self.zone)
        except Exception:  # noqa: BLE001 - what cannot be read is another version
            return None
        return now.fields if before is not None and now is not None and before.fields == now.fields else None

    def _is_same(self, row: Row, there: Resource) -> bool:
        try:
            parsed = parse(there.data, self.zone)
        except Exception:  # noqa: BLE001 - what cannot be read is another version
            return False
        return parsed is not None and all(row[name] == parsed.fields[name] for name in FIELDS)

    def _conflict_of(self, intent: str, there: Resource | None) -> dict[str, Any]:
        """Return the server's version as it is stored beside the local one."""
        if there is None:
            return {"intent": intent, "etag": None, "data": None, "fields": None}
        try:
            parsed = parse(there.data, self.zone)
        except Exception:  # noqa: BLE001 - it is shown as an event without fields
            parsed = None
        fields = parsed.fields if parsed is not None else {}
        edges = parsed.bounds if parsed is not None else {}
        return {"intent": intent, "etag": there.etag, "data": there.data, "fields": fields, "bounds": edges}

    def _warn(self, where: str, message: str) -> None:
        self.warnings.append(message if message.startswith(where) else f"{where}: {message}")

    def _repeat_warnings(self, known: Sequence[Row]) -> None:
        for row in known:
            if row["kind"] != "account" and row["sync_error"]:
                self._warn(f"calendar {row['name']}", row["sync_error"])


def mark_pending(rows: Rows, row: Row, changes: Mapping[str, Any]) -> Row:
    """Change an event; one of a synchronised calendar waits until it is sent."""
    if row["calendar_id"] and row["sync_status"] != "local":
        changes = {**changes, "sync_status": "pending", "sync_error": None}
    return rows.update("events", row["id"], changes)


def mark_deleted(rows: Rows, row: Row, *, everywhere: bool) -> None:
    """Delete an event: here, or first on its server, until when it is hidden."""
    if row["calendar_id"] and everywhere and row["sync_status"] != "local":
        hide_event(rows, row, {})
    else:
        delete_event(rows, row)


def resolve(rows: Rows, row: Row, choice: str, now: float) -> Row | None:
    """End a conflict with one of its versions; return the event, None where it is deleted.

    The chosen local version is sent on the condition that the server still has the version that was shown.
    """
    conflict: dict[str, Any] = row["conflict"]
    if choice == "keep_local":
        changes = {"conflict": None, "etag": conflict["etag"], "sync_status": conflict["intent"], "sync_error": None}
        if conflict["fields"]:
            changes |= {"synced": conflict["fields"], "ical": conflict["data"]}
        return hide_event(rows, row, changes) if is_deleting(changes) else rows.update("events", row["id"], changes)
    if conflict["fields"] is None:
        delete_event(rows, row)
        return None
    resource = Resource(href=row["href"], etag=conflict["etag"], data=conflict["data"])
    parsed = Parsed(uid=row["uid"], fields=conflict["fields"], bounds=conflict["bounds"])
    return rows.update("events", row["id"], _synced_values(parsed, resource, now))


def _gone(changes: Changes, known: Mapping[str, Row]) -> list[str]:
    """Return the paths of events that the server deleted; one that was never there is not among them."""
    if changes.is_whole:
        return [href for href, row in known.items() if row["etag"] and href not in changes.etags]
    return [href for href in changes.deleted if href in known and known[href]["etag"]]


def _calendars_of(account: Account, rows: Rows) -> list[Row]:
    sql = "SELECT * FROM {calendars} AS c WHERE account = ? AND principal = ? ORDER BY created_at, id"
    return rows.select(sql, [account.name, account.principal])


def _remember(account: Account, found: Sequence[Found], rows: Rows) -> list[Row]:
    """Store the calendars of an account; return all of them."""
    project_id = ensure_personal(rows)
    known = {row["href"]: row for row in _calendars_of(account, rows)}
    for one in found:
        row = known.get(one.href)
        if row is None:
            rows.insert(
                "calendars",
                {
                    "project_id": project_id,
                    "kind": "user",
                    "principal": account.principal,
                    "name": one.name,
                    "sync_enabled": 1,
                    "account": account.name,
                    "href": one.href,
                    "is_shared": int(one.is_shared),
                },
                id=new_id(),
            )
        elif row["kind"] == "user" and (row["name"], row["is_shared"]) != (one.name, int(one.is_shared)):
            rows.update("calendars", row["id"], {"name": one.name, "is_shared": int(one.is_shared)})
    return _calendars_of(account, rows)


def _note_account(account: Account, error: str, rows: Rows, *, checked: bool) -> None:
    project_id = ensure_personal(rows)
    values: dict[str, Any] = {"sync_error": error or None, **({"checked_at": rows.now} if checked else {})}
    for row in _calendars_of(account, rows):
        if row["kind"] == "account":
            rows.update("calendars", row["id"], values)
            return
    named = {"kind": "account", "principal": account.principal, "name": account.name, "account": account.name}
    fixed: dict[str, Any] = {"project_id": project_id, "href": "", "sync_enabled": 1, "is_shared": 0}
    rows.insert("calendars", {**named, **fixed, **values})


def _note_calendar(id: str, error: str, rows: Rows) -> None:
    row = rows.find("calendars", id)
    if row is not None and row["sync_error"] != (error or None):
        rows.update("calendars", id, {"sync_error": error or None})


def _synced_values(parsed: Parsed, resource: Resource, now: float) -> dict[str, Any]:
    return {
        **parsed.fields,
        **parsed.bounds,
        "synced": parsed.fields,
        "ical": resource.data,
        "etag": resource.etag,
        "sync_status": "synced",
        "sync_error": None,
        "synced_at": now,
        "conflict": None,
    }


def _sending(row: Row, data: str, rows: Rows) -> Row | None:
    """Store the text that is about to be sent, for the case that its answer is lost; None for an event that changed."""
    current = rows.find("events", row["id"])
    if current is None or current["revision"] != row["revision"]:
        return None
    return rows.update("events", row["id"], {"ical": data})


def _pushed(row: Row, etag: str, data: str, now: float, rows: Rows) -> None:
    """Store that the server has the version `row`; a change that was made meanwhile still waits."""
    current = rows.find("events", row["id"])
    if current is None:
        return
    values: dict[str, Any] = {
        "etag": etag,
        "ical": data,
        "synced": {name: row[name] for name in FIELDS},
        "synced_at": now,
    }
    met = current["conflict"]
    if met and met["etag"] == etag:  # another run met what was sent here before this was stored
        values |= {"conflict": None, "sync_status": met["intent"], "sync_error": None}
    elif current["revision"] == row["revision"]:
        values |= {"sync_status": "synced", "sync_error": None}
    if is_deleting(values):
        hide_event(rows, current, values)
    else:
        rows.update("events", row["id"], values)


def _forget(id: str, rows: Rows) -> None:
    if (row := rows.find("events", id)) is not None:
        delete_event(rows, row)


def _forget_calendar(id: str, rows: Rows) -> None:
    """Delete a calendar that the server has no more, unless events of it wait for a choice."""
    if not rows.select_values("SELECT id FROM {events} AS e WHERE calendar_id = ? LIMIT 1", (id,)):
        rows.delete("calendars", id)


def _conflict(id: str, conflict: Mapping[str, Any], rows: Rows) -> None:
    row = rows.find("events", id)
    if row is None or row["etag"] == conflict["etag"]:  # another run sent or stored this version meanwhile
        return
    theirs = "deleted" if conflict["fields"] is None else "changed"
    ours = "deleted" if conflict["intent"] == "deleting" else "changed"
    message = f"{ours} here and {theirs} on the server: choose one version"
    updated = rows.update("events", id, {"conflict": conflict, "sync_status": "conflict", "sync_error": message})
    if is_deleting(row):
        show_event(rows, row)
    if row["sync_status"] != "conflict":
        _publish(rows, "conflict", updated)


def _publish(rows: Rows, action: str, row: Row) -> None:
    """Record an event of the log, as the operations do; `origin` tells that the server changed it."""
    payload = {"op": f"cal.event.{action}", "entity": "event", "action": action, "kind": "event", "id": row["id"]}
    project_id = "" if row["project_id"] == personal(rows.principal) else row["project_id"]
    rows.publish(f"cal.event.{action}", project_id, {**payload, "title": row["title"], "origin": "sync"})
