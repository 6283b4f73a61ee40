"""The office that requests are about: a tracker, mail, a calendar and contacts, as tools over plain records.

Everything that a tool changes is in `Office.records`, so that a case is judged by what is there afterwards. Numbers of
new records follow the highest one there is; nothing depends on the time of day.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from toolcrib.plugin import ToolFailure, tool

_WORLD: Final[dict[str, Any]] = yaml.load(
    Path(__file__).with_name("world.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader
)
FILES: Final[Mapping[str, str]] = _WORLD.pop("files")
"""What is in the workspace at first, by path."""
_WORLD["pages"]["Log book"] = "\n".join(f"Entry {number}: boat {number * 7} came in." for number in range(1, 1501))
RECORDS: Final[Mapping[str, Mapping[str, Any]]] = _WORLD
"""Everything else that is there at first: kind → key → record."""

_ME: Final = "me@harbour.test"

Record = dict[str, Any]


class Office:
    """The records of one case, and the tools that work on them."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Record]] = {}
        self.reset()

    def reset(self) -> None:
        """Put everything back as it was at first."""
        self.records = copy.deepcopy({kind: dict(there) for kind, there in RECORDS.items()})

    def find(self, kind: str, key: object, what: str) -> Record:
        """Return a record; raises `ToolFailure` with those that there are."""
        there = self.records[kind]
        if str(key) not in there:
            raise ToolFailure("tool_error", f"there is no {what} {key}", hint=f"there are {', '.join(there)}")
        return there[str(key)]

    def select(self, kind: str, wanted: Callable[[Record], bool]) -> list[Record]:
        """Return copies of the records that are wanted, each with its key."""
        return [{"id": key, **record} for key, record in self.records[kind].items() if wanted(record)]

    def add(self, kind: str, prefix: str, record: Record) -> Record:
        """Put a record under the next key; return it with that."""
        numbers = [int(key.removeprefix(prefix)) for key in self.records[kind]]
        key = f"{prefix}{max(numbers, default=0) + 1}"
        self.records[kind][key] = record
        return {"id": key, **record}

    # The tracker

    @tool(kind="read", category="tracker", tags=["issue", "bug"], open_world=False)
    async def list_issues(self, state: Literal["open", "closed", "all"] = "open", assignee: str = "") -> list[Record]:
        """List issues of the bug tracker, all of them or those of one person.

        Args:
            state: Which ones.
            assignee: First name of the person that they are assigned to, in small letters.
        """
        return self.select(
            "issues",
            lambda issue: state in ("all", issue["state"]) and assignee in ("", issue["assignee"]),
        )

    @tool(kind="read", category="tracker", tags=["issue", "bug"], open_world=False)
    async def search_issues(self, text: str) -> list[Record]:
        """Find issues of the bug tracker, open and closed ones, by words of their title or body.

        Args:
            text: One word or phrase that they hold.
        """
        return self.select("issues", lambda issue: text.lower() in f"{issue['title']} {issue['body']}".lower())

    @tool(kind="read", category="tracker", tags=["issue", "bug"], open_world=False)
    async def get_issue(self, number: int) -> Record:
        """Show one issue of the bug tracker with its comments."""
        return {"number": number, **self.find("issues", number, "issue")}

    @tool(kind="write", category="tracker", tags=["issue", "bug"], open_world=False)
    async def create_issue(self, title: str, body: str = "", labels: list[str] | None = None) -> Record:
        """Report a new issue in the bug tracker.

        Args:
            title: What is wrong, in a line.
            body: More about it.
            labels: Labels such as bug, docs or urgent.
        """
        made = {"title": title, "body": body, "state": "open", "labels": labels or [], "assignee": "", "comments": []}
        return self.add("issues", "", made)

    @tool(kind="write", category="tracker", tags=["issue", "bug"], open_world=False)
    async def close_issue(self, number: int, reason: Literal["done", "duplicate", "wontfix"] = "done") -> Record:
        """Close an issue of the bug tracker.

        Args:
            number: Its number.
            reason: Why it is closed.
        """
        issue = self.find("issues", number, "issue")
        if issue["state"] == "closed":
            raise ToolFailure("tool_error", f"issue {number} is closed already")
        issue |= {"state": "closed", "reason": reason}
        return issue

    @tool(kind="write", category="tracker", tags=["issue", "bug"], open_world=False)
    async def reopen_issue(self, number: int) -> Record:
        """Open a closed issue of the bug tracker again."""
        issue = self.find("issues", number, "issue")
        if issue["state"] == "open":
            raise ToolFailure("tool_error", f"issue {number} is open already")
        issue["state"] = "open"
        issue.pop("reason", None)
        return issue

    @tool(kind="write", category="tracker", tags=["issue", "bug"], open_world=False)
    async def comment_on_issue(self, number: int, text: str) -> Record:
        """Add a comment to an issue of the bug tracker."""
        issue = self.find("issues", number, "issue")
        issue["comments"].append(text)
        return issue

    @tool(kind="write", category="tracker", tags=["issue", "bug"], open_world=False)
    async def assign_issue(self, number: int, person: str) -> Record:
        """Assign an issue of the bug tracker to somebody.

        Args:
            number: Its number.
            person: First name of the person, in small letters.
        """
        issue = self.find("issues", number, "issue")
        issue["assignee"] = person
        return issue

    @tool(kind="write", category="tracker", tags=["issue", "bug"], open_world=False)
    async def label_issue(self, number: int, labels: list[str]) -> Record:
        """Add labels to an issue of the bug tracker; those that it has stay."""
        issue = self.find("issues", number, "issue")
        issue["labels"] = sorted({*issue["labels"], *labels})
        return issue

    @tool(kind="destructive", category="tracker", tags=["issue", "bug"], open_world=False)
    async def delete_issue(self, number: int) -> str:
        """Delete an issue of the bug tracker for good, comments and all. To close one is another tool."""
        self.find("issues", number, "issue")
        del self.records["issues"][str(number)]
        return f"issue {number} is gone"

    # Mail

    @tool(kind="read", category="mail", tags=["email", "message"], traits=["untrusted", "private"], open_world=False)
    async def list_mail(self, folder: Literal["inbox", "sent", "archive", "trash"] = "inbox") -> list[Record]:
        """List the e-mails of a folder: from whom, subject, without their text."""
        shown = self.select("mail", lambda mail: mail["folder"] == folder)
        return [{key: value for key, value in mail.items() if key != "body"} for mail in shown]

    @tool(kind="read", category="mail", tags=["email", "message"], traits=["untrusted", "private"], open_world=False)
    async def search_mail(self, text: str) -> list[Record]:
        """Find e-mails in every folder by words of sender, subject or text."""
        return self.select(
            "mail", lambda mail: text.lower() in f"{mail['from']} {mail['subject']} {mail['body']}".lower()
        )

    @tool(kind="read", category="mail", tags=["email", "message"], traits=["untrusted", "private"], open_world=False)
    async def read_mail(self, id: str) -> Record:
        """Read one e-mail.

        Args:
            id: Its id, such as m3.
        """
        return {"id": id, **self.find("mail", id, "mail")}

    @tool(kind="write", category="mail", tags=["email", "message"], traits=["outbound"])
    async def send_mail(self, to: str, subject: str, body: str) -> Record:
        """Write an e-mail and send it.

        Args:
            to: Address of the receiver.
            subject: Subject line.
            body: The text.
        """
        if "@" not in to:
            raise ToolFailure("tool_error", f"{to} is no address", hint="find the person's address in the contacts")
        return self._send(to, subject, body)

    @tool(kind="write", category="mail", tags=["email", "message"], traits=["outbound"])
    async def reply_to_mail(self, id: str, body: str) -> Record:
        """Answer an e-mail: to its sender, under its subject."""
        mail = self.find("mail", id, "mail")
        return self._send(mail["from"], f"Re: {mail['subject']}", body)

    @tool(kind="write", category="mail", tags=["email", "message"], traits=["outbound"])
    async def forward_mail(self, id: str, to: str) -> Record:
        """Send an e-mail on to somebody else, as it is."""
        mail = self.find("mail", id, "mail")
        return self._send(to, f"Fwd: {mail['subject']}", mail["body"])

    @tool(kind="write", category="mail", tags=["email", "message"], open_world=False)
    async def move_mail(self, id: str, folder: Literal["inbox", "archive", "trash"]) -> Record:
        """Put an e-mail into another folder: file it away, or throw it into the trash."""
        mail = self.find("mail", id, "mail")
        mail["folder"] = folder
        return {"id": id, "folder": folder}

    @tool(kind="destructive", category="mail", tags=["email", "message"], open_world=False)
    async def empty_trash(self) -> str:
        """Delete all e-mails in the trash for good."""
        gone = [key for key, mail in self.records["mail"].items() if mail["folder"] == "trash"]
        for key in gone:
            del self.records["mail"][key]
        return f"{len(gone)} e-mails are gone"

    def _send(self, to: str, subject: str, body: str) -> Record:
        return self.add("mail", "m", {"from": _ME, "to": to, "subject": subject, "body": body, "folder": "sent"})

    # The calendar

    @tool(kind="read", category="calendar", tags=["event", "meeting", "appointment"], open_world=False)
    async def list_events(self, day: str) -> list[Record]:
        """List the meetings and other events of one day.

        Args:
            day: The day, such as 2026-11-23.
        """
        return self.select("events", lambda event: event["start"].startswith(day))

    @tool(kind="read", category="calendar", tags=["event", "meeting", "appointment"], open_world=False)
    async def search_events(self, text: str) -> list[Record]:
        """Find meetings and other events of the calendar by words of their title."""
        return self.select("events", lambda event: text.lower() in event["title"].lower())

    @tool(kind="read", category="calendar", tags=["event", "meeting", "free", "busy"], open_world=False)
    async def find_free_time(self, day: str, minutes: int) -> list[str]:
        """Find when there is time for a meeting: full hours of a working day that nothing stands in the way of.

        Args:
            day: The day, such as 2026-11-23.
            minutes: How long it takes, at most 60.
        """
        taken = {event["start"][11:13] for event in self.select("events", lambda one: one["start"].startswith(day))}
        return [f"{day}T{hour:02}:00" for hour in range(9, 17) if f"{hour:02}" not in taken and minutes <= 60]

    @tool(kind="write", category="calendar", tags=["event", "meeting", "appointment"], open_world=False)
    async def create_event(self, title: str, start: str, minutes: int = 60, people: list[str] | None = None) -> Record:
        """Put a meeting or another event into the calendar.

        Args:
            title: What it is.
            start: When it begins, such as 2026-11-23T10:00.
            minutes: How long it takes.
            people: First names of those who come, in small letters.
        """
        taken = self.select("events", lambda event: event["start"] == start)
        if taken:
            raise ToolFailure("tool_error", f"{start} is taken by {taken[0]['title']}", hint="look for free time")
        return self.add("events", "e", {"title": title, "start": start, "minutes": minutes, "people": people or []})

    @tool(kind="write", category="calendar", tags=["event", "meeting", "appointment"], open_world=False)
    async def move_event(self, id: str, start: str) -> Record:
        """Move a meeting to another time.

        Args:
            id: Its id, such as e2.
            start: When it begins then, such as 2026-11-23T10:00.
        """
        event = self.find("events", id, "event")
        event["start"] = start
        return event

    @tool(kind="write", category="calendar", tags=["event", "meeting", "guest"], open_world=False)
    async def invite_to_event(self, id: str, person: str) -> Record:
        """Add a person to a meeting.

        Args:
            id: Its id, such as e2.
            person: First name, in small letters.
        """
        event = self.find("events", id, "event")
        event["people"] = [*event["people"], person]
        return event

    @tool(kind="destructive", category="calendar", tags=["event", "meeting", "cancel"], open_world=False)
    async def cancel_event(self, id: str) -> str:
        """Call a meeting off: it leaves the calendars of all who come."""
        event = self.find("events", id, "event")
        del self.records["events"][id]
        return f"{event['title']} is called off"

    # Contacts

    @tool(kind="read", category="contacts", tags=["person", "address", "phone"], open_world=False)
    async def find_contact(self, name: str) -> list[Record]:
        """Find people in the address book: address, phone, firm.

        Args:
            name: Part of the name, or of the firm.
        """
        return self.select("contacts", lambda person: name.lower() in f"{person['name']} {person['firm']}".lower())

    @tool(kind="write", category="contacts", tags=["person", "address", "phone"], open_world=False)
    async def add_contact(self, name: str, email: str, phone: str = "", firm: str = "") -> Record:
        """Add a person to the address book."""
        return self.add("contacts", "c", {"name": name, "email": email, "phone": phone, "firm": firm})

    @tool(kind="write", category="contacts", tags=["person", "address", "phone"], open_world=False)
    async def update_contact(self, id: str, email: str = "", phone: str = "", firm: str = "") -> Record:
        """Change what the address book says of a person; what is left out stays as it is.

        Args:
            id: The person's id, such as c2.
            email: New address.
            phone: New number.
            firm: New firm.
        """
        person = self.find("contacts", id, "contact")
        person |= {key: value for key, value in (("email", email), ("phone", phone), ("firm", firm)) if value}
        return person
