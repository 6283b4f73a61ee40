"""The queue as data: states of a task with their transitions, and the tables.

`TRANSITIONS` is the whole state machine: an event that it does not name for a status is refused. The usual way:

    DEFINED ─ dependencies met ─> READY ─> ASSIGNED ─> IN_PROGRESS ─> VERIFYING ─> COMPLETED
                                    ^                   │   │   ^         │
                                    │                   │   question      ├─> AWAITING_APPROVAL
                                    │                   │   └> WAITING_   └─> AWAITING_PLAN_APPROVAL
                                    ├── FAILED <────────┘      INPUT
                                    └── PAUSED <─────────────── no answer

FAILED becomes READY again while retries are left, else BLOCKED, where only a person moves it. Times of all tables are
seconds since 1970; truth values are 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

from toolcrib.plugin import Schema, Table

Status = Literal[
    "DEFINED",
    "READY",
    "ASSIGNED",
    "IN_PROGRESS",
    "WAITING_INPUT",
    "PAUSED",
    "VERIFYING",
    "AWAITING_APPROVAL",
    "AWAITING_PLAN_APPROVAL",
    "BLOCKED",
    "FAILED",
    "COMPLETED",
]
Event = Literal[
    "DEPS_MET",
    "DEPS_UNMET",
    "ASSIGNED",
    "AGENT_STARTED",
    "EXECUTION_ERROR",
    "AGENT_COMPLETED",
    "AGENT_FAILED",
    "AGENT_QUESTION",
    "HUMAN_REPLIED",
    "INPUT_TIMEOUT",
    "TOKENS_EXHAUSTED",
    "RESUME_TIMER",
    "TIMEOUT",
    "RECOVERY",
    "VERIFY_PASSED",
    "VERIFY_FAILED",
    "PR_CREATED",
    "PR_MERGED",
    "PR_CLOSED",
    "PLAN_FOUND",
    "PLAN_APPROVED",
    "PLAN_DELETED",
    "PLAN_REJECTED",
    "RETRY",
    "MAX_RETRIES",
    "ADMIN_STOP",
    "ADMIN_SKIP",
    "ADMIN_RESTART",
]
TaskType = Literal["feature", "bugfix", "refactor", "test", "docs", "chore", "research", "plan"]
Verification = Literal["auto_test", "qa_agent", "human"]
DependencyType = Literal["blocks", "related", "parent", "discovered_from"]

TASK_TYPES: Final = get_args(TaskType)
VERIFICATIONS: Final = get_args(Verification)
DEPENDENCY_TYPES: Final = get_args(DependencyType)
BLOCKING: Final = ("blocks", "parent")
"""Types of dependencies that hold a task back until the other one is COMPLETED."""
AGENT_TYPES: Final = ("claude", "codex", "opencode", "cursor", "aider", "ours")
CLAIMED: Final = ("ASSIGNED", "IN_PROGRESS", "WAITING_INPUT")
"""States in which a task belongs to an agent."""
WAITING: Final = ("WAITING_INPUT", "AWAITING_APPROVAL", "AWAITING_PLAN_APPROVAL")
"""Statuses that wait for a person."""
FINAL: Final = ("COMPLETED", "FAILED", "BLOCKED")
"""States in which a task may be archived. An archived task is not retried."""

_STEPS: Final[Mapping[Status, Mapping[Event, Status]]] = {
    "DEFINED": {"DEPS_MET": "READY"},
    "READY": {"ASSIGNED": "ASSIGNED", "DEPS_UNMET": "DEFINED"},
    "ASSIGNED": {
        "AGENT_STARTED": "IN_PROGRESS",
        "EXECUTION_ERROR": "READY",
        "RECOVERY": "READY",
        "TIMEOUT": "BLOCKED",
    },
    "IN_PROGRESS": {
        "AGENT_COMPLETED": "VERIFYING",
        "AGENT_FAILED": "FAILED",
        "AGENT_QUESTION": "WAITING_INPUT",
        "TOKENS_EXHAUSTED": "PAUSED",
        "RECOVERY": "READY",
        "TIMEOUT": "BLOCKED",
        "ADMIN_STOP": "BLOCKED",
    },
    "WAITING_INPUT": {"HUMAN_REPLIED": "IN_PROGRESS", "INPUT_TIMEOUT": "PAUSED"},
    "PAUSED": {"RESUME_TIMER": "READY"},
    "VERIFYING": {
        "VERIFY_PASSED": "COMPLETED",
        "VERIFY_FAILED": "FAILED",
        "PR_CREATED": "AWAITING_APPROVAL",
        "PLAN_FOUND": "AWAITING_PLAN_APPROVAL",
    },
    "AWAITING_APPROVAL": {"PR_MERGED": "COMPLETED", "PR_CLOSED": "BLOCKED"},
    "AWAITING_PLAN_APPROVAL": {"PLAN_APPROVED": "COMPLETED", "PLAN_DELETED": "COMPLETED", "PLAN_REJECTED": "READY"},
    "BLOCKED": {"ADMIN_SKIP": "COMPLETED"},
    "FAILED": {"RETRY": "READY", "MAX_RETRIES": "BLOCKED", "ADMIN_SKIP": "COMPLETED"},
    "COMPLETED": {},
}

TRANSITIONS: Final[Mapping[Status, Mapping[Event, Status]]] = MappingProxyType(
    {
        status: MappingProxyType(steps if status == "IN_PROGRESS" else {**steps, "ADMIN_RESTART": "READY"})
        for status, steps in _STEPS.items()
    }
)
"""Status → event → next status. A person restarts any task that no agent is at work on."""


TOOLS: Final[Mapping[Event, str]] = MappingProxyType(
    {
        "ASSIGNED": "claim_task",
        "AGENT_COMPLETED": "complete_task",
        "AGENT_FAILED": "fail_task",
        "AGENT_QUESTION": "ask_question",
        "HUMAN_REPLIED": "answer_question",
        "VERIFY_PASSED": "verify_task",
        "VERIFY_FAILED": "verify_task",
        "PR_MERGED": "approve_task",
        "PLAN_APPROVED": "approve_plan",
        "PLAN_DELETED": "delete_plan",
        "PLAN_REJECTED": "reject_plan",
        "ADMIN_STOP": "stop_task",
        "ADMIN_SKIP": "skip_task",
        "ADMIN_RESTART": "restart_task",
    }
)
"""Event → the tool that a caller makes it with; the others come from the queue itself."""


def legal_events(status: Status) -> tuple[Event, ...]:
    """Return the events that a status allows."""
    return tuple(TRANSITIONS[status])


SCHEMA: Final = Schema(
    name="queue",
    tables=(
        Table(
            name="projects",
            noun="project",
            listed_by="list_projects",
            columns={
                "name": "TEXT NOT NULL",
                "status": "TEXT NOT NULL",
                "credit_weight": "REAL NOT NULL",
                "max_concurrent_agents": "INTEGER NOT NULL",
                "total_tokens_used": "INTEGER NOT NULL",
                "budget_limit": "INTEGER",
                "discord_channel_id": "TEXT",
                "repo_url": "TEXT NOT NULL",
                "repo_default_branch": "TEXT NOT NULL",
                "default_profile_id": "TEXT",
            },
        ),
        Table(
            name="workspaces",
            noun="workspace",
            listed_by="list_workspaces",
            columns={
                "workspace_path": "TEXT NOT NULL",
                "source_type": "TEXT NOT NULL",
                "name": "TEXT NOT NULL",
                "locked_by_agent_id": "TEXT",
                "locked_by_task_id": "TEXT",
                "locked_at": "REAL",
            },
            indexes=(("project_id", "locked_by_task_id"),),
            unique=(("project_id", "workspace_path"),),
        ),
        Table(
            name="agents",
            noun="agent",
            listed_by="list_agents",
            columns={
                "name": "TEXT NOT NULL",
                "agent_type": "TEXT NOT NULL",
                "state": "TEXT NOT NULL",
                "is_pausing": "INTEGER NOT NULL",
                "current_task_id": "TEXT",
                "last_heartbeat": "REAL",
                "total_tokens_used": "INTEGER NOT NULL",
            },
            indexes=(("project_id", "state"),),
        ),
        Table(
            name="profiles",
            noun="profile",
            listed_by="list_profiles",
            columns={
                "profile_id": "TEXT NOT NULL",
                "name": "TEXT NOT NULL",
                "description": "TEXT NOT NULL",
                "model": "TEXT NOT NULL",
                "permission_mode": "TEXT NOT NULL",
                "allowed_tools": "JSON NOT NULL",
                "mcp_servers": "JSON NOT NULL",
                "system_prompt_suffix": "TEXT NOT NULL",
            },
            unique=(("project_id", "profile_id"), ("project_id", "name")),
        ),
        Table(
            name="tasks",
            noun="task",
            listed_by="list_tasks",
            columns={
                "title": "TEXT NOT NULL",
                "description": "TEXT NOT NULL",
                "status": "TEXT NOT NULL",
                "priority": "INTEGER NOT NULL",
                "task_type": "TEXT",
                "verification_type": "TEXT",
                "requires_approval": "INTEGER NOT NULL",
                "profile_id": "TEXT",
                "preferred_workspace_id": "TEXT",
                "parent_task_id": "TEXT",
                "attachments": "JSON NOT NULL",
                "acceptance": "JSON NOT NULL",
                "llm_config": "JSON NOT NULL",
                "token_limit": "INTEGER",
                "retry_count": "INTEGER NOT NULL",  # repetitions, without the first attempt
                "max_retries": "INTEGER NOT NULL",
                "resume_after": "REAL",
                "assigned_agent_id": "TEXT",
                "workspace_id": "TEXT",
                "generation": "INTEGER NOT NULL",  # raised by each claim, and by its end
                "lease_until": "REAL",  # of the claim; in WAITING_INPUT the time until which an answer can come
                "claimed_at": "REAL",
                "baseline": "JSON NOT NULL",  # hashes and commits from before the work, see `evidence`
                "question": "TEXT",
                "branch_name": "TEXT",
                "pr_url": "TEXT",
                "plan": "JSON NOT NULL",  # steps that become tasks once they are approved
                "is_plan_subtask": "INTEGER NOT NULL",
                "error_message": "TEXT NOT NULL",
                "archived_at": "REAL",
                "completed_at": "REAL",
                "playbook_id": "TEXT",  # of the playbook that made it: its events start no playbook
                "depth": "INTEGER",
            },
            indexes=(
                ("project_id", "status", "archived_at", "deleted_at", "priority", "id"),  # counts need no row
                ("status", "lease_until"),
                ("parent_task_id",),
                ("assigned_agent_id",),
            ),
            title="title",
            text=("description",),
        ),
        Table(
            name="dependencies",
            noun="dependency",
            columns={"task_id": "TEXT NOT NULL", "depends_on": "TEXT NOT NULL", "type": "TEXT NOT NULL"},
            indexes=(("depends_on", "type"),),
            unique=(("task_id", "depends_on"),),
        ),
        Table(
            name="contexts",
            noun="note",
            columns={
                "task_id": "TEXT NOT NULL",
                "type": "TEXT NOT NULL",
                "label": "TEXT NOT NULL",
                "content": "TEXT NOT NULL",
            },
            indexes=(("task_id", "created_at"),),
        ),
        Table(
            name="results",
            noun="result",
            columns={
                "task_id": "TEXT NOT NULL",
                "agent_id": "TEXT NOT NULL",
                "result": "TEXT NOT NULL",
                "summary": "TEXT NOT NULL",
                "files_changed": "JSON NOT NULL",
                "error_message": "TEXT NOT NULL",
                "tokens_used": "INTEGER NOT NULL",
                "evidence": "JSON NOT NULL",
                "cost_usd": "REAL",
                "seconds": "REAL",
            },
            indexes=(("task_id", "created_at"), ("project_id", "created_at")),
        ),
        Table(
            name="hooks",
            noun="hook",
            listed_by="list_hooks",
            columns={
                "name": "TEXT NOT NULL",
                "enabled": "INTEGER NOT NULL",
                "trigger_config": "JSON NOT NULL",
                "context_steps": "JSON NOT NULL",
                "prompt_template": "TEXT NOT NULL",
                "llm_config": "JSON NOT NULL",
                "cooldown_seconds": "INTEGER NOT NULL",
                "max_tokens_per_run": "INTEGER",
                "schedule_id": "TEXT",
                "last_run": "REAL",
            },
            indexes=(("project_id", "enabled"),),
        ),
        Table(
            name="hook_runs",
            noun="run of a hook",
            listed_by="list_hook_runs",
            columns={
                "hook_id": "TEXT NOT NULL",
                "trigger_reason": "TEXT NOT NULL",
                "event_key": "TEXT NOT NULL",
                "status": "TEXT NOT NULL",
                "event_data": "JSON NOT NULL",
                "context_results": "JSON NOT NULL",
                "prompt_sent": "TEXT NOT NULL",
                "task_id": "TEXT",
                "tokens_used": "INTEGER NOT NULL",
                "skipped_reason": "TEXT",
                "started_at": "REAL",
                "completed_at": "REAL",
                "generation": "INTEGER NOT NULL",  # raised whenever a process begins the run
                "depth": "INTEGER",
            },
            indexes=(("hook_id", "created_at"), ("project_id", "status")),
            unique=(("hook_id", "event_key"),),  # one run for each cause
        ),
        Table(
            name="watches",
            noun="watch",
            columns={"workspace_id": "TEXT NOT NULL", "newest": "REAL NOT NULL"},  # the last change that was published
            unique=(("workspace_id",),),
        ),
        Table(
            name="messages",
            noun="message of a chat",
            columns={"delivery": "TEXT NOT NULL"},
            unique=(("project_id", "delivery"),),  # each is received once
        ),
        Table(
            name="playbooks",
            noun="playbook",
            listed_by="list_playbooks",
            columns={
                "name": "TEXT NOT NULL",
                "version": "INTEGER NOT NULL",
                "source": "TEXT NOT NULL",
                "source_hash": "TEXT NOT NULL",
                "description": "TEXT NOT NULL",
                "enabled": "INTEGER NOT NULL",
                "scope": "TEXT NOT NULL",
                "triggers": "JSON NOT NULL",
                "nodes": "JSON NOT NULL",
                "cooldown_seconds": "INTEGER NOT NULL",
                "max_tokens": "INTEGER",
                "last_run": "REAL",
            },
            indexes=(("scope", "enabled"),),
            unique=(("project_id", "name"),),
        ),
        Table(
            name="playbook_runs",
            noun="run of a playbook",
            listed_by="list_playbook_runs",
            columns={
                "playbook_id": "TEXT NOT NULL",
                "name": "TEXT NOT NULL",
                "version": "INTEGER NOT NULL",
                "nodes": "JSON NOT NULL",
                "max_tokens": "INTEGER",
                "cooldown_seconds": "INTEGER NOT NULL",
                "trigger_reason": "TEXT NOT NULL",
                "event_key": "TEXT NOT NULL",
                "event_data": "JSON NOT NULL",
                "status": "TEXT NOT NULL",
                "node": "TEXT NOT NULL",
                "task_id": "TEXT",
                "path": "JSON NOT NULL",
                "reason": "TEXT NOT NULL",
                "started_at": "REAL",
                "completed_at": "REAL",
                "depth": "INTEGER",
            },
            indexes=(("playbook_id", "created_at"), ("status", "created_at")),
            unique=(("playbook_id", "event_key"),),
        ),
    ),
    migrations={
        2: (
            "ALTER TABLE {tasks} ADD COLUMN playbook_id TEXT",
            "DROP INDEX IF EXISTS {tasks}_by_2",  # indexes are named by their place: this one has other columns now
            "ALTER TABLE {results} ADD COLUMN cost_usd REAL",
            "ALTER TABLE {results} ADD COLUMN seconds REAL",
        ),
        3: tuple(
            f"ALTER TABLE {{{table}}} ADD COLUMN depth INTEGER" for table in ("tasks", "hook_runs", "playbook_runs")
        ),
        4: (),  # the table of watches is new
        5: (),  # that of messages
    },
)
