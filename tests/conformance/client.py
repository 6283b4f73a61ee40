"""Our MCP source as the client that the official suite tests: `python client.py URL`, started by the suite.

It lists the server's tools and calls each, as a gateway would, with a person who says yes to every login: a browser
without a screen. What a scenario hands over (credentials, a key) stands in the environment.
"""

import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path

import anyio
import httpx2

from toolcrib.core.context import Context
from toolcrib.core.schema.values import example
from toolcrib.errors import ToolFailure
from toolcrib.mcp.auth.access import Access
from toolcrib.mcp.auth.login_store import FileLogins
from toolcrib.mcp.client.spec import McpLimits, ServerSpec
from toolcrib.net.oauth.flow import Person
from toolcrib.net.oauth.spec import OAuthSpec
from toolcrib.sources.mcp.source import McpSource
from toolcrib.sources.source import Listing

METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""The URL that the suite takes for a client id; it fetches nothing from there."""
LOG = logging.getLogger("client")
LIMIT = 240.0
"""Seconds: the suite starts all clients at once, which takes a busy machine its time."""


def spec_of(scenario: str, given: dict[str, str]) -> OAuthSpec:
    """Return how the scenario's client is configured."""
    if "client-credentials" in scenario:
        return OAuthSpec(
            grant="client_credentials",
            client_id=given["client_id"],
            client_secret=given.get("client_secret", ""),
            private_key=given.get("private_key_pem", ""),
        )
    if scenario == "auth/pre-registration":
        return OAuthSpec(client_id=given["client_id"], client_secret=given["client_secret"])
    return OAuthSpec(client_metadata_url=METADATA_URL)


async def browse(url: str, issuer: str) -> None:
    """Go where `url` leads: the person says yes to everything."""
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False, verify=False, timeout=LIMIT) as client:
        await client.get(url)


async def main(url: str) -> int:
    """Do what a gateway does with a new server; return the exit status."""
    scenario, given = (
        os.environ["MCP_CONFORMANCE_SCENARIO"],
        json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
    )
    oauth = spec_of(scenario, given)
    listings: list[Listing] = []
    with tempfile.TemporaryDirectory() as folder:
        access = Access("conformance", url, oauth, FileLogins(Path(folder)), person=Person(show=browse))
        spec = ServerSpec(name="conformance", transport="http", url=url, oauth=oauth)
        limits = McpLimits(start_timeout=LIMIT, probe_timeout=LIMIT)
        source = McpSource(spec, environment={}, cache_dir=None, spool_dir=Path(folder), limits=limits, access=access)
        await source.open(listings.append)
        try:
            with anyio.move_on_after(LIMIT):
                await source.ready()
                for tool in listings[-1].tools:
                    deadline = time.monotonic() + LIMIT
                    context = Context(call_id="1", session_key="s", principal="local", deadline=deadline)
                    try:
                        await source.call(tool, example(tool.input_schema), context)
                    except ToolFailure as failure:
                        LOG.warning("%s: %s", tool.name, failure)
        finally:
            await source.close()
    return 0 if source.state.state == "closed" and listings and listings[-1].tools else 1


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    sys.exit(anyio.run(main, sys.argv[1]))
