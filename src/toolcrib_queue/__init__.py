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

TOOLS_ARE_STATIC = True
TOOL_MODULES = (
    "automation.hooks",
    "automation.playbook_runs",
    "automation.playbooks",
    "automation.vetoes",
    "plans",
    "runs.run",
    "tools.agents",
    "tools.approvals",
    "tools.dependencies",
    "tools.lifecycle",
    "tools.projects",
    "tools.status",
    "tools.task_results",
    "tools.tasks",
    "tools.work",
    "tools.workspaces",
)
