"""Texts of approval: the arguments as a person sees them, the word for a destructive call, and every refusal.

They are made once for a question and stored with it, so that every channel shows the same text.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, get_args

from ..core.call import Call
from ..core.json import canonical_with_paths, dumps, loads
from ..core.patterns import regex
from ..core.permission import Approval, Decision, Question, Verdict
from ..core.sandbox import SHELL_FOLDER
from ..core.sanitize import escape, is_hidden
from ..core.session import LOCAL
from ..errors import ToolFailure
from .shell.command_tools import runs_shell

_IRRECOVERABLE_RULE: Final = regex(r"irrecoverable: (\w+)(?:[ -].*)? asks in every mode")
"""The rule that `policy.decision` names for such a command; the affected data begins with the command word."""
_UNREADABLE_COMMANDS: Final = "commands"
"""First word of irrecoverable commands that could not be read: they have no command word."""
_COMMAND_ARGUMENTS: Final = ("command", "cmd")
_NAME_SEPARATOR: Final = regex(r"__|[./:]")
_WORD: Final = regex(r"[\w+-]{2,40}")
_RESERVED_WORDS: Final = frozenset({*get_args(Verdict), "details"})
"""Words that are answers themselves."""
_FALLBACK_WORD: Final = "confirm"

_TERM: Final = regex(r"[^\W_]{2,}")
_LATIN_LOOKALIKES: Final = frozenset("аеорсухіјѕԁһӏԛԝАВЕКМНОРСТУХІЈЅΑΒΕΖΗΙΚΜΝΟΡΤΥΧο")
"""Cyrillic and Greek letters that no reader tells from a Latin one: a word of them alone may look like a Latin one."""
_LOOKALIKE_NAMES: Final = (
    *("ARMENIAN", "BLACK-LETTER", "CANADIAN SYLLABICS", "CHEROKEE", "COPTIC", "CYRILLIC", "DESERET", "DOUBLE-STRUCK"),
    *("ETHIOPIC", "FULLWIDTH", "GREEK", "KELVIN", "LATIN LETTER SMALL CAPITAL", "LATIN SMALL LETTER ALPHA"),
    *("LATIN SMALL LETTER SCRIPT G", "LISU", "MATHEMATICAL", "OSAGE", "ROMAN NUMERAL", "SCRIPT", "SMALL ROMAN"),
)
"""Beginnings of the names of letters that imitate a Latin one in a deceptive text."""
_SIGN_LOOKALIKES: Final = regex(
    "[\u037e\u1680\u2000-\u200a\u2024\u2044\u205f\u2215\u2236\u29f8\ua789]"
    "|(?<![^\x00-\x7f])[\u3000\u3002\uff01-\uff0f\uff1a-\uff20\uff61]+(?![^\x00-\x7f])"
    "|(?<![^\x00-\x7f])[\xa0\u202f]+(?![^\x00-\x7f]|[:;!?%])"
)
"""Signs and blanks that imitate plain ones: with U+2215 for a slash, the name of a strange host reads as a page of a
known one. Chinese and Japanese write those of the second line beside letters of their own, French the blanks of the
third, before `:;!?%` too."""

NO_OTHER_WAY: Final = "Do not try another way to the same effect; inform the user."
"""Order to a model, which a person at a terminal is not shown."""
_UNOVERRIDABLE_RULES = ("approval always: ", "irrecoverable: ", "no sandbox: ", "workflow step: ")
"""Rules that an allowing rule cannot override (`policy.decision`)."""
_FOLLOW_COMMENT = "Follow the approver's comment; do not try another way to the same effect."


def confirmation_word(tool: str, kind: str, rule: str, arguments: Mapping[str, Any]) -> str:
    """Return the word that approves a call, or nothing where one key does.

    A call of the kind `destructive` and an irrecoverable command need a word: the command word of a shell command
    (`rm`), else the last segment of the tool's name (`delete_note` of `notes__delete_note`). A command that the model
    chose cannot make the word a single key or another answer.

    Empty: one key approves. The word is never one that is an answer itself (`yes`, `all`, …), nor one that cannot be
    typed.
    """
    irrecoverable = rule.startswith("irrecoverable: ")
    if kind != "destructive" and not irrecoverable:
        return ""
    lost = _IRRECOVERABLE_RULE.fullmatch(rule)
    words = [lost[1].lower()] if lost is not None and lost[1] != _UNREADABLE_COMMANDS else []
    if not irrecoverable:
        texts = (arguments.get(name) for name in _COMMAND_ARGUMENTS)
        words += [_command_word(text) for text in texts if isinstance(text, str)]
    words += [_NAME_SEPARATOR.split(tool)[-1], tool]
    return next((word for word in words if _can_be_typed(word)), _FALLBACK_WORD)


def _command_word(text: str) -> str:
    """Return the program of the first command; empty when only the shell will know it."""
    from .shell.grammar import read_script  # large: only for questions about commands

    return next((command.name for command in read_script(text).commands), "")


def _can_be_typed(word: str) -> bool:
    plain = word.isascii() and _WORD.fullmatch(word) is not None and not any(map(is_hidden, word))
    return plain and word.lower() not in _RESERVED_WORDS


def binding(
    definition: str, arguments: Mapping[str, Any], principal: str, folder: str = "", implementation: str = ""
) -> str:
    """Return the hash (hexadecimal) over tool, arguments, principal and folder that binds an approval to its call.

    `definition` is the digest of the tool's definition; `implementation` is that of what it runs, where its source has
    one. Sessions of one user share a store, and the same relative path or command has another effect in another
    project.

    The store refuses to redeem an approval under another hash.
    """
    bound = [definition, arguments, principal, folder, *filter(None, (implementation,))]
    return hashlib.sha256(canonical_with_paths(bound)).hexdigest()


def binding_of(call: Call) -> str:
    """Return the hash that binds an approval to `call`, where it would run now."""
    definition = call.target.digest.hex()
    return binding(definition, call.arguments, call.session.principal, folder_of(call), call.implementation)


def folder_of(call: Call) -> str:
    """Return the working directory of the paths and commands of `call`; empty for a session without a folder.

    Of a shell that stays, its present folder; of any other tool, the working directory of the session.
    """
    kept: Path | None = call.session.runtime.get(SHELL_FOLDER) if runs_shell(call.target) else None
    folder = kept or call.session.files.cwd
    return "" if folder == Path() else str(folder)


def shown_arguments(arguments: Mapping[str, Any]) -> str:
    """Return `arguments` as indented JSON, whole, sorted and escaped."""
    plain = loads(dumps(arguments))
    return shown_text(json.dumps(plain, ensure_ascii=False, sort_keys=True, indent=1), json_escapes=True)


def shown_text(text: str, *, json_escapes: bool = False) -> str:
    """Return `text` with everything that hides or deceives as an escape; line ends and tabs stay.

    `json_escapes` writes them as JSON does, for a text that is JSON.

    What is escaped: control and invisible characters, letters that imitate Latin ones inside a Latin word, and signs
    that imitate a slash, a colon or a blank. Text in another script stays readable.
    """
    if text.isascii() and not any(map(is_hidden, text.replace("\n", "").replace("\t", ""))):
        return text
    plain = "".join(map(_escape_lookalikes, text.splitlines(keepends=True)))
    return escape(plain, lines=True, written=_json_escape) if json_escapes else escape(plain, lines=True)


def _escape_lookalikes(line: str) -> str:
    """Escape what imitates plain characters. Each line (of JSON: each member) is one text, in one script or more."""
    if line.isascii():
        return line
    foreign = [char for char in set(line) if _is_lookalike(char)]
    plain = _TERM.sub(
        _escape_latin_lookalikes if all(map(_LATIN_LOOKALIKES.__contains__, foreign)) else _escape_in_mixed_word, line
    )
    return _SIGN_LOOKALIKES.sub(lambda signs: "".join(map(_json_escape, signs.group())), plain)


def _escape_in_mixed_word(word: re.Match[str]) -> str:
    """Escape the letters of other scripts in a word that also holds plain ones."""
    letters = word.group()
    if not any(map(str.isascii, letters)):
        return letters
    return "".join(char if not _is_lookalike(char) else _json_escape(char) for char in letters)


def _escape_latin_lookalikes(word: re.Match[str]) -> str:
    """Escape the foreign letters of a text that has only such as look Latin: nothing there is in another script."""
    return "".join(char if char not in _LATIN_LOOKALIKES else _json_escape(char) for char in word.group())


def _is_lookalike(char: str) -> bool:
    return not char.isascii() and unicodedata.name(char, "").startswith(_LOOKALIKE_NAMES)


def _json_escape(char: str) -> str:
    """Return `char` as JSON escapes it: UTF-16 units."""
    return json.dumps(char)[1:-1] if not char.isascii() else f"\\u{ord(char):04x}"


def approved_by(approval: Approval, decision: Decision) -> str:
    """Return the rule of a grant: the approver, and the rule that asked."""
    return f"approved by {approval.by or 'the approver'} ({decision.rule})"


def refusal_by_answer(settled: Approval, name: str = "") -> ToolFailure:
    """Return the approver's refusal; `name` is the model's name for the tool, if known."""
    comment = settled.comment
    reason = f": {comment}" if comment else ""
    message = f"{settled.by or 'the approver'} refused {name or settled.tool}{reason}"
    hint = _FOLLOW_COMMENT if comment else NO_OTHER_WAY
    return ToolFailure("denied", message, hint=hint, details=_refusal_details(settled.rule, "refused", comment))


def refusal_while_pending(question: Question) -> ToolFailure:
    """Return the refusal of a call whose question is still open; `details` identify it, with the text for the user."""
    shown = {"tool": question.tool.name, "arguments": question.shown, "diff": question.diff, "hash": question.hash}
    details = {**_refusal_details(question.decision.rule, "pending"), "approval": question.approval, **shown}
    message = f"{question.tool.name} did not run yet: whether it may waits for an answer"
    hint = "do not call it again; go on when the user has answered"
    return ToolFailure("denied", message, hint=hint, details=details)


def refusal_while_held(question: Question, link: str = "") -> ToolFailure:
    """Return the result of a call that waits for an answer: the same call, made again after a yes, runs once."""
    command = f"toolcrib approvals yes {question.approval}"
    if question.principal == LOCAL:
        way = f"answer it with `{command}`" + (f" or {link}" if link else "")
    else:  # the machine of the gateway is another one
        way = f"answer it at {link}" if link else f"have the operator of this gateway answer it with `{command}`"
    details = {**_refusal_details(question.decision.rule, "held"), "approval": question.approval, "command": command}
    details |= {"link": link} if link else {}
    message = f"{question.tool.name} did not run yet: it waits for the user's approval ({question.decision.rule})"
    hint = (
        f"Ask the user to {way}; do not answer it yourself. Once it is approved, make the same "
        "call again with the same arguments: it runs once, without another question."
    )
    return ToolFailure("approval_pending", message, hint=hint, details=details)


def refusal_by_rule(call: Call, rule: str) -> ToolFailure:
    """Return the refusal of a rule for a call that waited for an answer, or for arguments that the answer changed."""
    return ToolFailure(
        "denied", f"{call.name} is denied by {rule}", hint=NO_OTHER_WAY, details={"rule": rule, "reason": "denied"}
    )


def refusal_without_approver(call: Call, decision: Decision) -> ToolFailure:
    """Return the refusal of a call without a reachable approver."""
    message = f"{call.name} needs approval ({decision.rule}), and no approver is available"
    ways = ["give the session an approver", "set approvals: {wait: true} and answer with `toolcrib approvals`"]
    return ToolFailure(
        "denied", message, hint=_how_to_allow(call, ways), details=_refusal_details(decision.rule, "no_approver")
    )


def refusal_without_answer(call: Call, decision: Decision, seconds: float) -> ToolFailure:
    """Return the refusal of a question without an answer."""
    message = f"no answer within {seconds:g} s to the question whether {call.name} may run"
    return ToolFailure(
        "denied", message, hint=_how_to_allow(call), details=_refusal_details(decision.rule, "unanswered")
    )


def refusal_after_error(call: Call, decision: Decision) -> ToolFailure:
    """Return the refusal where asking itself failed."""
    message = f"{call.name} needs approval, and asking for it failed"
    return ToolFailure("denied", message, hint=_how_to_allow(call), details=_refusal_details(decision.rule, "broken"))


def _refusal_details(rule: str, reason: str, comment: str = "") -> dict[str, str]:
    """Return which rule asked, and why it came to no: refused, pending, no_approver, unanswered or broken."""
    why = {"rule": rule, "reason": reason}
    return {**why, "comment": comment} if comment else why


def _how_to_allow(call: Call, more: list[str] | None = None) -> str:
    """For the person behind the model: a rule for this tool, a mode that does not ask, a way to be asked."""
    insists = call.decision is not None and call.decision.rule.startswith(_UNOVERRIDABLE_RULES)
    ways = [] if insists else [f"add the rule allow: {call.target.name}"]
    if call.decision is not None and call.decision.rule.startswith("mode "):
        ways.append("use the mode autonomous")
    if not (ways := [*ways, *(more or [])]):
        return f"It asks each time, and no rule changes that. {NO_OTHER_WAY}"
    return f"The operator of Toolcrib can allow it: {', or '.join(ways)}. {NO_OTHER_WAY}"
