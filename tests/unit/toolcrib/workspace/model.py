"""What a workspace shall do, on plain dicts: the oracle of the property tests."""

from __future__ import annotations

from dataclasses import dataclass, field


class Refused(Exception):
    """The operation is an error, and changes nothing."""


@dataclass
class Model:
    """Files and folders by path; the root is the empty path."""

    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    folders: set[str] = field(default_factory=set[str])

    def copy(self) -> Model:
        return Model(dict(self.files), set(self.folders))

    def write(self, path: str, content: bytes) -> None:
        self._parents(path)
        if path in self.folders:
            raise Refused
        self.files[path] = content

    def write_all(self, contents: dict[str, bytes | None]) -> None:
        after = self.copy()
        for path, content in contents.items():
            if content is None:
                if path not in after.files:
                    raise Refused
                del after.files[path]
            else:
                after.write(path, content)
        self.files, self.folders = after.files, after.folders

    def remove(self, path: str, recursive: bool) -> None:
        if path in self.files:
            del self.files[path]
            return
        if path not in self.folders or (not recursive and self.children(path)):
            raise Refused
        self.files = {name: content for name, content in self.files.items() if not name.startswith(f"{path}/")}
        self.folders = {name for name in self.folders if name != path and not name.startswith(f"{path}/")}

    def move(self, old: str, new: str) -> None:
        if new == old or new.startswith(f"{old}/") or new in self.files or new in self.folders:
            raise Refused
        if old not in self.files and old not in self.folders:
            raise Refused
        after = self.copy()
        after._parents(new)
        for name in [name for name in after.files if name == old or name.startswith(f"{old}/")]:
            after.files[new + name.removeprefix(old)] = after.files.pop(name)
        for name in [name for name in after.folders if name == old or name.startswith(f"{old}/")]:
            after.folders.remove(name)
            after.folders.add(new + name.removeprefix(old))
        self.files, self.folders = after.files, after.folders

    def make_folder(self, path: str) -> None:
        if path in self.files:
            raise Refused
        self._parents(path)
        self.folders.add(path)

    def children(self, path: str) -> set[str]:
        prefix = f"{path}/" if path else ""
        names = [name.removeprefix(prefix) for name in (*self.files, *self.folders) if name.startswith(prefix)]
        return {name.partition("/")[0] for name in names}

    def _parents(self, path: str) -> None:
        steps = path.split("/")
        parents = ["/".join(steps[:count]) for count in range(1, len(steps))]
        if any(parent in self.files for parent in parents):
            raise Refused
        self.folders.update(parents)
