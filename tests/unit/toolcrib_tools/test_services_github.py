"""A description of real size, GitHub's own: it is learnt, looked through and called as a small one is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rig.github import github_description
from toolcrib.testing import RecordingApprover
from toolcrib_tools import services
from unit.toolcrib_tools.online import Online, online

pytestmark = pytest.mark.process

TOOLS: dict[str, Any] = {"services": {"credentials": {"github": {"secret": "ghp_not-a-real-one", "url": "{origin}"}}}}
ISSUES = "/repos/{owner}/{repo}/issues"


async def told(at: Online, name: str, /, **arguments: Any) -> Any:
    return json.loads(await at.said(name, **arguments))


@pytest.mark.timeout(900)
async def test_a_description_of_a_thousand_endpoints_is_learnt_and_called(tmp_path: Path) -> None:
    (tmp_path / "github.json").write_bytes(github_description().read_bytes())
    async with online(services, tools=TOOLS, workspace=tmp_path, approver=RecordingApprover()) as at:
        real = await told(at, "discover_service", source="github.json", alias="real")
        await told(at, "discover_service", source="github.json", alias="github", base_url=at.server.origin)
        login = {"type": "bearer", "credential": "github"}
        await at.said("configure_service_auth", service="github", auth=login)
        found = await told(
            at, "list_endpoints", service="github", query="create an issue", filter_tag="issues", limit=5
        )
        schema = await told(at, "get_endpoint_schema", service="github", method="POST", path=ISSUES)
        path, body = "/repos/ann/boats/issues", {"title": "A leak", "labels": ["bug"]}
        shown = await at.said("preview_request", service="github", method="POST", path=path, body=body)
        wrong = await at.refused("call_service", service="github", method="POST", path=path, body={"labels": 1})
        await at.said("call_service", service="github", method="POST", path=path, body=body)
        file = {"path": "/repos/ann/boats/contents/src/hull.py", "query": {"ref": "main"}}
        await at.said("call_service", service="github", method="GET", **file)

    issue, contents = at.server.received
    assert (real["base_url"], real["endpoints"] > 1_000) == ("https://api.github.com", True)
    assert [problem for problem in real["problems"] if "uploads.github.com" not in problem] == []
    assert ("POST", ISSUES) in [(one["method"], one["path"]) for one in found["endpoints"]]
    assert (schema["body"]["schema"]["required"], "201" in schema["answers"]) == (["title"], True)
    assert ("ghp_" in shown, "Bearer ***" in shown) == (False, True)
    assert "body.title: is required" in wrong.message
    assert (issue["path"], json.loads(issue["body"])) == (path, body)
    assert issue["headers"]["authorization"] == "Bearer ghp_not-a-real-one"
    assert (contents["path"], contents["query"]) == (file["path"], "ref=main")
