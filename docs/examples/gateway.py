from toolcrib import Toolcrib, run, tool

tasks: list[str] = []


@tool(kind="write", op="onto.task.create")
def create_onto_task(project_id: str, title: str) -> dict[str, int]:
    """Create a task."""
    tasks.append(title)
    return {"number": len(tasks)}


@tool(kind="read")
def list_onto_tasks(limit: int = 20) -> list[str]:
    """List tasks."""
    return tasks[:limit]


async def main() -> None:
    async with Toolcrib() as crib:
        crib.add(create_onto_task, list_onto_tasks)
        session = crib.session(profile="gateway", mode="autonomous", context={"project_id": "p1"})
        print([shown.name for shown in session.tools])
        helped = await session.call("tool_help", {"path": "onto.task"})
        print([item["name"] for item in helped.structured_content["items"]])
        made = await session.call("tool_exec", {"op": "onto.task.create", "args": {"name": "Paint"}})
        print(made.structured_content["result"], made.structured_content["meta"]["warnings"])
        wrong = await session.call("tool_exec", {"op": "onto.task.create", "args": {}})
        print(wrong.structured_content["error"]["code"], wrong.structured_content["error"]["help_path"])
        ops = [{"type": "help", "path": "onto"}, {"type": "exec", "op": "onto.task.list"}]
        both = await session.call("tool_batch", {"ops": ops, "mode": "parallel"})
        print(both.structured_content["summary"], both.structured_content["results"][1]["result"])
        print([function["name"] for function in session.definitions("anthropic")])


run(main())
