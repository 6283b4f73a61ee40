"""Branches, commits and merges of a repository for each project."""

from __future__ import annotations

from typing import Any

from toolcrib.errors import ToolFailure

from .state import WORLD, Record, found

__all__ = [
    "checkout_branch",
    "get_git_status",
    "git_changed_files",
    "git_commit",
    "git_create_branch",
    "git_create_pr",
    "git_diff",
    "git_log",
    "git_merge",
    "git_pull",
    "git_push",
]


def _repository(project_id: str, workspace: str) -> tuple[str, Record]:
    if workspace:
        project_id = found(WORLD.workspaces, workspace, "workspace")["project_id"]
    project = WORLD.project(project_id)
    return project, found(WORLD.repositories, project, "repository")


def _tree(commits: list[Record]) -> dict[str, str]:
    return {path: text for commit in commits for path, text in commit["files"].items()}


def _working(project: str) -> dict[str, str]:
    start = f"/workspace/{project}/"
    return {path.removeprefix(start): text for path, text in WORLD.files.items() if path.startswith(start)}


def _branch(repository: Record, name: str) -> list[Record]:
    return repository["branches"][_known(repository, name)]


def _known(repository: Record, name: str) -> str:
    if name not in repository["branches"]:
        raise ToolFailure("tool_error", f"There is no branch '{name}'; there are: {', '.join(repository['branches'])}")
    return name


def _changed(old: dict[str, str], new: dict[str, str]) -> list[str]:
    return sorted(path for path in {*old, *new} if old.get(path) != new.get(path))


def get_git_status(project_id: str = "", workspace: str = "") -> Record:
    project, repository = _repository(project_id, workspace)
    commits = _branch(repository, repository["current"])
    changed = _changed(_tree(commits), _working(project))
    recent = [commit["message"] for commit in reversed(commits[-5:])]
    return {"branch": repository["current"], "is_clean": not changed, "changed": changed, "recent_commits": recent}


def git_commit(message: str, project_id: str = "", workspace: str = "") -> Record:
    project, repository = _repository(project_id, workspace)
    commits = _branch(repository, repository["current"])
    changed = _changed(_tree(commits), _working(project))
    if not changed:
        return {"committed": False, "message": "Nothing to commit"}
    commits.append({"message": message, "files": _working(project)})
    return {"committed": True, "message": message, "files": changed}


def git_pull(branch: str = "", project_id: str = "", workspace: str = "") -> Record:
    _, repository = _repository(project_id, workspace)
    name = _known(repository, branch or repository["current"])
    ahead = repository.setdefault("remote", {}).get(name, [])
    new = [commit for commit in ahead if commit not in _branch(repository, name)]
    _branch(repository, name).extend(new)
    return {"pulled": name, "commits": len(new)}


def git_push(branch: str = "", project_id: str = "", workspace: str = "") -> Record:
    _, repository = _repository(project_id, workspace)
    name = _known(repository, branch or repository["current"])
    repository.setdefault("remote", {})[name] = list(_branch(repository, name))
    return {"pushed": name, "commits": len(_branch(repository, name))}


def git_create_branch(branch_name: str, project_id: str = "", workspace: str = "") -> Record:
    _, repository = _repository(project_id, workspace)
    if branch_name in repository["branches"]:
        raise ToolFailure("tool_error", f"The branch '{branch_name}' exists already")
    repository["branches"][branch_name] = list(_branch(repository, repository["current"]))
    repository["current"] = branch_name
    return {"created": branch_name, "branch": branch_name}


def checkout_branch(branch_name: str, project_id: str = "", workspace: str = "") -> Record:
    _, repository = _repository(project_id, workspace)
    repository["current"] = _known(repository, branch_name)
    return {"branch": branch_name}


def git_merge(branch_name: str, default_branch: str = "", project_id: str = "", workspace: str = "") -> Record:
    project, repository = _repository(project_id, workspace)
    target = default_branch or WORLD.projects[project]["default_branch"]
    theirs, ours = _branch(repository, branch_name), _branch(repository, target)
    shared = [commit for commit in ours if commit in theirs]
    base, mine, new = _tree(shared), _tree(ours), _tree(theirs)
    conflicts = [
        path for path in _changed(base, mine) if path in _changed(base, new) and mine.get(path) != new.get(path)
    ]
    if conflicts:
        return {"merged": False, "aborted": True, "conflicts": conflicts}
    ours.extend(commit for commit in theirs if commit not in ours)
    return {"merged": True, "branch": branch_name, "into": target}


def git_create_pr(title: str, body: str = "", branch: str = "", base: str = "", **where: str) -> Record:
    project, repository = _repository(where.get("project_id", ""), where.get("workspace", ""))
    source = _known(repository, branch or repository["current"])
    target = _known(repository, base or WORLD.projects[project]["default_branch"])
    repository["pulls"].append({"title": title, "body": body, "branch": source, "base": target})
    return {"created": len(repository["pulls"]), "title": title, "branch": source, "base": target}


def git_changed_files(base_branch: str = "", project_id: str = "", workspace: str = "") -> Record:
    project, repository = _repository(project_id, workspace)
    base = base_branch or WORLD.projects[project]["default_branch"]
    return {"base": base, "files": _changed(_tree(_branch(repository, base)), _working(project))}


def git_log(count: int = 10, project_id: str = "", workspace: str = "") -> Record:
    _, repository = _repository(project_id, workspace)
    commits = _branch(repository, repository["current"])
    return {"branch": repository["current"], "commits": [commit["message"] for commit in reversed(commits)][:count]}


def git_diff(base_branch: str = "", project_id: str = "", workspace: str = "") -> Record:
    project, repository = _repository(project_id, workspace)
    old = _tree(_branch(repository, base_branch or repository["current"]))
    new = _working(project)
    diff: list[dict[str, Any]] = [
        {"path": path, "old": old.get(path), "new": new.get(path)} for path in _changed(old, new)
    ]
    return {"base": base_branch or repository["current"], "diff": diff}
