"""An API in a crib: found by what people say, called through the one door, described by a dry run."""

from pathlib import Path
from typing import Any

import pytest

from peers.api import api, described
from rig import PATIENCE
from toolcrib.catalog.registry import Registry
from toolcrib.config import load
from toolcrib.core.json import dumps
from toolcrib.crib import Toolcrib
from toolcrib.sources.openapi.convert import Picks, convert
from toolcrib.sources.openapi.description import parse
from toolcrib.sources.openapi.parameters import Sent
from toolcrib.sources.openapi.source import OpenApiSource
from toolcrib.sources.openapi.spec import ApiSettings, Bearer

REPO = "/repos/{owner}/{repo}"

OPERATIONS = """
post /issues                                issues/create                   Create an issue
get /issues                                 issues/list-for-repo            List repository issues
patch /issues/{number}                      issues/update                   Update an issue
post /issues/{number}/comments              issues/create-comment           Create an issue comment
put /issues/{number}/lock                   issues/lock                     Lock an issue
post /issues/{number}/labels                issues/add-labels               Add labels to an issue
post /issues/{number}/reactions             reactions/create-for-issue      Create reaction for an issue
post /issue-types                           orgs/create-issue-type          Create issue type for an organization
post /pulls                                 pulls/create                    Create a pull request
get /pulls                                  pulls/list                      List pull requests
put /pulls/{number}/merge                   pulls/merge                     Merge a pull request
get /pulls/{number}/merge                   pulls/check-if-merged           Check if a pull request has been merged
post /pulls/{number}/reviews                pulls/create-review             Create a review for a pull request
put /pulls/{number}/update-branch           pulls/update-branch             Update a pull request branch
post /merges                                repos/merge                     Merge a branch
post /forks                                 repos/create-fork               Create a fork
post /releases                              repos/create-release            Create a release
delete /branches/{branch}/protection        repos/delete-branch-protection  Delete branch protection
put /subscription                           activity/set-repo-subscription  Set a repository subscription
post /dispatches                            actions/create-dispatch         Create a workflow dispatch event
""".strip().splitlines()


def workshop(**more: Any) -> dict[str, Any]:
    """A description as large forges write them."""
    paths: dict[str, Any] = {}
    for line in OPERATIONS:
        method, path, identity, summary = line.split(maxsplit=3)
        operation: dict[str, Any] = {"operationId": identity, "summary": summary, "tags": [identity.partition("/")[0]]}
        if method in ("post", "patch"):
            schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
            operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
        paths.setdefault(REPO + path, {})[method] = operation
    return described(paths, **more)


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("create an issue", "hub__issues_create"),
        ("merge a pull request", "hub__pulls_merge"),
        ("merge a branch", "hub__repos_merge"),
        ("create a pull request", "hub__pulls_create"),
        ("list repository issues", "hub__issues_list-for-repo"),
        ("add labels to an issue", "hub__issues_add-labels"),
        ("comment on an issue", "hub__issues_create-comment"),
        ("has this pull request been merged", "hub__pulls_check-if-merged"),
        ("fork the repository", "hub__repos_create-fork"),
    ],
)
def test_an_operation_is_found_by_what_people_say(query: str, tool: str) -> None:
    api = convert(parse(workshop(), "hub"), Picks(), Sent(), "hub")
    registry = Registry()
    registry.declare("hub")
    registry.put("hub", api.tools)

    assert registry.catalog.search(query, 1)[0].name == tool


async def test_a_call_is_decided_sent_and_answered_like_any_other() -> None:
    async with api() as running, Toolcrib() as crib:
        settings = ApiSettings(base_url=running.origin, allow_private=True, auth=(Bearer(token="secret-token"),))
        source = OpenApiSource("hub", workshop(), settings=settings)
        await crib.tools.mount_source(source)
        await source.ready()
        arguments = {"owner": "o", "repo": "r", "title": "It's broken"}

        async with crib.session(mode="autonomous") as session:
            result = await session.call("hub__issues_create", arguments)
            wrong = await session.call("hub__issues_create", {**arguments, "title": 5, "more": 1})
        async with crib.session(mode="cautious") as session:
            denied = await session.call("hub__issues_create", arguments)

    assert (result.structured_content["path"], result.structured_content["body"]) == (
        "/repos/o/r/issues",
        '{"title":"It\'s broken"}',
    )
    assert [answer.error and answer.error.code for answer in (wrong, denied)] == ["invalid_arguments", "denied"]
    assert [seen["path"] for seen in running.received] == ["/repos/o/r/issues"]


async def test_a_dry_run_tells_the_request_and_sends_nothing() -> None:
    async with api() as running, Toolcrib() as crib:
        settings = ApiSettings(base_url=running.origin, allow_private=True, auth=(Bearer(token="secret-token"),))
        source = OpenApiSource("hub", workshop(), settings=settings)
        await crib.tools.mount_source(source)
        await source.ready()
        async with crib.session(mode="autonomous") as session:
            arguments = {"owner": "o", "repo": "r", "number": "5"}
            result = await session.call("hub__pulls_merge", arguments, dry_run=True)
            refused = await session.call("hub__pulls_merge", {**arguments, "repo": ".."}, dry_run=True)

        assert running.received == []
    assert result.structured_content == {
        "dry_run": True,
        "tool": "hub__pulls_merge",
        "source": "hub",
        "kind": "write",
        "arguments": arguments,
        "decision": "allow",
        "rule": "mode autonomous: a write tool is allowed",
        "request": f"curl -X PUT {running.origin}/repos/o/r/pulls/5/merge -H 'accept: application/json' "
        "-H 'authorization: Bearer ***'",
    }
    assert refused.error is not None
    assert refused.error.code == "invalid_arguments"


async def test_a_configured_api_is_withheld_until_its_definitions_are_reviewed(tmp_path: Path) -> None:
    (tmp_path / "hub.json").write_bytes(dumps(workshop(servers=[{"url": "https://hub.example"}])))
    config = tmp_path / "toolcrib.yaml"
    config.write_text("builtins: false\nsources: {openapi: {hub: {spec: hub.json}}}\n")
    settings = load([config], environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    async with Toolcrib(settings) as crib:
        await crib.tools.wait_ready(PATIENCE)
        withheld = {problem.code for problem in crib.problems}
        before = [tool for tool in crib.catalog.tools if tool.startswith("hub__")]
        accepted = await crib.tools.accept("hub")
        after = [tool for tool in crib.catalog.tools if tool.startswith("hub__")]
    async with Toolcrib(settings) as again:
        await again.tools.wait_ready(PATIENCE)
        known = [tool for tool in again.catalog.tools if tool.startswith("hub__")]

    assert (withheld, before, len(accepted), len(after), known) == ({"quarantined"}, [], 20, 20, after)


async def test_an_api_whose_description_moves_it_is_withheld_with_its_credentials(tmp_path: Path) -> None:
    config, described_in = tmp_path / "toolcrib.yaml", tmp_path / "api.json"
    config.write_text(
        "sources:\n  openapi:\n    hub:\n      spec: api.json\n      allow_private: true\n"
        "      auth: {type: bearer, token: secret-of-ours}\n"
    )
    paths = {"/x": {"get": {"operationId": "op"}}}
    settings = load([config], environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    async with api() as running, api() as other:
        for place, accepts in ((running, True), (other, False)):
            described_in.write_bytes(dumps(described(paths, servers=[{"url": place.origin}])))
            async with Toolcrib(settings) as crib:
                await crib.tools.wait_ready(PATIENCE)
                if accepts:
                    await crib.tools.accept("hub")
                result = await crib.session(mode="autonomous").call("hub__op", {})
        outcome = result.error.code if result.error else "ran"
        assert (outcome, len(running.received), other.received) == ("definition_changed", 1, [])
