"""REST resource `/v1/projects`: the operations on projects, tasks and documents that other programs need."""

from __future__ import annotations

from typing import Final

from toolcrib.plugin import RestResource, RestRoute

PROJECTS: Final = RestResource(
    routes=(
        RestRoute(method="GET", path="", tool="onto.project.list"),
        RestRoute(method="POST", path="", tool="onto.project.create", status=201),
        RestRoute(method="GET", path="/{project_id}", tool="onto.project.get"),
        RestRoute(method="PATCH", path="/{project_id}", tool="onto.project.update"),
        RestRoute(method="GET", path="/{project_id}/graph", tool="onto.project.graph.get"),
        RestRoute(method="GET", path="/{project_id}/tasks", tool="onto.task.list"),
        RestRoute(method="POST", path="/{project_id}/tasks", tool="onto.task.create", status=201),
        RestRoute(method="GET", path="/{project_id}/documents", tool="onto.document.tree.get"),
        RestRoute(method="POST", path="/{project_id}/documents", tool="onto.document.create", status=201),
        RestRoute(method="GET", path="/{project_id}/search", tool="onto.search"),
        RestRoute(method="GET", path="/{project_id}/export", tool="x.graph.export"),
        RestRoute(method="GET", path="/{project_id}/members", tool="x.member.list"),
    )
)
