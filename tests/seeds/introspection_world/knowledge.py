"""Artifacts and what they are related to, references, prompts."""

from __future__ import annotations

from toolcrib.errors import ToolFailure

from .state import WORLD, Record, found, place

__all__ = [
    "acknowledgeReview",
    "checkRelated",
    "compute_embedding",
    "deletePrompt",
    "flagForReview",
    "listArtifacts",
    "listReferences",
    "notifyChange",
    "removeArtifact",
    "savePrompt",
    "selectReferences",
    "trackArtifact",
    "updateArtifact",
    "validateReference",
]


def trackArtifact(path: str, artifact_type: str, description: str) -> Record:
    artifact: Record = {"path": place(path), "artifact_type": artifact_type, "description": description}
    WORLD.artifacts[place(path)] = {**artifact, "related_to": [], "review": ""}
    return {"tracked": place(path)}


def _artifact(path: str) -> Record:
    return found(WORLD.artifacts, place(path), "artifact")


def updateArtifact(path: str, description: str = "", related_to: list[str] | None = None) -> Record:
    artifact = _artifact(path)
    artifact["description"] = description or artifact["description"]
    artifact["related_to"] = (
        [place(other) for other in related_to] if related_to is not None else artifact["related_to"]
    )
    return dict(artifact)


def listArtifacts(artifact_type: str = "", needs_review: bool = False) -> Record:
    of_type = [one for one in WORLD.artifacts.values() if artifact_type in ("", one["artifact_type"])]
    return {"artifacts": [one["path"] for one in of_type if one["review"] or not needs_review]}


def flagForReview(path: str, reason: str) -> Record:
    _artifact(path)["review"] = reason
    return {"flagged": place(path), "reason": reason}


def acknowledgeReview(path: str) -> Record:
    reason, _artifact(path)["review"] = _artifact(path)["review"], ""
    return {"acknowledged": place(path), "reason": reason}


def checkRelated(path: str) -> Record:
    return {"related": [one["path"] for one in WORLD.artifacts.values() if place(path) in one["related_to"]]}


def removeArtifact(path: str) -> Record:
    _artifact(path)
    del WORLD.artifacts[place(path)]
    return {"removed": place(path)}


def notifyChange(path: str, reason: str) -> Record:
    return {"flagged": [flagForReview(other, reason)["flagged"] for other in checkRelated(path)["related"]]}


def selectReferences(ids: list[str]) -> Record:
    for reference in ids:
        found(WORLD.references, reference, "reference")["selected"] = True
    return {"selected": [name for name, one in WORLD.references.items() if one["selected"]]}


def listReferences() -> Record:
    return {"references": [{"id": name, **one} for name, one in WORLD.references.items()]}


def validateReference(id: str) -> Record:
    path = found(WORLD.references, id, "reference")["path"]
    return {"id": id, "valid": place(path) in WORLD.files}


def compute_embedding(text: str) -> Record:
    return {"embedding": [text.lower().count(letter) / max(1, len(text)) for letter in "etaoinsh"]}


def savePrompt(name: str, content: str) -> Record:
    status = "updated" if name in WORLD.prompts else "created"
    WORLD.prompts[name] = content
    return {"name": name, "status": status}


def deletePrompt(name: str) -> Record:
    if name not in WORLD.prompts:
        raise ToolFailure("tool_error", f"There is no prompt '{name}'")
    del WORLD.prompts[name]
    return {"deleted": name}
