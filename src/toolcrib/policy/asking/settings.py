"""Settings of approvals: the configuration key `approvals`."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator

from ...core.settings import Count, Flag, Number, Section, Text, at_most, expected, setting

__all__ = ["LONGEST", "ApprovalSettings", "Webhook", "WhenGone"]

WhenGone = Literal["drop", "run"]
"""Handling of a question whose caller left: it is cancelled, or stays open and runs as a job after a late yes."""

LONGEST: Final = 24 * 3600.0
"""Maximum of `expires`, in seconds."""


def _http(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise expected("an http:// or https:// URL")
    return url


def _link(url: str) -> str:
    return _http(url) if url else url


class Webhook(Section):
    """Endpoint to which questions are posted."""

    replaced_whole = True

    url: Annotated[Text, AfterValidator(_http)]
    """Receives each question as a POST request."""
    secret: Text = setting("", secret=True)
    """Key that signs the posts (HMAC-SHA256); empty signs nothing."""
    allow_private: Flag = False
    """Whether the host may have an address that is not public, such as 127.0.0.1."""


class ApprovalSettings(Section):
    """Settings of asking for and storing approvals."""

    timeout: Number = 120.0
    """Seconds that an approver has; no answer is a no."""
    expires: Annotated[Number, at_most(LONGEST, "86400 seconds")] = 600.0
    """Seconds after which a question, and an approval that was not used, expires."""
    idle: Number = 300.0
    """Seconds without a call after which the answer `idle` ends."""
    pending: Count = 100
    """Questions of one principal that may be open at a time."""
    wait: Flag = False
    """Whether a session without an approver waits for an answer in the store (`approval_wait`), as those of MCP clients
    do in any case, instead of being refused at once."""
    when_gone: WhenGone = "drop"
    """`drop` cancels the question of a caller that left; `run` keeps it, and runs the call as a job after a yes."""
    notify: Flag = True
    """Whether a held call is announced by a desktop notification, where `notify-send` or `osascript` is there."""
    link: Annotated[Text, AfterValidator(_link)] = ""
    """Address where the user answers a held call, `{id}` in it stands for the question; part of `approval_pending`."""
    webhook: Webhook | None = setting(None, hidden=True)
    """Address that every question is posted to."""
