"""Signals that end a process that serves."""

import os
import signal

import anyio
import pytest

from rig import PATIENCE
from toolcrib.system.stop_signals import stop_signals


@pytest.mark.parametrize(
    ("before", "sent", "heard"),
    [
        (signal.SIG_DFL, [signal.SIGHUP], signal.SIGHUP),
        (signal.SIG_IGN, [signal.SIGHUP, signal.SIGTERM], signal.SIGTERM),
    ],
    ids=["the terminal is gone", "nohup"],
)
async def test_a_hang_up_ends_a_server_where_it_is_not_ignored(
    before: signal.Handlers, sent: list[signal.Signals], heard: signal.Signals
) -> None:
    former = signal.signal(signal.SIGHUP, before)
    try:
        with stop_signals() as signals, anyio.fail_after(PATIENCE):
            for number in sent:
                os.kill(os.getpid(), number)
            found = await anext(aiter(signals))
    finally:
        signal.signal(signal.SIGHUP, former)

    assert found == heard
