"""REST resource `/v1/queue`: tasks, answers and events for other programs, and the webhooks of hooks."""

from __future__ import annotations

from typing import Final

from toolcrib.plugin import RestResource, RestRoute

from .signatures import signed_call

__all__ = ["QUEUE"]

QUEUE: Final = RestResource(
    routes=(
        RestRoute(method="GET", path="/projects", tool="x.project.list"),
        RestRoute(method="GET", path="/tasks", tool="x.task.list"),
        RestRoute(method="POST", path="/tasks", tool="x.task.create", status=201),
        RestRoute(method="GET", path="/tasks/{task_id}", tool="x.task.get"),
        RestRoute(method="POST", path="/tasks/{task_id}/answer", tool="x.queue.answer"),
        RestRoute(method="GET", path="/events", tool="x.queue.events"),
        RestRoute(method="POST", path="/hooks/{hook_id}/events", tool="x.hook.receive", status=202),
        RestRoute(
            method="POST",
            path="/webhooks/{sender}/{hook_id}",
            tool="x.hook.receive",
            status=202,
            signed=signed_call,
        ),
    )
)
