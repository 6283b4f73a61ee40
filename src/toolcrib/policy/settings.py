"""Settings of the policy (modes, rules, identities, permissions of tools, content from strangers) and of approvals."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator

from ..core.session import LOCAL, Limits
from ..core.settings import POLICY, Count, Flag, Number, Section, Text, Texts, a_list_of, at_most, expected, setting
from .modes import MODES, Mode, Permissions
from .rules import RuleTexts
from .taint import Taint

WhenGone = Literal["drop", "run"]
"""Handling of a question whose caller left: it is cancelled, or stays open and runs as a job after a late yes."""

MAX_EXPIRY_SECONDS: Final = 24 * 3600.0
"""Maximum of `expires`, in seconds."""


def _guard(value: Any) -> bool:
    """`on` and `off` are also text: JSON and the command line have no other way to write them."""
    words = {True: True, False: False, "on": True, "off": False}
    if not isinstance(value, bool | str) or value not in words:
        raise expected("on or off")
    return words[value]


def _whole_name(text: str) -> str:
    if "*" in text:
        raise expected("names of tools without patterns")
    return text


class RuleSettings(Section):
    """The key `rules`: rules as they are written, by effect."""

    lists_add_up = True

    deny: Texts = ()
    """Calls that are denied."""
    ask: Texts = ()
    """Calls that a person is asked about."""
    allow: Texts = ()
    """Calls that run unasked."""
    broken: tuple[str, ...] = setting((), in_code=True, in_digest=True)
    """Errors of rules that could not be read; while there are any, only local reads are not denied."""


class Identity(Section):
    """Settings of every session of one principal."""

    profile: Text = ""
    """Profile of a session that names none; empty takes the configuration's."""
    mode: Text = ""
    """Likewise."""
    rules: RuleTexts = setting({})
    """Rules beside those of the configuration."""
    limits: Limits = setting(Limits.model_construct())
    """Limits in the place of the configuration's, as far as they are set."""
    allowed_tools: Annotated[tuple[Annotated[Text, AfterValidator(_whole_name)], ...], a_list_of("strings")] | None = (
        None
    )
    """The most that its sessions may have, by whole names; what a session names itself can only be less."""
    broken: tuple[str, ...] = setting((), in_code=True, in_digest=True)
    """Errors of its rules that could not be read."""
    file: str = setting("", in_code=True)
    """Position in the configuration: `file:line`."""


class PolicySettings(Section):
    """The keys of a file that decide what is allowed."""

    mode: Text = setting("cautious", why=POLICY)
    """Mode of sessions that name none."""
    modes: Mapping[str, Mode] = setting(MODES, why=POLICY, names_only=True)
    """Modes of the user, and changes to the built-in ones."""
    rules: RuleSettings = setting(RuleSettings.model_construct(), why=POLICY)
    """Rules of every session."""
    identities: Mapping[str, Identity] = setting({}, why=POLICY, names_only=True)
    """Profile, mode, rules and limits of a principal's sessions, by its name."""
    tool_permissions: Permissions = setting({}, why=POLICY)
    """allow, ask or deny by a tool's name or pattern, in every mode that does not name the tool."""
    approval_wait: Number = setting(25.0, why=POLICY)
    """Seconds that a call waits for an answer from elsewhere, before it ends as `approval_pending`."""
    untrusted: Taint = setting(Taint.model_construct(), why=POLICY)
    """Definition of untrusted content, and whether a session that read some asks before it acts."""
    guard: Annotated[bool, BeforeValidator(_guard)] = setting(True, why=POLICY)
    """`off` behind a client that guards its user itself: definitions that were not reviewed are reported and used, only
    the user's own tools are declared, and results carry no fence. Other defaults change with it. In a file `off` has no
    effect: it is an option of `serve`."""

    def local_mode(self, name: str) -> str:
        """Return the mode in which the user of this machine works who names this one.

        It is as strict as the mode of the identity `local`, if that has one. The name of an unknown mode stays.
        """
        bound = self.identities[LOCAL].mode if LOCAL in self.identities else ""
        if not bound or name not in self.modes:
            return name
        return self.modes[name].restricted_by(self.modes[bound], self.tool_permissions).name

    @property
    def broken_rules(self) -> tuple[str, ...]:
        """Errors of all rules that could not be read."""
        return (*self.rules.broken, *(error for one in self.identities.values() for error in one.broken))


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
    expires: Annotated[Number, at_most(MAX_EXPIRY_SECONDS, "86400 seconds")] = 600.0
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
