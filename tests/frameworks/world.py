"""The world that every integration is tested in: two hundred functions, fifteen conversations, three model APIs.

To add an integration, write `test_<name>.py`:

    @asynccontextmanager
    async def talking(stage: Stage, mock: Mock, api: Api) -> AsyncGenerator[Talk]:
        model = OpenAIChatModel(..., base_url=f"{mock.url}/v1")        # mock.url alone for the Anthropic SDK
        agent = Agent(model, toolsets=[ToolcribToolset(stage.session)])
        history = []

        async def talk(prompt: str) -> str:                            # one prompt of the user, until its answer
            run = await agent.run(prompt, message_history=history)     # the session begins an interaction by itself
            history[:] = run.all_messages()
            return run.output

        yield talk

    @pytest.mark.parametrize("api", ["openai", "openai-responses", "anthropic"])
    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    async def test_it_comes_to_what_a_session_comes_to(case: Case, api: Api, mock: Mock) -> None:
        assert await played(case, mock, api, talking) == await reference(case)

A framework that stops a run to ask the user, and goes on with his answer, is played a second time over the cases in
`ASKING`, with `approver=lambda user: defer_approval` (`toolcrib.crib`). A call that must be asked about then comes back
at once as a failure of which `pending_approval(result)` gives the question (JSON by `to_json`, to be stored in a
paused run). The integration pauses, `talk` asks `stage.user.answer(tool)` and hands the answer to the framework in its
own way, and the integration ends the call with `session.resume(question.approval, Answer(...))`, which is good for a
no, too, and may be repeated: the call is made once. There is no other way: no flag, no second call of the tool.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal

from frameworks.cases import CASES, OTHERS, Case, Counter, Outcome, Stage, filled, opened, reference
from frameworks.mock import Heard, Mock, call_id
from toolcrib.core.permission import Approver
from toolcrib.telemetry.tokens import tokenizer

__all__ = [
    "APIS",
    "ASKING",
    "CASES",
    "OTHERS",
    "Api",
    "Case",
    "Mock",
    "Outcome",
    "Stage",
    "Talk",
    "played",
    "reference",
]

Api = Literal["openai", "openai-responses", "anthropic"]
APIS: tuple[Api, ...] = ("openai", "openai-responses", "anthropic")
ASKING = tuple(case for case in CASES if case.asked)
"""The cases in which the user is asked."""

FIRST_CONTEXT = 900
"""Tokens (o200k) that the tools and instructions of the first request may take: seventy times that is what all take."""

Talk = Callable[[str], Awaitable[str]]
Talking = Callable[[Stage, Mock, Api], AbstractAsyncContextManager[Talk]]


async def played(
    case: Case,
    mock: Mock,
    api: Api,
    talking: Talking,
    *,
    approver: Callable[[Counter], Approver] | None = None,
    appends: bool = True,
) -> Outcome:
    """Play a case through a framework, and return what came of it.

    `appends` expects of each list of tools that it begins as the first one did.
    """
    run = secrets.token_hex(4)
    prompts, answers, results, heard = case.prompts(run), list[str](), list[str](), list[Heard]()
    async with opened(case, approver=approver) as stage, talking(stage, mock, api) as talk:
        for prompt, turns in zip(prompts, (case.turns, case.then), strict=False):
            mock.learn(case, filled(turns, results), prompt)
            stage.session.begin(**case.needs)
            answers.append(await talk(prompt))
            heard += mock.heard(prompt, until="" if prompt == prompts[-1] else prompts[-1])
            results += [text for id, text in heard[-1].results if id.startswith(call_id(prompt, 0, 0)[:-4])]
        assert tokenizer().count(heard[0].definitions) <= FIRST_CONTEXT
        assert not appends or all(later.tools[: len(heard[0].tools)] == heard[0].tools for later in heard)
        return stage.outcome(answers, results, heard[0].tools, heard[-1].tools)
