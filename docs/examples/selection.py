from toolcrib import Toolcrib, run, tool


@tool(kind="read", tags=["memory"], core=True)
def memory_recall(query: str) -> str:
    """Recall what is known of the user."""
    return f"likes {query}"


@tool(kind="read", tags=["data_analysis"], priority=80)
def read_table(rows: int) -> str:
    """Read a table, row by row."""
    return "\n".join(f"row {number}: {number * number}" for number in range(rows))


@tool(kind="read", tags=["data_analysis", "visualization"])
def draw_chart(title: str) -> str:
    """Draw a chart."""
    return f"<svg>{title}</svg>"


async def main() -> None:
    async with Toolcrib() as crib:
        crib.add(memory_recall, read_table, draw_chart)
        session = crib.session(profile="selection", intent={"required_capabilities": ["visualization"]})
        print(session.selection.names, "-", session.selection.reason)

        session.begin(plan={"required_skills": ["data_analysis"]})
        print([shown.name for shown in session.tools])
        result = await session.call("read_table", {"rows": 500})
        ref = result.meta["compression"]["ref_id"]
        print(len(result.text), f"[COMPRESSED:{ref}]" in result.text, len(await session.recover(ref)))

        session.begin(intent={"complexity": "medium"})
        refused = await session.call("draw_chart", {"title": "Rain"})
        print(refused.structured_content["error_type"], "-", refused.structured_content["recovery_hint"])


run(main())
