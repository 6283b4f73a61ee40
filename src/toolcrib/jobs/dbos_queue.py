"""Job queue on DBOS: one generic workflow, embedded on SQLite beside the store or in the store's PostgreSQL.

DBOS assigns each job to one of the processes that share the database, in turn between principals and with a limit for
each. The store's row is the authority on a job; the queue only carries its id. A workflow held by a dead process is
returned by `tidy`; its claim on the row is then void or still free.

A process holds one DBOS at a time. Loading it takes a second: the module is imported with the first job.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import json
import logging
import os
import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from anyio import to_thread
from dbos import DBOS, DBOSConfig, Serializer
from sqlalchemy import event

from ..errors import UsageError
from .queue import Carry, Gone, QueuedJob

__all__ = ["DbosQueue"]

_NAME: Final = "toolcrib_jobs"
"""Of the application, and of its schema in PostgreSQL."""
_VERSION: Final = "1"
"""Version of the workflow, independent of Toolcrib's: an upgrade continues existing jobs."""
_POLL_SECONDS: Final = 0.05
_SLOTS: Final = 64
"""Jobs that one process carries at a time: each holds a thread of DBOS, which waits."""
_BATCH: Final = 500
_LEAVE_SECONDS: Final = 0.2
"""Interval at which a DBOS thread checks for shutdown: closing waits for it."""

_log: Final = logging.getLogger(__name__)


class _Json(Serializer):
    """Serializer of an id and a number, all that DBOS stores for us; nothing is ever unpickled."""

    def serialize(self, data: Any) -> str:
        return json.dumps(data)

    def deserialize(self, serialized_data: str) -> Any:
        return json.loads(serialized_data)

    def name(self) -> str:
        return "toolcrib_json"


_owner: DbosQueue | None = None
_owning = threading.Lock()


@DBOS.workflow(name="toolcrib.carry")
def _carry_job(id: str, claim: int) -> None:
    """Run in a thread of DBOS; returns when the job was carried."""
    if _owner is not None:
        _owner.carry_from_thread(id, claim)


class DbosQueue:
    """The queue of one store. Open from `open` to `close`, on one event loop."""

    def __init__(self, place: Path | str, name: str, working: int) -> None:
        """`place` is a file of its own or a PostgreSQL URL; `working` is the limit of running jobs of one principal.

        `name` distinguishes the queue from those of other stores in the same database.
        """
        self._place = place
        self._name = f"jobs_{name}"
        self._working = working
        self._carry: Carry | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker = ""
        self._engine: sa.Engine | None = None
        self._is_launched = False

    async def open(self, carry: Carry, worker: str) -> None:
        """Launch DBOS. Raises `UsageError` where another one lives in this process, or its database cannot be used."""
        global _owner
        with _owning:
            if _owner is not None:
                raise UsageError("another Toolcrib of this process has its queue on DBOS, of which there can be one")
            _owner = self
        self._carry, self._worker, self._loop = carry, worker, asyncio.get_running_loop()
        try:
            await to_thread.run_sync(self._launch)
        except Exception as error:
            _log.debug("DBOS did not start", exc_info=True)
            await self.close()
            raise UsageError(f"DBOS cannot start: {type(error).__name__}: {str(error)[:300]}") from error

    async def offer(self, offers: Sequence[QueuedJob]) -> None:
        """Enqueue a workflow for each; one of the same job and claim is there once."""
        await to_thread.run_sync(self._enqueue, tuple(offers))

    async def tidy(self, gone: Gone) -> None:
        """Return the workflows of dead processes to the queue, and delete those that have ended."""
        holders = await to_thread.run_sync(self._held_by_others)
        dead = await gone(holders.keys()) if holders else ()
        stranded = [id for holder in dead for id in holders[holder]]
        await to_thread.run_sync(self._sweep, stranded)

    async def close(self) -> None:
        """Shut DBOS down. Its jobs have returned before, or their results are dropped."""
        global _owner
        self._carry = None
        try:
            await to_thread.run_sync(self._shut_down)
        finally:
            with _owning:
                _owner = None

    def carry_from_thread(self, id: str, claim: int) -> None:
        """Carry a job on the loop of this queue, and wait for it. Called in a thread of DBOS."""
        carry, loop = self._carry, self._loop
        if carry is None or loop is None:
            return
        carrying = asyncio.run_coroutine_threadsafe(_carried(carry, id, claim), loop)
        try:
            carrying.result()
        except concurrent.futures.CancelledError:
            _log.debug("the event loop ended before job %s was carried", id)

    def _launch(self) -> None:
        if getattr(import_module("dbos._dbos"), "_dbos_global_instance", None) is not None:
            raise UsageError("this program has a DBOS of its own, and there can be one")
        logging.getLogger("dbos").setLevel(logging.WARNING)
        config: DBOSConfig = {
            "name": _NAME,
            "application_version": _VERSION,
            "executor_id": self._worker,
            "log_level": "WARNING",
            "serializer": _Json(),
            "use_listen_notify": False,
            "max_executor_threads": _SLOTS + 8,
            "notification_listener_polling_interval_sec": _LEAVE_SECONDS,
            "scheduler_polling_interval_sec": 3600.0,
            **self._database(),
        }
        self._is_launched = True
        DBOS(config=config)
        DBOS.listen_queues([self._name])
        DBOS.launch()
        DBOS.register_queue(
            self._name,
            worker_concurrency=_SLOTS,
            partition_concurrency=self._working,
            polling_interval_sec=_POLL_SECONDS,
            on_conflict="always_update",
        )

    def _database(self) -> DBOSConfig:
        if isinstance(self._place, str):
            url = sa.make_url(self._place).set(drivername="postgresql+psycopg")
            return {
                "system_database_url": url.render_as_string(hide_password=False),
                "dbos_system_schema": _NAME,
                "sys_db_pool_size": 5,
            }
        self._place.parent.mkdir(parents=True, mode=0o700, exist_ok=True)
        os.close(os.open(self._place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._engine = _sqlite_engine(self._place)
        return {"system_database_url": f"sqlite:///{self._place}", "system_database_engine": self._engine}

    def _enqueue(self, offers: Sequence[QueuedJob]) -> None:
        for offer in offers:
            DBOS.enqueue_workflow_with_options(
                {
                    "workflow_name": "toolcrib.carry",
                    "queue_name": self._name,
                    "workflow_id": f"{offer.id}.{offer.claim}",
                    "queue_partition_key": hashlib.sha256(offer.principal.encode()).hexdigest()[:16],
                    "app_version": _VERSION,
                },
                offer.id,
                offer.claim,
            )

    def _held_by_others(self) -> dict[str, list[str]]:
        held: dict[str, list[str]] = {}
        for status in DBOS.list_workflows(
            status="PENDING", queue_name=self._name, limit=_BATCH, load_input=False, load_output=False
        ):
            if status.executor_id and status.executor_id != self._worker:
                held.setdefault(status.executor_id, []).append(status.workflow_id)
        return held

    def _sweep(self, stranded: list[str]) -> None:
        if stranded:
            DBOS.resume_workflows(stranded, queue_name=self._name)
        ended = DBOS.list_workflows(
            status=["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"],
            queue_name=self._name,
            limit=_BATCH,
            load_input=False,
            load_output=False,
        )
        if ended:
            DBOS.delete_workflows([status.workflow_id for status in ended])

    def _shut_down(self) -> None:
        if self._is_launched:
            DBOS.destroy()
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None


async def _carried(carry: Carry, id: str, claim: int) -> None:
    try:
        await carry(id, claim)
    except Exception:  # noqa: BLE001 - DBOS must not run it again: the row decides what follows
        _log.exception("job %s could not be carried", id)


def _sqlite_engine(file: Path) -> sa.Engine:
    """Return an engine in WAL mode, which makes DBOS five times as fast.

    `synchronous=NORMAL`: a crash of the machine may lose the last moments. The store's own row is on disk before
    any caller gets the id of a job, and every start enqueues the waiting rows anew.
    """
    engine = sa.create_engine(f"sqlite:///{file}")

    def configure(connection: Any, record: object) -> None:
        connection.isolation_level = "IMMEDIATE"
        for pragma in ("busy_timeout=30000", "foreign_keys=ON", "journal_mode=WAL", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {pragma}")

    event.listen(engine, "connect", configure)
    return engine
