import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from toolcrib import Toolcrib, run

FILES = {
    "price.sh": "gross() { echo $(( $1 * 11 )); }\ntotal() { echo 0; }\ncurrency() { echo; }\nlabel() { echo; }\n",
    "test.sh": """. ./price.sh
case "$1" in
gross) test "$(gross 100)" = 119 ;;
total) test "$(total 100 200)" = 357 ;;
currency) test -n "$(currency)" ;;
label) test "$(label 100)" = "119 $(currency)" ;;
*) for one in gross total currency label; do sh test.sh "$one" || exit; done ;;
esac
""",
}
SCRIPT = """import json, re, sys
from pathlib import Path
prompt, text, shop = sys.argv[-1], "Done.", Path("price.sh")
title = prompt.partition("\\n")[0].removeprefix("# ")
lines = {
    "Mend gross": "gross() { echo $(( $1 * 119 / 100 )); }",
    "Mend total": 'total() { gross "$(( $1 + $2 ))"; }',
    "Mend label": 'label() { echo "$(gross "$1") $(currency)"; }' if "The last attempt failed" in prompt else "",
}
answer = re.search("Which currency\\\\?: (\\\\w+)", prompt)
if title == "Name the currency" and not answer:
    text = "QUESTION: Which currency?"
elif title == "Name the currency":
    lines[title] = "currency() { echo " + answer[1] + "; }"
elif title == "Write the manual":
    Path("MANUAL.md").write_text("Run sh test.sh.\\n")
elif title.startswith("Hook: "):
    Path("FAILURES.md").write_text(prompt)
with shop.open("a") as file:
    file.write(lines[title] + "\\n" if lines.get(title) else "")
print(json.dumps({"type": "result", "subtype": "success", "result": text, "usage": {"output_tokens": 5}}))
"""
"""In place of Claude Code: it does what the title says, asks once, and claims once that nothing is something."""


def git(*words: str) -> str:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    return subprocess.run(["git", *who, *words], cwd="shop", check=True, capture_output=True, text=True).stdout


def begin() -> None:
    Path("shop").mkdir()
    for name, text in FILES.items():
        Path("shop", name).write_text(text)
    git("init", "--quiet", "--initial-branch=main")
    git("add", ".")
    git("commit", "--quiet", "-m", "Begin")
    Path("agent.py").write_text(SCRIPT)
    agents = {"claude": {"program": [sys.executable, str(Path("agent.py").resolve())]}}
    builtins = ["project", "agent", "tasks", "queue", "hooks", "files", "git", "shell"]
    config = {"builtins": builtins, "workspace": ".", "tools": {"queue": {"agents": agents}}}
    Path("queue.yaml").write_text(json.dumps(config))


async def main() -> None:
    begin()
    async with Toolcrib("queue.yaml", memory=True) as crib, crib.session(mode="autonomous") as session:

        async def ask(tool: str, /, **arguments: Any) -> Any:
            result = await session.call(tool, arguments)
            assert not result.is_error, result.text
            return result.structured_content

        shop = (await ask("create_project", name="Shop"))["created"]
        await ask("add_workspace", project_id=shop, source="link", path="shop")
        agents = [(await ask("create_agent", name=name, agent_type="claude"))["created"] for name in ("Ann", "Bo")]
        event = {"type": "event", "event_type": "task.failed"}
        tests = [{"type": "shell", "command": "cd shop && sh test.sh", "skip_llm_if_exit_zero": True}]
        prompt = "{{event.title}} failed: {{event.error_message}}"
        await ask(
            "create_hook", project_id=shop, name="Look", trigger=event, context_steps=tests, prompt_template=prompt
        )

        async def task(title: str, test: str, *needs: str, priority: int = 10) -> str:
            shown = [{"type": "command", "command": test}, {"type": "unchanged", "path": "test.sh"}]
            given = {"acceptance": shown, "depends_on": list(needs), "priority": priority}
            made = await ask("create_task", project_id=shop, title=title, **given)
            return str(made["created"])

        gross = await task("Mend gross", "sh test.sh gross")
        total = await task("Mend total", "sh test.sh total", gross)
        currency = await task("Name the currency", "sh test.sh currency", total)
        label = await task("Mend label", "sh test.sh label", currency)
        await task("Write the manual", "sh test.sh && test -e MANUAL.md", label, priority=200)

        for turn in range(20):
            await ask("run_queue")
            done = await ask("work_task", agent_id=agents[turn % 2])
            if "task_id" in done:
                title = (await ask("get_task", task_id=done["task_id"]))["title"]
                print(title, done["status"])
            elif question := (await ask("get_task", task_id=currency))["question"]:
                print(question, "EUR")
                await ask("answer_question", task_id=currency, answer="EUR")
            else:
                break


def finish() -> None:
    git("checkout", "--quiet", "main")
    subprocess.run(["sh", "test.sh"], cwd="shop", check=True)
    names = "%s (%(trailers:key=Agent,valueonly,separator=%x2C))"
    print(git("log", "--no-merges", "--reverse", f"--format={names}"), end="")


run(main())
finish()
