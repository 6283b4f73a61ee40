"""A queue of tasks for agents: projects with workspaces, agents with profiles, dependencies, hooks, playbooks.

It imports `toolcrib.plugin`, and of the built-in tools those for git and the workspace.

    model        states, transitions, tables          operations   declaration of tools, tables of a call
    state        changes of a task, in transactions   events       log, and due runs of hooks and playbooks
    scheduler    choice of tasks, the tick            claims       lease, renewed while work goes on
    work         tools of a worker                    runs         a program that works: claim → branch → program → end
    hooks, vetoes, steps, triggers                    playbooks, playbook_runs

The queue has no process of its own. A claim makes the tick first, and the scheduler of Toolcrib calls
`run_queue` every 10 s, once a hook or a playbook needs that.
"""

from .automation.hooks import (
    create_hook,
    delete_hook,
    edit_hook,
    fire_hook,
    list_hook_runs,
    list_hooks,
    receive_webhook,
    run_queue,
)
from .automation.playbook_runs import decide_playbook_run, list_playbook_runs, run_playbook, stop_playbook_run
from .automation.playbooks import delete_playbook, get_playbook, list_playbooks, save_playbook
from .automation.vetoes import override_veto
from .plans import process_task_completion
from .runs.run import work_task
from .tools.agents import (
    check_profile,
    create_agent,
    create_profile,
    delete_agent,
    delete_profile,
    edit_agent,
    edit_profile,
    export_profile,
    get_profile,
    import_profile,
    install_profile,
    list_agents,
    list_available_tools,
    list_profiles,
    pause_agent,
    resume_agent,
)
from .tools.approvals import approve_plan, approve_task, delete_plan, reject_plan
from .tools.dependencies import (
    add_dependency,
    get_chain_health,
    get_task_dependencies,
    get_task_tree,
    remove_dependency,
)
from .tools.lifecycle import (
    archive_task,
    archive_tasks,
    delete_task,
    list_active_tasks_all_projects,
    list_archived,
    reopen_with_feedback,
    restart_task,
    restore_task,
    skip_task,
    stop_task,
)
from .tools.projects import (
    create_project,
    delete_project,
    edit_project,
    get_project_channels,
    get_project_for_channel,
    list_projects,
    pause_project,
    receive_message,
    resume_project,
    set_active_project,
    set_default_branch,
)
from .tools.status import orchestrator_control, queue_events, queue_status, queue_usage
from .tools.task_results import get_agent_error, get_task_diff, get_task_result
from .tools.tasks import create_task, edit_task, get_task, list_tasks
from .tools.work import (
    answer_question,
    ask_question,
    claim_task,
    complete_task,
    fail_task,
    heartbeat_task,
    prime,
    verify_task,
)
from .tools.workspaces import (
    add_workspace,
    find_merge_conflict_workspaces,
    list_workspaces,
    release_workspace,
    remove_workspace,
    sync_workspaces,
)

__all__ = [
    "add_dependency",
    "add_workspace",
    "answer_question",
    "approve_plan",
    "approve_task",
    "archive_task",
    "archive_tasks",
    "ask_question",
    "check_profile",
    "claim_task",
    "complete_task",
    "create_agent",
    "create_hook",
    "create_profile",
    "create_project",
    "create_task",
    "decide_playbook_run",
    "delete_agent",
    "delete_hook",
    "delete_plan",
    "delete_playbook",
    "delete_profile",
    "delete_project",
    "delete_task",
    "edit_agent",
    "edit_hook",
    "edit_profile",
    "edit_project",
    "edit_task",
    "export_profile",
    "fail_task",
    "find_merge_conflict_workspaces",
    "fire_hook",
    "get_agent_error",
    "get_chain_health",
    "get_playbook",
    "get_profile",
    "get_project_channels",
    "get_project_for_channel",
    "get_task",
    "get_task_dependencies",
    "get_task_diff",
    "get_task_result",
    "get_task_tree",
    "heartbeat_task",
    "import_profile",
    "install_profile",
    "list_active_tasks_all_projects",
    "list_agents",
    "list_archived",
    "list_available_tools",
    "list_hook_runs",
    "list_hooks",
    "list_playbook_runs",
    "list_playbooks",
    "list_profiles",
    "list_projects",
    "list_tasks",
    "list_workspaces",
    "orchestrator_control",
    "override_veto",
    "pause_agent",
    "pause_project",
    "prime",
    "process_task_completion",
    "queue_events",
    "queue_status",
    "queue_usage",
    "receive_message",
    "receive_webhook",
    "reject_plan",
    "release_workspace",
    "remove_dependency",
    "remove_workspace",
    "reopen_with_feedback",
    "restart_task",
    "restore_task",
    "resume_agent",
    "resume_project",
    "run_playbook",
    "run_queue",
    "save_playbook",
    "set_active_project",
    "set_default_branch",
    "skip_task",
    "stop_playbook_run",
    "stop_task",
    "sync_workspaces",
    "verify_task",
    "work_task",
]

TOOLS_ARE_STATIC = True
