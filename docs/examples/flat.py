import tempfile

import anyio

from toolcrib import Answer, Context, Question, Toolcrib, run, tool

compiled = anyio.Event()


@tool(kind="write", category="fs", locks=["path"])
async def write_note(path: str, text: str, ctx: Context) -> str:
    """Write a note into the folder of the session."""
    await anyio.Path(ctx.path(path)).write_text(text)
    return f"written: {path}"


@tool(kind="destructive", category="shell")
async def run_command(command: str, ctx: Context) -> str:
    """Run a shell command."""
    done = await anyio.run_process(command, cwd=ctx.cwd)
    await ctx.output(done.stdout.decode())
    return done.stdout.decode()


@tool(kind="write", approval="always")
async def update_setting(key: str, value: str, ctx: Context) -> str:
    """Change a setting of this session."""
    ctx.runtime[key] = value
    return f"{key} = {ctx.runtime[key]}"


@tool(kind="read", background_after=0.2)
async def build(target: str, ctx: Context) -> str:
    """Build the project."""
    await ctx.report(1, 2, "compiling")
    await compiled.wait()
    return f"{target} is built"


async def ask_me(question: Question) -> Answer:
    print("?", question.tool.name, "-", question.decision.rule)
    return Answer(verdict="no" if question.tool.name == "run_command" else "yes")


async def main() -> None:
    folder = tempfile.mkdtemp()
    async with Toolcrib() as crib:
        crib.add(write_note, run_command, update_setting, build)
        async with crib.session(profile="flat", mode="autonomous", approver=ask_me, cwd=folder) as session:
            results = await session.call_many(
                [
                    ("write_note", {"path": "a.txt", "text": "hello"}),
                    ("update_setting", {"key": "model", "value": "small"}),
                    ("run_command", {"command": "rm -rf *"}),
                    ("write_nite", {}),
                    ("build", {"target": "all"}),
                ]
            )
            for result in results[:4]:
                print(result.is_error, result.text.splitlines())
            task = results[4].structured_content["task_id"]
            print((await crib.jobs.get(task, "local")).status)
            compiled.set()
            print((await crib.jobs.result(task, "local")).text)


run(main())
