"""Notebooks in sessions: what a cell did, what the next one knows, how it ended, and who has to be asked before."""

from __future__ import annotations

import base64
import json
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import anyio
import pytest

from rig import eventually
from rig.sandbox import needs_sandbox, stands_still
from toolcrib import Toolcrib
from toolcrib.config import bare
from toolcrib.config.settings import WorkspaceSpec
from toolcrib.core.context import Output, Progress
from unit.toolcrib_tools.notebooks import cell, session_of
from unit.toolcrib_tools.telling import error_of, text_of, told

pytestmark = [needs_sandbox, pytest.mark.process]

FOREVER = "import time\nwhile True:\n    time.sleep(0.01)"
ENOUGH = 3
"""Seconds after which a cell that never ends is interrupted."""


def png(width: int, height: int) -> bytes:
    """The bytes of a black image."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\0" * width) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


# Cells


async def test_a_cell_knows_what_the_ones_before_have_made_and_shows_its_last_value(folder: Path) -> None:
    (folder / "prices.csv").write_text("3\n5\n8\n")
    async with session_of(folder) as session:
        first = await cell(session, "prices = [int(line) for line in open('prices.csv')]\nprint('read', len(prices))")
        second = await cell(session, "total = sum(prices)\nopen('total.txt', 'w').write(str(total))\ntotal")
        quiet = await cell(session, "def double(x):\n    return 2 * x")
        third = await cell(session, "double(total)")

    assert (first, second, quiet, third) == ("read 3", "16", "[no output]", "32")
    assert (folder / "total.txt").read_text() == "16"


async def test_what_a_cell_leaves_behind_is_put_aside_while_its_kernel_goes_on(folder: Path) -> None:
    async with session_of(folder) as session:
        first = await cell(session, "x = 1\nwith open('AGENTS.md', 'w') as file:\n    print('obey', file=file)")
        assert (f"{folder}/AGENTS.md.aside" in first, (folder / "AGENTS.md").exists()) == (True, False)
        assert await cell(session, "x") == "1"
    assert sorted(path.name for path in folder.iterdir()) == ["AGENTS.md.aside"]


async def test_what_a_cell_says_is_told_in_order_with_both_streams_and_the_traceback(folder: Path) -> None:
    code = "import sys\nprint('one', flush=True)\nprint('two', file=sys.stderr, flush=True)\nraise ValueError('three')"
    async with session_of(folder) as session:
        said = await cell(session, code)
        after = await cell(session, "1 + 1")

    assert said.startswith("one\n[stderr]\ntwo\n-----")
    assert "----> 4 raise ValueError('three')" in said
    assert said.endswith("\nValueError: three\n[the cell was ended by ValueError]")
    assert "\x1b" not in said
    assert after == "2"


async def test_values_are_shown_in_the_format_that_reads_best_and_images_as_images(folder: Path) -> None:
    image = png(2, 3)
    (folder / "dot.png").write_bytes(image)
    code = (
        "from IPython.display import HTML, JSON, Image, Markdown, display\n"
        "class Both:\n"
        "    def _repr_html_(self): return '<table>'\n"
        "    def __repr__(self): return 'a table'\n"
        "print('shown:')\n"
        "display(Markdown('# Title'), HTML('<b>bold</b>'), JSON({'a': 1}), Both())\n"
        "display(Image('dot.png'))\n"
        "print('done')\n"
        "{'text/plain': 1}"
    )
    async with session_of(folder) as session:
        result = await session.call("notebook_execute", {"code": code})

    assert [dict(block) for block in result.content] == [
        {"type": "text", "text": 'shown:\n# Title\n<b>bold</b>\n{"a": 1}\na table\n[image 1: PNG, 2x3 pixels]'},
        {"type": "image", "data": base64.b64encode(image).decode(), "mimeType": "image/png"},
        {"type": "text", "text": "done\n{'text/plain': 1}"},
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (base64.b64encode(b"not an image").decode(), "it is no image that can be read"),
        (base64.b64encode(png(2, 3)[:45]).decode(), "the image is broken"),
        ("no base64!", "it is not base64"),
    ],
)
async def test_what_calls_itself_an_image_and_is_none_is_left_out(folder: Path, data: str, why: str) -> None:
    code = f"from IPython.display import publish_display_data\npublish_display_data({{'image/png': {data!r}}})"
    async with session_of(folder) as session:
        result = await session.call("notebook_execute", {"code": code})

    assert [block["type"] for block in result.content] == ["text"]
    assert result.text.startswith(f"[an image (image/png) left out: {why}")


async def test_output_is_told_while_the_cell_runs_and_a_long_one_is_readable_in_full(folder: Path) -> None:
    heard: list[str] = []
    waits = folder / "goes-on"

    def hear(update: Progress | Output) -> None:
        if isinstance(update, Output):
            heard.append(update.chunk)
            waits.touch()

    code = (
        "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('goes-on'):\n    time.sleep(0.05)\n"
        "for number in range(50_000):\n    print(number)"
    )
    async with session_of(folder) as session:
        result = await session.call("notebook_execute", {"code": code}, listener=hear)
        whole = await session.recover(str(result.meta["artifact"]))

    assert heard[0] == "first\n"
    assert len(result.text) < 20_000
    assert whole.split("\n") == ["first", *map(str, range(50_000))]


async def test_secrets_of_the_configuration_are_masked_in_what_a_cell_shows(folder: Path) -> None:
    async with session_of(folder, secrets=("correct-horse-battery",)) as session:
        said = await cell(session, "'correct-' + 'horse-battery'")

    assert "horse-battery" not in said


async def test_a_cell_that_asks_for_input_is_told_that_nobody_answers(folder: Path) -> None:
    async with session_of(folder) as session:
        said = await cell(session, "name = input('Your name? ')")

    assert "input()" in said.splitlines()[-2]
    assert said.splitlines()[-1].startswith("[the cell was ended by StdinNot")


async def test_what_threads_say_after_their_cell_is_told_with_the_next(folder: Path) -> None:
    code = (
        "import os, threading, time\n"
        "def late():\n"
        "    while not os.path.exists('go'):\n        time.sleep(0.02)\n"
        "    print('late news', flush=True)\n    open('said', 'w').close()\n"
        "threading.Thread(target=late).start()\n'started'"
    )
    async with session_of(folder) as session:
        first = await cell(session, code)
        (folder / "go").touch()
        await eventually((folder / "said").exists)
        later = ""
        while "late news" not in later:
            later = await cell(session, "'next'")

    assert first == "'started'"
    assert later in ("'next'\n[output since the last cell:\nlate news]", "late news\n'next'")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ({"code": " \n"}, "invalid_arguments", "code: say what is to run"),
        ({"code": "1", "notebook": "mian"}, "not_found", "there is no notebook 'mian'; did you mean 'main'?"),
    ],
)
async def test_a_cell_that_cannot_be_run_is_refused(
    folder: Path, arguments: dict[str, Any], code: str, message: str
) -> None:
    async with session_of(folder) as session:
        assert await error_of(session, "notebook_execute", **arguments) == (code, message)
        assert (await told(session, "notebook_list"))[0]["state"] == "not started"


# What does not end, and what ends too much


async def test_a_cell_that_takes_too_long_is_interrupted_and_the_variables_stay(folder: Path) -> None:
    async with session_of(folder) as session:
        await cell(session, "kept = 'kept'")
        code, message = await error_of(
            session, "notebook_execute", code=f"print('begun', flush=True)\nkept += '!'\n{FOREVER}", timeout=ENOUGH
        )
        after = await cell(session, "kept")

    assert code == "timeout"
    assert "it was interrupted, and the variables are as it left them; the cell's last output:\nbegun\n" in message
    assert after == "'kept!'"


async def test_the_programs_of_a_cell_are_interrupted_with_it(folder: Path) -> None:
    loop = "while :; do date +%s.%N > alive; sleep 0.05; done"
    async with session_of(folder) as session:
        code, _ = await error_of(session, "notebook_execute", code=f"!{loop}", timeout=ENOUGH)

        assert code == "timeout"
        await stands_still(folder / "alive")
        assert await cell(session, "'alive'") == "'alive'"


async def test_a_cell_that_does_not_take_the_interruption_is_ended_with_its_kernel(folder: Path) -> None:
    stubborn = "import time\nwhile True:\n    try:\n        time.sleep(60)\n    except BaseException:\n        pass"
    async with session_of(folder, tools={"background_after": {"notebook_execute": None}}) as session:
        await cell(session, "x = 1")
        code, message = await error_of(session, "notebook_execute", code=stubborn, timeout=ENOUGH)
        after = await cell(session, "'x' in globals()")

    assert (code, "so the kernel was ended: its variables are gone" in message) == ("timeout", True)
    assert after == "False\n[a new kernel, without the variables of before: it was ended]"


async def test_a_call_that_is_not_wanted_any_more_interrupts_its_cell(folder: Path) -> None:
    async with session_of(folder) as session:
        await cell(session, "x = 41")
        async with anyio.create_task_group() as group:
            group.start_soon(session.call, "notebook_execute", {"code": f"open('on', 'w').close()\nx += 1\n{FOREVER}"})
            await eventually((folder / "on").exists)
            group.cancel_scope.cancel()

        assert await cell(session, "x") == "42"


async def test_a_kernel_that_dies_is_told_and_the_next_cell_has_a_new_one(folder: Path) -> None:
    async with session_of(folder) as session:
        await cell(session, "x = 1")
        code, message = await error_of(
            session, "notebook_execute", code="import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"
        )
        after = await cell(session, "'x' in globals()")

    assert (code, "ended by SIGKILL" in message) == ("tool_error", True)
    assert after == "False\n[a new kernel, without the variables of before: ended by SIGKILL]"


async def test_a_flood_of_output_is_cut_and_the_kernel_lives(folder: Path) -> None:
    async with session_of(folder) as session:
        await cell(session, "x = 'here'")
        code, _ = await error_of(session, "notebook_execute", code="while True: print('y' * 5_000)", timeout=ENOUGH)
        after = await cell(session, "x")

    assert (code, after.splitlines()[-1]) == ("timeout", "'here'")


async def test_a_cell_that_forks_leaves_the_notebook_as_it_is(folder: Path) -> None:
    async with session_of(folder) as session:
        await cell(session, "import os\nx = 5\npid = os.fork()\nif pid == 0:\n    os._exit(0)\nos.waitpid(pid, 0)\nx")

        assert (await cell(session, "x")).splitlines()[-1] == "5"


async def test_cells_of_one_notebook_take_turns(folder: Path) -> None:
    async with session_of(folder) as session:
        await cell(session, "seen = []")
        code = "import time\nseen.append({0})\ntime.sleep(0.2)\nseen.append({0})"
        await session.call_many([("notebook_execute", {"code": code.format(number)}) for number in (1, 2, 3)])
        pairs = json.loads(await cell(session, "seen"))

    assert [pairs[place] == pairs[place + 1] for place in (0, 2, 4)] == [True, True, True]
    assert sorted(pairs) == [1, 1, 2, 2, 3, 3]


# Notebooks


async def test_notebooks_have_variables_of_their_own_and_the_one_made_last_is_current(folder: Path) -> None:
    async with session_of(folder) as session:
        await cell(session, "x = 'main'")
        made = await text_of(session, "notebook_create", name="sales")
        await cell(session, "x = 'sales'")
        seen = [await cell(session, "x"), await cell(session, "x", notebook="main"), await cell(session, "x")]
        listed = await told(session, "notebook_list")

    assert made == f"sales is ready and the current notebook: python {sys.version.split()[0]}"
    assert seen == ["'sales'", "'main'", "'sales'"]
    assert [{**row, "seconds": 0} for row in listed] == [
        {"notebook": name, "cells": cells, "current": current, "backend": "python3", "language": "python"}
        | {"gpu": False, "state": "idle", "seconds": 0}
        for name, cells, current in (("main", 2, False), ("sales", 3, True))
    ]


async def test_a_reset_forgets_the_variables_and_ends_what_the_kernel_has_started(folder: Path) -> None:
    loop = "while :; do date +%s.%N > alive; sleep 0.05; done"
    async with session_of(folder) as session:
        await cell(session, f"import subprocess\nx = 1\nsubprocess.Popen(['bash', '-c', '{loop}']);")
        await eventually((folder / "alive").exists)
        said = await text_of(session, "notebook_reset")
        await stands_still(folder / "alive")
        after = await cell(session, "'x' in globals()")

    assert said == "main is empty; cells forgotten: 1"
    assert after == "False"


async def test_variables_are_told_with_type_value_and_size(folder: Path) -> None:
    code = "import json\nname, numbers, table = 'Ann', list(range(9)), {'a': (1, 2.5)}\nbig = 'x' * 1_000\ndef f(): ..."
    async with session_of(folder) as session:
        nothing = await told(session, "notebook_variables")
        await cell(session, code)
        seen = await told(session, "notebook_variables")

    assert nothing == {"notebook": "main", "variables": [], "more": 0}
    assert {row["name"]: (row["type"], row["value"], row.get("size")) for row in seen["variables"]} == {
        "json": ("module", "module 'json'", None),
        "name": ("str", "'Ann'", 3),
        "numbers": ("list", "[0, 1, 2, 3, 4, …]", 9),
        "table": ("dict", "{'a': (1, 2.5)}", 1),
        "big": ("str", f"'{'x' * 118}…", 1_000),
        "f": ("function", "function f", None),
    }


async def test_looking_at_variables_runs_nothing_that_they_bring_along(folder: Path) -> None:
    code = (
        "class Meta(type):\n    __name__ = property(lambda self: open('ran', 'w'))\n"
        "class Trap(metaclass=Meta):\n"
        "    def _run(self, *args): open('ran', 'w').close(); return 'x'\n"
        "    __repr__ = __str__ = __len__ = __class__ = __getattr__ = __iter__ = _run\n"
        "trap, held = Trap(), [Trap()]\n"
        "repr = len = type = exec = sorted = None"
    )
    async with session_of(folder) as session:
        await cell(session, code)
        rows = (await told(session, "notebook_variables"))["variables"]

    assert {row["name"]: row["value"] for row in rows if row["name"] in ("trap", "held")} == {
        "trap": "<Trap>",
        "held": "[<Trap>]",
    }
    assert not (folder / "ran").exists()


async def test_a_notebook_needs_a_name_of_its_own_a_kernel_that_there_is_and_a_place(folder: Path) -> None:
    async with session_of(folder) as session:
        await text_of(session, "notebook_create", name="a")
        taken = await error_of(session, "notebook_create", name="a")
        unknown = await error_of(session, "notebook_create", name="b", backend="cobol")
        odd = await error_of(session, "notebook_create", name="../b")
        for name in ("c", "d", "e"):
            await text_of(session, "notebook_create", name=name)
        full = await error_of(session, "notebook_create", name="f")
        await text_of(session, "notebook_reset", notebook="c")
        await text_of(session, "notebook_create", name="f")

    assert taken == ("conflict", "there is a notebook 'a' already")
    assert unknown == ("unavailable", "the kernel did not start: NoSuchKernel: No such kernel named cobol")
    assert odd[0] == "invalid_arguments"
    assert full == ("overloaded", "this session runs 4 kernels already: a, c, d, e")


async def test_the_kernels_end_with_the_session(folder: Path) -> None:
    loop = "while :; do date +%s.%N > alive; sleep 0.05; done"
    async with session_of(folder) as session:
        await cell(session, f"import subprocess\nsubprocess.Popen(['bash', '-c', '{loop}']);")
        await eventually((folder / "alive").exists)

    await stands_still(folder / "alive")


async def test_another_session_does_not_see_them(folder: Path) -> None:
    settings = bare().with_values(builtins=True, workspace=WorkspaceSpec(roots=(folder,)))
    async with (
        Toolcrib(settings, memory=True) as crib,
        crib.session(profile="flat", mode="autonomous", key="one") as one,
        crib.session(profile="flat", mode="autonomous", key="two") as two,
    ):
        await cell(one, "x = 1")
        assert await cell(two, "'x' in globals()") == "False"
