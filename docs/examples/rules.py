from toolcrib import Toolcrib, run, tool


@tool(category="shell", kind="destructive")
async def run_command(command: str) -> str:
    """Run a command in a shell."""
    return f"ran {command}"


async def main() -> None:
    async with Toolcrib() as crib:
        crib.add(run_command)
        session = crib.session(rules={"allow": ["Bash(make *)"], "ask": ["Bash(git push:*)"], "deny": ["Bash(rm:*)"]})
        for command in ("make test", "ls | head", "make test && sudo rm x", "$X test", "git -C a push"):
            decision = crib.policy.decide(crib.catalog["run_command"], {"command": command}, session.state)
            print(f"{decision.effect:5} {command}: {decision.rule}")
        result = await session.call("run_command", {"command": "bash -c 'r\\m x'"})
        print(result.text)


run(main())
