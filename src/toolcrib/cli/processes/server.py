"""The process of `toolcrib serve` and `toolcrib demo`: open everything, serve, and print where."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import anyio
from msgspec.structs import replace

from ...claude_code.approve_tool import WithApprove
from ...config import Settings
from ...console import is_installed
from ...core.extras import install_extra
from ...core.json import dumps
from ...crib import Toolcrib
from ...errors import ConfigError
from ...mcp.server.service import Service
from ...registration import Registrations
from ...registration.rest import RestApi
from ...results.redaction.redactor import Redactor
from ...server.backend import CribBackend, limits_of
from ...server.http import HttpOptions, MakeRoute, serve_http
from ...server.logs import log_to
from ...server.problem_log import log_new_problems
from ...server.request_checks import RequestLimits
from ...server.rest import GuestResources
from ...server.stdio import serve_stdio
from ...system.memory import collect_seldom, keep_freed_memory
from ...system.stop_signals import stop_signals
from ...telemetry.tokens import definition_text
from ..open_crib import report
from ..output import counted, note, print_raw, table
from .token_count import count

_logger = logging.getLogger(__name__)


def over_http(settings: Settings, log_level: str) -> None:
    """Serve until SIGTERM or an interrupt. Raises `UsageError` when the address cannot be had."""
    log_to(sys.stderr, log_level, Redactor(settings.secrets).text)
    anyio.run(_over_http, settings, backend_options={"use_uvloop": sys.platform != "win32"})


def over_stdio(settings: Settings, log_level: str, source: int, sink: int, *, desk: bool) -> None:
    """Serve the one client at the other end of two descriptors, until it leaves or SIGTERM.

    `desk` shows it the tool by which Claude Code asks.
    """
    log_to(sys.stderr, log_level, Redactor(settings.secrets).text)
    anyio.run(_over_stdio, settings, source, sink, desk, backend_options={"use_uvloop": sys.platform != "win32"})


async def _over_http(settings: Settings) -> None:
    settings, metrics = _with_metrics(settings)
    async with Toolcrib(settings.at_once()) as crib, anyio.create_task_group() as tasks:
        await crib.start_background_work()
        collect_seldom()
        keep_freed_memory()

        console = list(_console(crib))

        def started(url: str) -> None:
            _logger.info("toolcrib serves MCP at %s", url)
            if warning := unguarded(settings):
                _logger.warning("%s", warning)
            if console and _has_administrator(settings):
                _logger.info("the console is at %s/console, for tokens of admin scope", url.removesuffix("/mcp"))
            tasks.start_soon(_introduce, crib, url, settings.sources.ready_timeout)

        routes = [partial(GuestResources, crib), partial(RestApi, crib.slice(Registrations)), *metrics, *console]
        await serve_http(CribBackend(crib), http_options(settings), started=started, routes=routes)
        _log_end(crib)
        tasks.cancel_scope.cancel()


def _with_metrics(settings: Settings) -> tuple[Settings, Sequence[MakeRoute]]:
    """Return settings whose metrics a route serves, and the route, if they ask for one. Raises `ConfigError`."""
    if not settings.telemetry.prometheus:
        return settings, ()
    try:
        from ...server.metrics import MetricsRoute, PrometheusMetrics  # needs the extra `otel`
    except ImportError as error:
        message = f"an exporter is missing; {install_extra('otel')}"
        raise ConfigError(message, key="telemetry.prometheus") from error
    metrics = PrometheusMetrics()

    def route(edge: RequestLimits, _: float) -> MetricsRoute:
        return MetricsRoute(metrics, edge)

    read = settings.telemetry.model_copy(update={"readers": (metrics.reader,)})
    return settings.with_values(telemetry=read), [route]


def _console(crib: Toolcrib) -> Iterator[MakeRoute]:
    """Yield the route of the console where its extra is installed."""
    if is_installed():
        from ...console.app import Console  # needs the extra `console`

        yield partial(Console, crib)


def unguarded(settings: Settings) -> str:
    """Return the warning for the operator of an HTTP server with the guard off; empty with the guard on."""
    if settings.policy.guard:
        return ""
    who = "everyone with a token" if settings.http.token or settings.http.tokens else "every program on this machine"
    rest = "by REST too, where no client asks its user"
    return f"guard is off: {who} runs calls unasked here, {rest} (`toolcrib guard on` ends that at once)"


def _has_administrator(settings: Settings) -> bool:
    return bool(settings.http.admin_token) or any(token.scope == "admin" for token in settings.http.tokens)


async def _introduce(crib: Toolcrib, url: str, patience: float) -> None:
    """Display how clients are pointed here and, once the servers are known, what is served; clients wait for none."""
    if sys.stderr.isatty():
        is_guarded = bool(crib.settings.http.token or crib.settings.http.tokens)
        print_raw(f"{snippet(url, is_guarded=is_guarded)}\n", is_error=True)  # lines to copy: `note` folds them
        await crib.tools.wait_ready(patience)
        await tell_what_is_served(crib, note)
        log_new_problems(crib, known=crib.tools.failures)
    else:  # a program reads a JSON object a line
        await crib.tools.wait_ready(patience)
        for state in crib.tools.sources:
            detail = f" ({state.detail})" if state.detail else ""
            tools = counted(state.tools, "tool")
            _logger.info("%s is %s%s, with %s", state.source, state.state, detail, tools)
        log_new_problems(crib)


async def _over_stdio(settings: Settings, source: int, sink: int, desk: bool) -> None:
    async with (
        Toolcrib(settings.at_once()) as crib,
        Service(
            WithApprove(crib) if desk else CribBackend(crib),
            profile=settings.disclosure.profile,
            mode=settings.policy.mode,
            limits=limits_of(settings),
        ) as service,
        anyio.create_task_group() as tasks,
    ):
        await crib.start_background_work()
        log_new_problems(crib)
        collect_seldom()
        keep_freed_memory()
        tasks.start_soon(_stop_on_signal, crib, service)
        await serve_stdio(service, source, sink)
        tasks.cancel_scope.cancel()


async def _stop_on_signal(crib: Toolcrib, service: Service) -> None:
    with stop_signals() as signals:
        async for _ in signals:
            service.stop()
            _log_end(crib)


def _log_end(crib: Toolcrib) -> None:
    servers = ", ".join(state.source for state in crib.tools.sources if state.kind == "mcp")
    _logger.info("toolcrib ends, and with it its servers: %s", servers or "none")


def http_options(settings: Settings) -> HttpOptions:
    """Return the HTTP options of `settings`."""
    return HttpOptions(
        host=settings.http.host,
        port=settings.http.port,
        hosts=settings.http.hosts,
        origins=settings.http.origins,
        profile=settings.disclosure.profile,
        mode=settings.policy.mode,
        token=settings.http.token,
        admin_token=settings.http.admin_token,
        tokens=settings.http.tokens,
        limits=replace(limits_of(settings), drain=settings.http.drain),
        identities={name: (one.profile, one.mode) for name, one in settings.policy.identities.items()},
    )


async def tell_what_is_served(
    crib: Toolcrib, say: Callable[[str], None], sources: Collection[str] | None = None
) -> None:
    """Print, on standard error, the state of every source, its tools and the tokens of their definitions.

    With `sources`, of those alone.
    """
    session = crib.session(grows=False, for_client=True)
    states = [state for state in crib.tools.sources if sources is None or state.source in sources]
    named = {state.source for state in states}
    tools = tuple(tool for tool in crib.catalog.tools.values() if tool.source in named)
    shown = [*map(definition_text, session.tools), session.instructions]
    counts = await count([*map(definition_text, tools), *shown])
    cost = dict(zip((tool.name for tool in tools), counts.tokens, strict=False))
    rows: list[tuple[str, ...]] = []
    for state in states:
        own = [cost[tool.name] for tool in tools if tool.source == state.source]
        status = f"{state.state}: {state.detail}" if state.detail else state.state
        rows.append((state.source, str(len(own)), counts.shown(sum(own)), status))
    total = counts.shown(sum(cost.values()))
    rows.append(("total", str(len(tools)), total, f"tokens: {counts.tokenizer}"))
    with contextlib.suppress(OSError), contextlib.redirect_stdout(sys.stderr):  # see `note`
        table((("SERVER", "<"), ("TOOLS", ">"), ("TOKENS", ">"), ("STATE", "<")), rows)
    report(crib, has_wait=False)
    seen = sum(counts.tokens[len(tools) :])
    without = ", without tools that read results and resources" if seen > sum(cost.values()) else ""
    profile = crib.settings.disclosure.profile
    say(f"the profile {profile} shows a client {counts.shown(seen)} tokens; the full list has {total}{without}")


def snippet(url: str, *, is_guarded: bool = False) -> str:
    """Return the configuration of a client for `url`: an entry for `mcp.json`, and the command for Claude Code.

    An address that stands for all of this machine is not an address to connect to: a client here uses loopback.
    """
    url = url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    headers = {"headers": {"Authorization": "Bearer <token>"}} if is_guarded else {}
    entry = dumps({"mcpServers": {"toolcrib": {"type": "http", "url": url, **headers}}}).decode()
    option = ' --header "Authorization: Bearer <token>"' if is_guarded else ""
    return f"mcp.json:     {entry}\nClaude Code:  claude mcp add --transport http toolcrib {url}{option}"
