"""What a case of the corpus is, and how its YAML is read: a request, the calls that are right, and what they leave.

    close-the-login-bug:                      # its id, after the group: the name of the file
      ask: Close issue 1, it is done.         # what the user says; with `turns:`, several times
      calls:                                  # the right calls, in this order
        - close_issue: {number: 1}            # the tool, and the arguments that must be so
          or: [{update_issue: {number: 1}}]   # what is as right
          code: ok                            # what becomes of it: ok, or an error code
          find: close a ticket                # what a model looks for, where tools must be found
          beside: true                        # in the same step as the call before it
      forbidden: [delete_issue]               # must not even be tried
      says: [closed]                          # words of the last answer
      leaves: {issues: {"1": {state: closed}}}   # what is different afterwards; everything else must be as it was.
                                              # {}: the calls change what this world does not show
      asked: [close_issue]                    # what the user was asked for, in this order
      order: any                              # the calls may come in any order
      mode: cautious                          # autonomous when nothing is said
      answers: ["no"]                         # what the user answers, the last one for ever; yes when nothing is said;
                                              # or {edit: ARGUMENTS}, {comment: TEXT}
      clarifies: [the first one]              # what the user answers to questions, where the model may ask some
      needs: [files]                          # what the host of `selection` knows of the task: categories, tags, names
      rules: {deny: [close_issue]}            # rules of the session
      files: {a.txt: text, b.txt: {lines: 9}} # what is there before, beside the world of every case
      large: true                             # with two hundred more tools around

An argument, and what a file or a record is left with, may be `{like: PATTERN}`, whatever the case of its letters; a
scripted model sends `say`, or what `from`, a pattern with one group, finds in what it heard last, or else in the newest
result of the case that has it.

The groups are files, and a category of tools may have one of its own. When a scripted model is lost: in `adaptive` the
search did not find the tool among its first five, so say in `find` what a user of such a tool would look for; in
`selection` the request's words did not bring it, so say in `needs` what a host would know.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, cast

from toolcrib.core.documents.yaml import parse_yaml

CORPUS: Final = Path(__file__).with_name("corpus")
GROUPS: Final = ("ambiguous", "approval", "discovery", "error", "multi_step", "refusal", "single")

_CALL_KEYS: Final = ("or", "code", "find", "beside")
_TURN_KEYS: Final = ("ask", "calls", "says", "find", "forbidden")
_LIKE_KEYS: Final = ("like", "say", "from")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One right call."""

    tool: str
    arguments: Mapping[str, Any]
    instead: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Other calls that are as right."""
    code: str = "ok"
    find: str = ""
    beside: bool = False

    @property
    def ways(self) -> tuple[tuple[str, Mapping[str, Any]], ...]:
        """Every call that is right here, the one of the script first."""
        return ((self.tool, self.arguments), *self.instead)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What the user says once, and what it should lead to."""

    ask: str
    calls: tuple[Wanted, ...] = ()
    says: tuple[str, ...] = ()
    find: str = ""
    """What a model looks for where no call is right: it finds nothing that does it."""
    forbidden: tuple[str, ...] = ()
    """Beside those of the case."""

    @property
    def steps(self) -> tuple[tuple[Wanted, ...], ...]:
        """The calls, those of one step together."""
        steps: list[list[Wanted]] = []
        for call in self.calls:
            if call.beside:
                steps[-1].append(call)
            else:
                steps.append([call])
        return tuple(map(tuple, steps))


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case of the corpus. `id` is `group/name`."""

    id: str
    turns: tuple[Turn, ...]
    forbidden: tuple[str, ...] = ()
    leaves: Mapping[str, Any] | None = None
    """None where nothing is said; an empty one says that what its calls change is not to be seen in this world."""
    asked: tuple[str, ...] | None = None
    order: str = "as written"
    mode: str = "autonomous"
    answers: tuple[str | Mapping[str, Any], ...] = ("yes",)
    clarifies: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    rules: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    large: bool = False

    @property
    def group(self) -> str:
        """The file that it stands in."""
        return self.id.partition("/")[0]

    @property
    def wanted(self) -> tuple[Wanted, ...]:
        """The right calls of all turns."""
        return tuple(call for turn in self.turns for call in turn.calls)

    @property
    def tools(self) -> frozenset[str]:
        """Every tool that it names."""
        right = {name for call in self.wanted for name, _ in call.ways}
        return frozenset({*right, *self.forbidden, *(name for turn in self.turns for name in turn.forbidden)})


_CASE_KEYS: Final = tuple(one.name for one in fields(Case) if one.name not in ("id", "turns"))


def read_corpus(folder: Path = CORPUS) -> Mapping[str, Case]:
    """Return every case by id. Raises `ValueError` naming the case and the key."""
    cases: dict[str, Case] = {}
    for path in sorted(folder.glob("*.yaml")):
        document: Any = parse_yaml(path.read_text(encoding="utf-8"), path.name).plain()
        for name, given in document.items():
            cases[f"{path.stem}/{name}"] = read_case(f"{path.stem}/{name}", given)
    return cases


def read_case(identity: str, given: Mapping[str, Any]) -> Case:
    """Return the case that `given` describes. Raises `ValueError` naming the case and the key."""
    known = (*_CASE_KEYS, "turns", *_TURN_KEYS)
    _check(identity, given, known)
    turns = given.get("turns") or [{key: given[key] for key in _TURN_KEYS if key in given and key != "forbidden"}]
    rest = {key: given[key] for key in _CASE_KEYS if key in given}
    rest |= {
        key: _words(identity, key, rest[key]) for key in ("asked", "clarifies", "forbidden", "needs") if key in rest
    }
    rest |= {"answers": tuple(_answer(identity, answer) for answer in given.get("answers", ["yes"]))}
    rest |= {"files": {path: _file(text) for path, text in rest.get("files", {}).items()}}
    if rest.get("order", "any") != "any":
        raise ValueError(f"{identity}: order is `any`, or nothing is said of it")
    return Case(id=identity, turns=tuple(_turn(f"{identity}: turn", turn) for turn in turns), **rest)


def _answer(where: str, given: Any) -> str | Mapping[str, Any]:
    if isinstance(given, str) or (isinstance(given, dict) and given.keys() <= {"comment", "edit"}):
        return cast("str | dict[str, Any]", given)
    raise ValueError(f"{where}: answers takes texts in quotes, {{edit: ARGUMENTS}}, {{comment: TEXT}}, not {given!r}")


def _file(given: str | Mapping[str, int]) -> str:
    """Return the text of a file; `{lines: N}` is a long one."""
    if isinstance(given, str):
        return given
    return "".join(f"line {number} is the one\n" for number in range(1, given["lines"] + 1))


def _turn(where: str, given: Mapping[str, Any]) -> Turn:
    _check(where, given, _TURN_KEYS)
    if not isinstance(given.get("ask"), str):
        raise ValueError(f"{where}: needs `ask`, what the user says")
    return Turn(
        ask=given["ask"],
        calls=tuple(_wanted(where, call) for call in given.get("calls", ())),
        says=_words(where, "says", given.get("says", [])),
        find=given.get("find", ""),
        forbidden=_words(where, "forbidden", given.get("forbidden", [])),
    )


def _wanted(where: str, given: Mapping[str, Any]) -> Wanted:
    names = [key for key in given if key not in _CALL_KEYS]
    if len(names) != 1:
        raise ValueError(f"{where}: a call names one tool, not {names}")
    arguments = _arguments(given[names[0]])
    others: list[dict[str, Any]] = given.get("or", [])
    instead = tuple((name, _arguments(other[name])) for other in others for name in other)
    for value in (*arguments.values(), *(value for _, said in instead for value in said.values())):
        if is_like(value):
            re.compile(value["like"])
        elif isinstance(value, dict) and "like" in value:
            raise ValueError(f"{where}: {names[0]}: beside `like` stand {', '.join(_LIKE_KEYS[1:])}, nothing else")
    more = {key: given[key] for key in ("code", "find", "beside") if key in given}
    return Wanted(tool=names[0], arguments=arguments, instead=instead, **more)


def _arguments(given: Any) -> dict[str, Any]:
    return given or {}


def is_like(value: object) -> bool:
    """Whether `value` is a pattern in the place of a value."""
    return isinstance(value, dict) and "like" in value and cast("dict[str, Any]", value).keys() <= set(_LIKE_KEYS)


def same(wanted: Any, found: Any) -> bool:
    """Whether `found` is what is wanted: equal, or like the pattern that stands in its place."""
    if is_like(wanted):
        text = found if isinstance(found, str) else json.dumps(found)
        return re.search(wanted["like"], text, re.IGNORECASE | re.DOTALL) is not None
    if isinstance(wanted, dict) and isinstance(found, dict):
        theirs, ours = cast("dict[str, Any]", found), cast("dict[str, Any]", wanted)
        return theirs.keys() == ours.keys() and all(same(value, theirs[key]) for key, value in ours.items())
    if isinstance(wanted, list) and isinstance(found, list):
        pairs = zip(cast("list[Any]", wanted), cast("list[Any]", found), strict=False)
        return len(cast("list[Any]", wanted)) == len(cast("list[Any]", found)) and all(same(*pair) for pair in pairs)
    return wanted == found


def _words(where: str, key: str, given: Any) -> tuple[str, ...]:
    words = [given] if isinstance(given, str) else given
    if not isinstance(words, list) or not all(isinstance(word, str) for word in cast("list[Any]", words)):
        raise ValueError(f"{where}: {key} takes texts; YAML reads yes, no and numbers as something else: quote them")
    return tuple(cast("list[str]", words))


def _check(where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in given:
        if key not in known:
            raise ValueError(f"{where}: there is no key {key!r}, only {', '.join(known)}")
