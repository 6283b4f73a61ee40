"""Notes and the profile of a project."""

from __future__ import annotations

from toolcrib.errors import ToolFailure

from .state import WORLD, Record

__all__ = [
    "append_note",
    "compact_memory",
    "compare_specs_notes",
    "delete_note",
    "edit_project_profile",
    "list_notes",
    "memory_reindex",
    "memory_stats",
    "promote_note",
    "read_note",
    "regenerate_profile",
    "search",
    "view_profile",
    "write_note",
]


def _notes(project_id: str) -> dict[str, str]:
    project = WORLD.project(project_id)
    return {title: text for (owner, title), text in WORLD.notes.items() if owner == project}


def _note(project_id: str, title: str) -> str:
    notes = _notes(project_id)
    if title not in notes:
        raise ToolFailure("tool_error", f"There is no note '{title}'; there are: {', '.join(notes) or 'none'}")
    return notes[title]


def search(project_id: str, query: str, top_k: int = 10) -> Record:
    words = set(query.lower().split())
    texts = {**_notes(project_id), "profile": WORLD.about.get(project_id, "")}
    scored = {title: len(words & set(f"{title} {text}".lower().split())) for title, text in texts.items()}
    best = sorted((title for title in scored if scored[title]), key=lambda title: (-scored[title], title))[:top_k]
    return {"query": query, "results": [{"title": title, "content": texts[title]} for title in best]}


def list_notes(project_id: str) -> Record:
    return {"notes": [{"title": title, "size": len(text)} for title, text in _notes(project_id).items()]}


def write_note(project_id: str, title: str, content: str) -> Record:
    project = WORLD.project(project_id)
    status = "updated" if (project, title) in WORLD.notes else "created"
    WORLD.notes[project, title] = content
    return {"title": title, "status": status}


def delete_note(project_id: str, title: str) -> Record:
    _note(project_id, title)
    del WORLD.notes[project_id, title]
    return {"deleted": title}


def read_note(project_id: str, title: str) -> Record:
    return {"title": title, "content": _note(project_id, title)}


def append_note(project_id: str, title: str, content: str) -> Record:
    before = _notes(project_id).get(title, "")
    WORLD.notes[project_id, title] = f"{before}\n{content}" if before else content
    return {"title": title, "size": len(WORLD.notes[project_id, title])}


def promote_note(project_id: str, title: str) -> Record:
    text = _note(project_id, title)
    WORLD.about[project_id] = f"{WORLD.about.get(project_id, '')}\n## {title}\n{text}".strip()
    return {"promoted": title}


def compare_specs_notes(project_id: str, specs_path: str = "specs") -> Record:
    start = f"/workspace/{WORLD.project(project_id)}/{specs_path}/"
    specs = {path.removeprefix(start).removesuffix(".md") for path in WORLD.files if path.startswith(start)}
    notes = set(_notes(project_id))
    return {
        "only_in_specs": sorted(specs - notes),
        "only_in_notes": sorted(notes - specs),
        "both": sorted(specs & notes),
    }


def memory_stats(project_id: str) -> Record:
    notes = _notes(project_id)
    return {"project_id": project_id, "notes": len(notes), "characters": sum(map(len, notes.values()))}


def memory_reindex(project_id: str) -> Record:
    count = len(_notes(project_id))
    WORLD.tell("memory_indexed", project_id=project_id, notes=count)
    return {"indexed": count}


def view_profile(project_id: str) -> Record:
    return {"project_id": WORLD.project(project_id), "profile": WORLD.about.get(project_id, "")}


def regenerate_profile(project_id: str) -> Record:
    notes = _notes(project_id)
    WORLD.about[project_id] = "\n".join(f"- {title}: {text.splitlines()[0]}" for title, text in notes.items() if text)
    return {"project_id": project_id, "profile": WORLD.about[project_id]}


def compact_memory(project_id: str) -> Record:
    kept: set[str] = set()
    twice = [title for title, text in _notes(project_id).items() if text in kept or kept.add(text)]
    for title in twice:
        del WORLD.notes[project_id, title]
    return {"removed": twice}


def edit_project_profile(project_id: str, content: str) -> Record:
    WORLD.about[WORLD.project(project_id)] = content
    return {"updated": project_id}
