"""Recipes of a Makefile or a justfile that a run reaches: those of its goals and of what these depend on.

Variables and `define` are expanded, functions are not: a prerequisite that only make can tell reaches every target that
is not a command (`.PHONY`, `clean`), unless it is a list of files. Rules whose target is a pattern count as reached,
and so does what a file runs while it is read: `$(shell …)`, `$(eval …)`, `!=`, and a `SHELL` of its own.

    text ── _lines_without_defines (define taken out) ──► variables, rules, `always` (what runs while the file is read)
    goals ── _reached_rules ──► rules of the goals and of their prerequisites ── _expand_variables ──► shell texts

Conditionals are not evaluated: the lines of both branches count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from ...core.patterns import regex

_VARIABLE: Final = regex(r"^[ \t]*(?:export |override |set )*[ \t]*([\w.-]+)[ \t]*(:{0,3}=|[?+!]=)[ \t]*(.*)$")
_RULE: Final = regex(r"^@?([^\s#:=][^#:=]*?)[ \t]*&?::?(?![=:])[ \t]*([^#]*)")
_DEFINE: Final = regex(r"^define ([\w.-]+)")
_BLANKS: Final = regex(r"(?<=.)[ \t]{2,}")
_VARIABLE_USE: Final = regex(
    r"(?<!\$)\$(?:[({](?:call\s+)?([\w.-]+)(?:,[^(){}]{0,200})?[)}]|([A-Za-z]))|\{\{\s*([\w-]+)\s*\}\}"
)
_SHELL_CALL_START: Final = regex(r"\$[({](?:shell|eval)\s")
_SHELL_CALL: Final = regex(r"\$[({](?:shell|eval)\s+((?:[^()]|\([^()]{0,4000}\)){0,4000})[)}]")
_FILE_NAME_FUNCTION: Final = regex(
    r"\$[({](?:(?:wildcard|patsubst)\s(?:[^()]|\([^()]{0,200}\)){0,200}|[\w.-]{1,200}:[^(){}]{0,200})[)}]"
)
"""Functions that make names of files of the names of others."""
_INCLUDE: Final = regex(r"^[ \t]*[-s]?(?:include|import)[ \t]+(.+)$", re.MULTILINE)
_SHELL: Final = regex(r"(?:/usr)?(?:/bin/)?(?:env )?(?:ba|da|z)?sh")
_KNOWN_VARIABLES: Final = {"MAKE": "make", "RM": "rm -f", "CURDIR": ".", ".RECIPEPREFIX": "\t"}
_CLEANERS: Final = frozenset(
    "clean cleanall clean-all distclean maintainer-clean mostlyclean mrproper uninstall".split()
)
_MAX_DEPTH: Final = 8
_UNKNOWN_VALUE: Final = regex(r"\$[({][^)}]*[)}]|\$\w")
_MAX_INCLUDES: Final = 100
LARGEST: Final = 512 * 1024
"""Characters of a file that are looked at."""
_MAX_CALLS: Final = 200
"""Functions in one line that start a program or make lines of it."""
_MAX_VALUE_LENGTH: Final = 4_000
_MAX_EXPANDED_LENGTH: Final = 64_000
"""Characters of a value, and of a line with its values."""


class TooLarge(Exception):
    """A file in which make would find more than is looked at."""


class _Rule(Struct):
    targets: list[str]
    needs: list[str]
    lines: list[str] = field(default_factory=list[str])


def included_by(text: str) -> list[str]:
    """Return the names of the files that a Makefile includes, as patterns."""
    text = _BLANKS.sub(" ", text[:LARGEST])
    variables = {found[1]: found[3] for line in text.splitlines() if (found := _VARIABLE.match(line))}
    names = (
        name for found in _INCLUDE.findall(text)[:_MAX_INCLUDES] for name in _expand_variables(found, variables).split()
    )
    return list(dict.fromkeys(_UNKNOWN_VALUE.sub("*", name) for name in names))


def recipes(text: str, goals: Sequence[str]) -> list[str]:
    """Return the shell texts that a run for `goals`, or for the first target without one, may start.

    Raises `TooLarge`.

    The variables have their last values, wherever a rule stands; make expands recipes after it has read the whole file,
    too.
    """
    if len(text) > LARGEST:
        raise TooLarge
    variables, rules, always = dict(_KNOWN_VARIABLES), list[_Rule](), list[str]()
    for line in _lines_without_defines(text, variables):
        always += [part for text in _shell_calls(line) for part in (text, *re.split("[:;]", text)[1:])]
        if (line[:1] in " \t" or line[:1] == variables[".RECIPEPREFIX"][:1]) and line.strip() and rules:
            rules[-1].lines.append(line[1:].strip())
        elif given := _VARIABLE.match(line):
            name, sign, value = given.groups()
            variables[name] = (
                f"{variables.get(name, '')} {value}".strip()[:_MAX_VALUE_LENGTH] if sign == "+=" else value.strip("'\"")
            )
            always += [value] if sign == "!=" else []
            always += [f"sh {value}"] if name == ".SHELLFLAGS" else []
            always += [value] if name == "SHELL" and not _SHELL.fullmatch(value.strip()) else []
        elif rule := _RULE.match(line):
            needs, _, first = rule[2].partition(";")
            rules.append(
                _Rule(_expand_variables(rule[1], variables).split(), [needs], [first.strip()] if first.strip() else [])
            )
    for rule in rules:
        rule.needs = _FILE_NAME_FUNCTION.sub("", _expand_variables(rule.needs[0], variables)).split()
    wanted = list(goals) or _expand_variables(variables.get(".DEFAULT_GOAL", ""), variables).split()
    lines = [line.lstrip("@-+ ") for place in sorted(_reached_rules(rules, wanted)) for line in rules[place].lines]
    made, size = list[str](), 0
    for line in (*lines, *always):
        made.append(_expand_variables(line, variables))
        size += len(made[-1])
        if size > LARGEST:
            raise TooLarge
    return made


def _shell_calls(line: str) -> Iterator[str]:
    """Yield what the functions in a line start. Raises `TooLarge`."""
    for number, call in enumerate(_SHELL_CALL_START.finditer(line)):
        if found := _SHELL_CALL.match(line, call.start()):
            yield found[1]
        if number >= _MAX_CALLS or (found is None and len(line) - call.start() > _MAX_VALUE_LENGTH):
            raise TooLarge


def _lines_without_defines(text: str, variables: dict[str, str]) -> Iterator[str]:
    """Yield the lines without those between `define` and `endef`, which become values of `variables`."""
    defined = ""
    for line in _BLANKS.sub(" ", text.replace("\\\n", " ")).splitlines():
        if defined and line.startswith("endef"):
            defined = ""
        elif defined:
            variables[defined] = f"{variables.get(defined, '')}\n{line}"[:_MAX_VALUE_LENGTH]
        elif begins := _DEFINE.match(line):
            defined = begins[1]
        else:
            yield line


def _reached_rules(rules: Sequence[_Rule], goals: Sequence[str]) -> set[int]:
    """Return the places of the rules that a run for `goals` may use."""
    first = [rule.targets[0] for rule in rules if rule.targets and not rule.targets[0].startswith(".")]
    phony = {name for rule in rules if ".PHONY" in rule.targets for name in rule.needs} | _CLEANERS
    by_name: dict[str, list[int]] = {}
    for place, rule in enumerate(rules):
        for name in rule.targets:  # the parameters of a recipe of a justfile stand there, too, and do no harm
            by_name.setdefault(name, []).append(place)
    found = {place for place, rule in enumerate(rules) if any(map(_is_pattern, rule.targets))}
    given = [one for goal in goals for one in ([goal] if goal in by_name else [goal, *first[:1]])]
    waiting = [*(given or first[:1]), *(need for place in found for need in rules[place].needs)]
    seen, is_any = set[str](), False
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += [one for one in by_name if one not in phony] if "$" in name and not is_any else []
            is_any = is_any or "$" in name
            places = by_name.get(name, [])
            found |= set(places)
            waiting += [need for place in places for need in rules[place].needs]
    return found


def _is_pattern(target: str) -> bool:
    return "%" in target or "$" in target or (target.startswith(".") and not target[1:].replace("_", "").isupper())


def _expand_variables(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with the values of the variables that are known, and `$$` as the shell sees it.

    Stops after `_MAX_DEPTH` rounds: a variable that names itself would grow without an end.
    """
    for _ in range(_MAX_DEPTH):
        if len(text) > _MAX_EXPANDED_LENGTH or not any(use in variables for use in _variables_used(text)):
            break
        text = _VARIABLE_USE.sub(
            lambda found: variables.get(found[1] or found[2] or found[3], found[0])[:_MAX_VALUE_LENGTH], text
        )
    return text.replace("$$", "$")


def _variables_used(text: str) -> Iterator[str]:
    for found in _VARIABLE_USE.finditer(text):
        yield found[1] or found[2] or found[3]
