from toolcrib import Toolcrib, run, tool


@tool(kind="read", core=True)
def list_tasks() -> list[str]:
    """List the open tasks."""
    return ["write the page"]


@tool(kind="read", category="git")
def git_log(count: int = 2) -> list[str]:
    """Show the latest commits."""
    return ["End", "Begin"][:count]


@tool(category="git")
def git_commit(message: str) -> str:
    """Commit everything."""
    return f"committed: {message}"


RULES = dict.fromkeys(("browse_rules", "load_rule", "save_rule", "delete_rule"))  # verbs that are not wanted


async def main() -> None:
    async with Toolcrib() as crib:
        crib.add(list_tasks, git_log, git_commit)
        crib.profiles.add({"extends": "tiered", "name": "mine", "verbs": RULES, "core": ["browse_tools", "load_tools"]})
        session = crib.session(profile="mine")
        print([shown.name for shown in session.tools])
        print((await session.call("browse_tools")).text)
        print((await session.call("load_tools", {"category": "git"})).text)
        print([shown.name for shown in session.tools])
        session.begin()
        print([shown.name for shown in session.tools], (await session.call("git_log")).text)
        session.begin(tools=["git_log"])
        print([shown.name for shown in session.tools], (await session.call("list_tasks")).text)


run(main())
