"""Actions that a query wants and actions that a tool's name promises, and whether they are opposites.

    "undo the deletion"       wants the opposite of deleting         `delete_file` is opposed, `restore_file` agrees
    "use the archived x"      archived is its state, not the wish    `archive_x` is opposed

A word has a sign on each of its axes: the pairs of `opposites.txt`, and one axis of its own, on which the word with
un-, de- or dis- before it has the other sign. A word that reverses (undo, "do not", remove, "stop …ing") turns the sign
of the action after it; so does an article before a participle, which tells a
state. Pure functions of the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Final

from .terms import normal, read_lines, stem

__all__ = ["Actions", "Wanted", "actions_of_name", "are_opposed", "read_wanted"]

Actions = Mapping[str, int]
"""Sign by axis: 1 and -1 are opposites."""

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_CLAUSE: Final = re.compile(r"[.!?;:,](?:\s|$)|\n|\b(?:and|then)\b", re.IGNORECASE)
_NEGATION: Final = re.compile(r"^\W*(?:please\s+)?(?:do\s+not|don['\u2019]?t|never)\b|\bno\s+longer\b", re.IGNORECASE)
_PREFIXES: Final = ("un", "dis", "de")
_LEAST_BASE: Final = 3
"""Letters of a word that has an opposite with a prefix."""
_NOT_PREFIXED: Final = frozenset(
    map(
        stem,
        "cover deliver depart depend describe description design despatch detail determine discount discover discuss"
        " dispatch display dispute distance distribute understand unify union unique unit unite universe until".split(),
    )
)
_UNDOING: Final = frozenset(map(stem, "revert rollback undo".split()))
"""They reverse the next word, whatever it is."""
_STOP: Final = "stop"
"""It reverses what goes on: `stop following`."""
_REACH: Final = 5
"""Words after one that reverses, itself included, among which the reversed one stands."""
_TAKING: Final = frozenset(
    map(stem, "cancel clear delete disable drop end leave lift release remove revoke stop take withdraw".split())
)
"""They reverse the next word if it has a pair: `remove the lock`."""
_ARTICLES: Final = frozenset("a all an any each every its my our that the their this those your".split())
_BEFORE_STATES: Final = _ARTICLES | frozenset("already been had has have just was were".split())
"""Words after which a participle tells the present state: `the archived project`, `was deleted`."""
_PARTICIPLES: Final = frozenset({"frozen", "hidden", "shut"})
_AGAIN: Final = frozenset({"again", "back"})
_BESIDE: Final = 4
"""Words after a verb among which its particle stands."""
_MOST_WORDS: Final = 60
_REMEMBERED: Final = 1 << 15


@cache
def _axes() -> Mapping[str, tuple[tuple[str, int], ...]]:
    """Return axes with signs by stem, also by stem and particle (`turn-off`); read at first use."""
    found: dict[str, list[tuple[str, int]]] = {}
    for number, line in enumerate(read_lines("opposites.txt")):
        for sign, side in zip((1, -1), line.split("|"), strict=True):
            for word in side.split():
                verb, dash, particle = word.partition("-")
                found.setdefault(stem(verb) + dash + particle, []).append((str(number), sign))
    return MappingProxyType({word: tuple(axes) for word, axes in found.items()})


@cache
def _sides() -> Mapping[tuple[str, int], tuple[str, ...]]:
    """Return the stems of each side of each pair, without those that need a particle."""
    found: dict[tuple[str, int], tuple[str, ...]] = {}
    for word, axes in _axes().items():
        for side in axes if "-" not in word else ():
            found[side] = (*found.get(side, ()), word)
    return MappingProxyType(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a query wants done."""

    actions: Actions
    """An axis on which its clauses differ is left out."""
    reversed: frozenset[str]
    """Terms of actions that it wants reversed."""
    instead: frozenset[str]
    """Terms for the opposites of those, and verbs joined with their particle (`logout`)."""


@lru_cache(maxsize=_REMEMBERED)
def actions_of_name(name: str) -> tuple[Actions, ...]:
    """Return the actions in the last part of a tool's name, word by word, without an axis that has both signs."""
    words = [word.lower() for word in _WORD.findall(name.rpartition("__")[2].rpartition("/")[2])[:_MOST_WORDS]]
    stems = [*map(stem, words)]
    signs: dict[str, set[int]] = {}
    found: list[dict[str, int]] = []
    for at, (axes, _) in enumerate(_axes_in(words, stems)):
        own, around = stems[at], {*stems[max(0, at - 1) : at], *stems[at + 1 : at + 2]}
        is_reversed = not around.isdisjoint(_UNDOING) or (not around.isdisjoint(_TAKING) and own in _axes())
        is_reversed = is_reversed and own not in _TAKING | _UNDOING
        base = _base(words[at])
        itself = [(f"={base}", -1)] if base else [(f"={own}", 1)] if at == 0 or is_reversed else []
        found.append({axis: -sign if is_reversed else sign for axis, sign in (*axes, *itself)})
        for axis, sign in found[-1].items():
            signs.setdefault(axis, set()).add(sign)
    clear = ({axis: sign for axis, sign in actions.items() if len(signs[axis]) == 1} for actions in found)
    return tuple(MappingProxyType(actions) for actions in clear if actions)


def read_wanted(query: str) -> Wanted:
    """Return what `query` wants done."""
    signs: dict[str, set[int]] = {}
    undone, instead = set[str](), set[str]()
    for clause in _CLAUSE.split(normal(query)):
        for axis, sign in _read_clause(_NEGATION.sub(" undo ", clause), undone, instead).items():
            signs.setdefault(axis, set()).add(sign)
    actions = {axis: next(iter(found)) for axis, found in signs.items() if len(found) == 1}
    return Wanted(actions=MappingProxyType(actions), reversed=frozenset(undone), instead=frozenset(instead - undone))


def are_opposed(wanted: Actions, promised: Sequence[Actions]) -> bool:
    """Whether the first word of a name that has to do with what is wanted promises its opposite."""
    for actions in promised:
        shared = [(sign * wanted[axis], axis[0] != "=" or sign < 0) for axis, sign in actions.items() if axis in wanted]
        if any(sign > 0 and is_told for sign, is_told in shared):
            return False
        if any(sign < 0 for sign, _ in shared):
            return True
    return False


def _read_clause(clause: str, undone: set[str], instead: set[str]) -> dict[str, int]:
    """Return the actions of one clause, where the first sign on an axis counts; add to the terms of `Wanted`."""
    words = [word.lower() for word in _WORD.findall(clause)[:_MOST_WORDS]]
    stems = [*map(stem, words)]
    turned = _turned(words, stems)
    found: dict[str, int] = {}
    for at, (axes, particle) in enumerate(_axes_in(words, stems)):
        word, own = words[at], stems[at]
        is_turned = at in turned
        is_participle = at > 0 and bool(axes) and (word.endswith("ed") or word in _PARTICIPLES)
        is_state = is_participle and words[at - 1] in _BEFORE_STATES
        if is_turned or (is_state and not _AGAIN.isdisjoint(words)):
            undone.add(own)
            instead.update(f"{prefix}{own}" for prefix in _PREFIXES)
            instead.update(term for axis, sign in axes for term in _sides()[axis, -sign])
        if particle and own + particle in _axes():
            instead.add(own + particle)
        base = _base(words[at])
        for axis, sign in (*axes, (f"={base or own}", -1 if base else 1)):
            found.setdefault(axis, -sign if is_turned or is_state else sign)
    return found


def _turned(words: Sequence[str], stems: Sequence[str]) -> set[int]:
    """Return the places of the words that the one before reverses."""
    known, found = _axes(), set[int]()
    for at, own in enumerate(stems):
        after = [place for place in range(at + 1, min(at + _REACH, len(words))) if words[place] not in _ARTICLES]
        if own in _UNDOING and after:
            found.add(next((place for place in after if stems[place] in known), after[0]))
        elif (own in _TAKING and after and stems[after[0]] in known) or (
            own == _STOP and after and after[0] == at + 1 and words[after[0]].endswith("ing")
        ):
            found.add(after[0])
    return found


def _axes_in(words: Sequence[str], stems: Sequence[str]) -> list[tuple[tuple[tuple[str, int], ...], str]]:
    """Return the axes of each word, and its particle: those of both, if it follows soon, else those of the word."""
    axes = _axes()
    found: list[tuple[tuple[tuple[str, int], ...], str]] = []
    for at, own in enumerate(stems):
        beside = words[at + 1 : at + 1 + _BESIDE]
        particle = next((other for other in beside if f"{own}-{other}" in axes), "")
        found.append((axes[f"{own}-{particle}"] if particle else axes.get(own, ()), particle))
    return found


def _base(word: str) -> str:
    """Return the stem of what a negating prefix stands before; empty without one."""
    if stem(word) in _NOT_PREFIXED:
        return ""
    found = next((prefix for prefix in _PREFIXES if word.startswith(prefix)), "")
    return stem(word[len(found) :]) if found and len(word) - len(found) >= _LEAST_BASE else ""
