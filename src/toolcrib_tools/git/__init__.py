"""Git tools for the workspace: status, commits, branches, merges, and remotes with configured credentials."""

from .commits import git_branch, git_commit, git_merge, git_stage, git_stash
from .remotes import git_create_pr, git_pull, git_push
from .status import git_changed_files, git_diff, git_log, git_status

__all__ = [
    "git_branch",
    "git_changed_files",
    "git_commit",
    "git_create_pr",
    "git_diff",
    "git_log",
    "git_merge",
    "git_pull",
    "git_push",
    "git_stage",
    "git_stash",
    "git_status",
]
