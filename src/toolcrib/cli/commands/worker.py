"""`toolcrib worker`: a process that only carries out background jobs and fires schedules of a store that it shares."""

from __future__ import annotations

import logging
import signal
import sys
from dataclasses import replace
from typing import Annotated, Final

import anyio
import typer

from ...config import Settings
from ...crib import Toolcrib
from ...errors import UsageError
from ...jobs.durable import DurableJobs
from ...results.redaction.redactor import Redactor
from ...server.logs import log_to
from ...system.stop_signals import stop_signals
from ..options import ConfigFiles, settings_of
from .serve import LogLevel

_logger = logging.getLogger(__name__)

_DRAIN_SECONDS: Final = 20.0
"""Less than what Kubernetes (30 s) and systemd (90 s) wait by themselves before they kill."""


def worker(
    config: ConfigFiles = None,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="From which level on to log.")] = "info",
) -> None:
    """Carry out background jobs and fire schedules until SIGTERM or an interrupt: running jobs have 20 s then.

    What has not ended by then is left to the next worker if it may be repeated, else cancelled.

    With a store in PostgreSQL any number of workers, on any number of machines, share one queue. They need the same
    configuration: a job whose tool a worker does not have is left to others.
    """
    settings = settings_of(config)
    settings = replace(settings, jobs=settings.jobs.model_copy(update={"engine": "durable", "work": True}))
    log_to(sys.stderr, log_level, Redactor(settings.secrets).text)
    anyio.run(_work, settings, backend_options={"use_uvloop": sys.platform != "win32"})


async def _work(settings: Settings) -> None:
    with stop_signals() as signals:
        async with Toolcrib(settings.at_once()) as crib:
            jobs = crib.jobs
            if not isinstance(jobs, DurableJobs):
                raise UsageError("a worker needs durable jobs: set a store on disk or in PostgreSQL")
            await crib.start_background_work()
            _logger.info("toolcrib works on the jobs of %s", crib.store.place)
            async for number in signals:
                _logger.info("stopped by %s: jobs that run have %g s", signal.Signals(number).name, _DRAIN_SECONDS)
                break
            await jobs.drain(_DRAIN_SECONDS)
