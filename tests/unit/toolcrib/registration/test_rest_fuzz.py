"""Whatever is sent to the REST routes: an answer that their own description names, and never a fault of ours (C13)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import anyio.to_thread
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.config.settings import RegistrationSettings
from toolcrib.core.schema import compile_schema
from toolcrib.registration.rest import document
from unit.toolcrib.registration.test_rest import ADMIN, PLAIN, open_rest

EXAMPLES = 1000

Strategy = st.SearchStrategy[Any]

WORDS = ["find_order", "shop", "", "..", "{id}", "{", "${HOME}", "json", "read", "POST", "\u202e", "\x00", "*"]
TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(WORDS))
ORIGINS = st.sampled_from(
    ["https://203.0.114.7", "http://127.0.0.1:9", "https://[::1]", "ftp://203.0.114.7", "https://"]
)
ENDS = st.one_of(
    st.just("/"), st.text(max_size=12).map(lambda text: f"/{text}"), st.sampled_from(["/{id}?q={id}", ":x"])
)
URLS = st.tuples(ORIGINS, ENDS).map("".join)
"""Hosts are written as addresses: no name is looked up."""
VALUES: Strategy = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), TEXTS, URLS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
SCHEMAS: Strategy = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(TEXTS, VALUES, max_size=3)},
        optional={"required": st.lists(TEXTS, max_size=2), "$ref": TEXTS, "pattern": TEXTS},
    ),
)
PARTS: Mapping[str, Strategy] = {
    "method": TEXTS,
    "query": VALUES,
    "headers": st.one_of(VALUES, st.dictionaries(TEXTS, TEXTS, max_size=3)),
    "body": TEXTS,
    "methods": VALUES,
    "allow_private": VALUES,
}
HOW: Strategy = st.one_of(VALUES, st.fixed_dictionaries({"url": URLS}, optional=dict(PARTS)))
KINDS = st.sampled_from(["endpoint", "command", "module", "mcp", "path"])
IMPLEMENTATIONS: Strategy = st.one_of(VALUES, st.tuples(KINDS, HOW).map(lambda pair: {pair[0]: pair[1]}))
NAMES = st.one_of(TEXTS, st.sampled_from(["find_order", "other"]), st.from_regex(r"[a-z]{1,4}", fullmatch=True))
DEFINITIONS: Strategy = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {"name": NAMES},
        optional={
            "implementation": IMPLEMENTATIONS,
            "api": HOW,
            "input_schema": SCHEMAS,
            "output_schema": SCHEMAS,
            **dict.fromkeys(("kind", "examples", "annotations", "policy", "timeout", "aliases", "approval"), VALUES),
        },
    ),
    st.fixed_dictionaries(
        {"name": NAMES, "implementation": st.just({"endpoint": {"url": "https://203.0.114.7/{id}"}})}
    ),
    st.fixed_dictionaries({"hash": st.one_of(VALUES, st.from_regex(r"[0-9a-f]{64}", fullmatch=True))}),
)
GOOD = [
    {"name": name, "implementation": {"endpoint": {"url": "https://203.0.114.7/"}}} for name in ("shop", "find_order")
]
WRITTEN: st.SearchStrategy[bytes] = st.one_of(DEFINITIONS, st.sampled_from(GOOD)).map(
    lambda value: json.dumps(value).encode()
)
BODIES = st.one_of(WRITTEN, WRITTEN, st.binary(max_size=30), st.none())
STEPS = st.one_of(TEXTS, st.sampled_from(["shop", "find_order", "other"]), st.sampled_from(["shop", "find_order"]))
PATHS = st.one_of(
    st.just("/v1/instances/shop/tools"),
    STEPS.map(lambda instance: f"/v1/instances/{quote(instance, safe='')}/tools"),
    STEPS.map(lambda name: f"/v1/instances/shop/tools/{quote(name, safe='')}"),
    STEPS.map(lambda name: f"/v1/instances/shop/tools/{quote(name, safe='')}/accept"),
    st.text(max_size=12).map(lambda rest: f"/v1/{quote(rest.replace('.', '_'))}"),
    st.just("/openapi.json"),
)
QUERIES = st.one_of(st.just(""), st.sampled_from(["?persist=true", "?persist=false", "?persist", "?x=1"]))
METHODS = st.sampled_from(["GET", "POST", "POST", "POST", "POST", "DELETE", "DELETE", "PUT"])
TOKENS = st.sampled_from([ADMIN, ADMIN, ADMIN, ADMIN, ADMIN, PLAIN, "nobody"])

_TOOLS = "/v1/instances/shop/tools"
KNOWN = [
    ("POST", _TOOLS, "", json.dumps(GOOD[1]).encode(), ADMIN),
    ("POST", f"{_TOOLS}/find_order/accept", "", json.dumps({"hash": "0" * 64}).encode(), ADMIN),
    ("DELETE", f"{_TOOLS}/find_order", "", None, ADMIN),
]
"""Sent first: to meet what is there needs luck, and what is drawn changes with every constant in our code."""


def documented(method: str, path: str) -> set[int]:
    """The statuses that the description names for a request."""
    for template, item in document()["paths"].items():
        pattern = re.sub(r"\\\{[a-z]+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path):
            operation = item.get(method.lower())
            return (
                {405, 401, 403, 404, 429} if operation is None else {int(status) for status in operation["responses"]}
            )
    return {401, 404, 429}


@pytest.mark.slow
async def test_every_answer_is_one_that_the_description_names_and_none_is_a_fault_of_ours() -> None:
    problems = compile_schema({"$ref": "#/components/schemas/Problem", "components": document()["components"]})
    answered: Counter[int] = Counter()

    async with open_rest(RegistrationSettings(accept=True)) as rest:
        origin = f"http://127.0.0.1:{rest.site.port}"

        def check(method: str, path: str, query: str, body: bytes | None, token: str) -> None:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            response = client.request(method, f"{origin}{path}{query}", content=body, headers=headers)
            answered[response.status_code] += 1
            assert response.status_code < 500, response.text
            if response.request.url.path.startswith("/v1/tools"):  # a `..` leads to the other API
                return
            assert response.status_code in documented(method, response.request.url.path), response.text
            if response.status_code >= 400:
                assert response.headers["content-type"] == "application/problem+json"
                assert not problems.check(response.json())

        def check_all() -> None:
            for request in KNOWN:
                check(*request)
            settings(max_examples=EXAMPLES)(given(METHODS, PATHS, QUERIES, BODIES, TOKENS)(check))()

        with httpx2.Client(verify=False) as client:
            await anyio.to_thread.run_sync(check_all)

    assert sum(answered.values()) >= 500
    assert {200, 201, 204, 401, 403, 404, 405, 409, 422} <= answered.keys()
