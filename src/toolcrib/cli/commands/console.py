"""`toolcrib console`: the console of this configuration and its store, for the person at this machine."""

from __future__ import annotations

import secrets
import time
from typing import Annotated, Final

import anyio
import typer

from ...config import Settings
from ...config.directories import here
from ...config.loader import load_gateway
from ...console import is_installed
from ...core.entry_points import VIEWS
from ...core.extras import install_extra
from ...core.services.console_view import ConsoleView
from ...core.session import LOCAL
from ...errors import UsageError
from ...plugin import load_entry_points
from ...server.listener import Listener, bind
from ...server.request_checks import Authority, RequestLimits
from ...system.stop_signals import stop_signals
from ..browser import can_open_browser, open_browser
from ..open_crib import opened, report
from ..options import ConfigFiles, Wait, run
from ..output import note

_HOST: Final = "127.0.0.1"
_PATIENCE: Final = 30.0
"""Seconds that a request may take to arrive."""


def console(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the browser.")] = True,
    config: ConfigFiles = None,
    wait: Wait = 2.0,
) -> None:
    """Show servers, approvals, calls, tools and jobs in your browser, until interrupted.

    It reads the store that all processes of this configuration share, and answers their questions. Only this machine
    reaches it, and only who has the address that it prints: that is good for one sign-in.
    """
    if not is_installed():
        raise UsageError(f"the console is not installed; {install_extra('console')}")
    run(lambda: _serve(load_gateway(config or ()), port, wait, browser=browser and can_open_browser(here().environ)))


async def _serve(settings: Settings, port: int, wait: float, *, browser: bool) -> None:
    from ...console.app import PATH, Console  # needs the extra

    edge = RequestLimits(Authority("", host=_HOST, admin_token=secrets.token_urlsafe()), host=_HOST)
    with bind(_HOST, port) as socket, stop_signals() as signals:
        async with (
            opened(settings, wait=wait) as crib,
            opened(_for_views(settings), wait=0.0) as guests,
            anyio.create_task_group() as tasks,
        ):
            app = Console(crib, edge, _PATIENCE, tools_of_views=guests)
            code = app.sign_in.new_code(LOCAL, time.time())
            url = f"http://{_HOST}:{socket.getsockname()[1]}{PATH}/?code={code}"

            async def show() -> None:
                report(crib)
                note(f"the console, for one sign-in within 5 minutes; Ctrl-C ends it:\n\n{url}\n")
                if browser and not await open_browser(url):
                    note("no browser could be opened")

            async def stop() -> None:
                async for _ in signals:
                    listener.stop()

            def begun() -> None:
                tasks.start_soon(show)

            listener = Listener(app, begun=begun, drain=1.0, patience=_PATIENCE)
            tasks.start_soon(stop)
            await listener.serve(sockets=[socket])
            tasks.cancel_scope.cancel()


def _for_views(settings: Settings) -> Settings:
    """Return the settings with the tools that the views of guests need, and nothing else."""
    found, _ = load_entry_points(VIEWS)
    categories = {name for one in found if isinstance(one.thing, ConsoleView) for name in one.thing.categories}
    return settings.with_values(builtins=tuple(sorted(categories)), servers=(), openapi=())
