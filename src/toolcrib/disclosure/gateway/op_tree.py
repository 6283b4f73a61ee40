"""Tree of operations that a session sees: directories by the dots in their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct, field

from ...core.patterns import regex
from ...core.similar import fold, nearest
from ...core.tool import Tool
from ..base import VisibleCatalog
from ..ops import GROUPS, group_of

ROOT: Final = "root"
_NEAREST: Final = 5
_SLASHES: Final = regex(r"\s*[/>:\\]+\s*")
_LONGEST: Final = 200
"""Characters of a path that are looked at."""
_GROUP_WORDS: Final = {
    "calendar": "cal",
    "ontology": "onto",
    "utilities": "util",
    "utility": "util",
}
_ROOT_WORDS: Final = frozenset({"", ROOT, "*", "help", "tool_help"})


class Tree(Struct, frozen=True, kw_only=True):
    """The ops in scope, in order, with their tools."""

    ops: Mapping[str, Tool] = field(default_factory=dict[str, Tool])

    @classmethod
    def of(cls, visible: VisibleCatalog) -> Tree:
        """Return the tree of the session's ops: in scope, in its contexts, enabled."""
        names = visible.aliases.ops
        found = {names.of(tool): tool for tool in visible.mentioned()}
        return cls(ops={op: found[op] for op in sorted(found, key=_in_order)})

    @property
    def groups(self) -> list[str]:
        """The first parts, the seed's groups first."""
        return list(dict.fromkeys(group_of(op) for op in self.ops))

    def below(self, path: str) -> list[str]:
        """Return the ops under a path, in order; all of them under the root."""
        if path == ROOT:
            return list(self.ops)
        if path.endswith("*"):
            return [op for op in self.ops if op.startswith(path[:-1])]
        return [op for op in self.ops if op.startswith(f"{path}.")]

    def elsewhere(self, path: str) -> list[str]:
        """Return the same path in other groups: a kind of entity may have ops in several."""
        group, _, rest = path.partition(".")
        others = [f"{other}.{rest}" for other in self.groups if rest and other != group]
        return [other for other in others if other in self.ops or self.below(other)]

    def find(self, visible: VisibleCatalog, asked: str) -> str:
        """Return the path that `asked` means: root, a directory, an op, or a beginning of ops followed by `*`.

        Empty when it means none.
        """
        path = normalized(asked)
        if path == ROOT or path in self.ops or self.below(path):
            return path
        tool = visible.find(asked.strip()) or visible.find(path)
        name = tool.name if tool is not None else visible.aliases.ops.spelled(path)
        if name is not None:
            op = visible.aliases.ops.of(visible.catalog.tools[name])
            if op in self.ops:
                return op
        # The only directory that is spelled so, whole or from one of its parts on.
        wanted = {fold(path), fold(path).removesuffix("s")}
        found = [known for known in _directories(self.ops) if fold(known) in wanted]
        if not found:
            found = [known for known in _directories(self.ops) if fold(known.partition(".")[2]) in wanted]
        return found[0] if len(found) == 1 else ""


def normalized(path: str) -> str:
    """Return the canonical form of a path: `.onto.task.`, `onto/task` and `"onto.task"` are `onto.task`."""
    text = _SLASHES.sub(".", path[:_LONGEST].strip().strip("\"'`").strip())
    text = text.removeprefix(".").removesuffix(".")
    if text.lower() in _ROOT_WORDS:
        return ROOT
    group, dot, rest = text.partition(".")
    return f"{_GROUP_WORDS.get(group.lower(), group)}{dot}{rest}"


def nearest_paths(visible: VisibleCatalog, asked: str, *, ops_only: bool = False) -> list[str]:
    """Return the paths that `asked` may mean, best first: of another group, by spelling, by the tools' effects."""
    tree = Tree.of(visible)
    path = normalized(asked)
    pool = list(tree.ops) if ops_only else [*_directories(tree.ops), *tree.ops]
    close = [*tree.elsewhere(path), *nearest(path, pool, _NEAREST)]
    words = " ".join(re.split(r"[^A-Za-z0-9]+", path))
    hits = visible.catalog.search(words, _NEAREST, allowed=visible.admitted) if words else []
    meant = (visible.aliases.ops.of(visible.catalog.tools[hit.name]) for hit in hits)
    found = dict.fromkeys([*close, *(op for op in meant if op in tree.ops)])
    return [one for one in found if one in pool][:_NEAREST]


def _directories(ops: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for op in ops:
        parts = op.split(".")
        for length in range(1, len(parts)):
            found[".".join(parts[:length])] = None
    return list(found)


def _in_order(op: str) -> tuple[int, str]:
    group = group_of(op)
    return (GROUPS.index(group) if group in GROUPS else len(GROUPS), op)
