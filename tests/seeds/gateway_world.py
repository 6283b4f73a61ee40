"""The world behind gateway.yaml: two pages in memory. Every function is a tool of the catalog."""

from __future__ import annotations

from typing import Any

from toolcrib.plugin import ToolFailure
from toolcrib.sources.yaml.run_code import ToolContext

_PAGES = {
    "https://example.com/herons": "Herons stand still for a long time.",
    "https://example.org/bridges": "A bridge carries what crosses it.",
}

Row = dict[str, Any]


def web_search(context: ToolContext, query: str, max_results: int, **how: Any) -> Row:
    wanted, unwanted = how.get("include_domains"), how.get("exclude_domains") or ()
    found = [
        {"url": url, "text": text}
        for url, text in _PAGES.items()
        if (not wanted or any(domain in url for domain in wanted)) and not any(domain in url for domain in unwanted)
    ]
    answer = {"answer": f"About {query}."} if how["include_answer"] else {}
    return {"results": found[:max_results], "search_depth": how["search_depth"], **answer}


def web_visit(context: ToolContext, url: str, max_chars: int, **how: Any) -> Row:
    if url not in _PAGES:
        raise ToolFailure("not_found", f"there is nothing at {url}")
    return {"url": url, "content": _PAGES[url][:max_chars], "mode": how["mode"], "format": how["output_format"]}


def get_buildos_overview(context: ToolContext) -> Row:
    return {"overview": "Projects, and everything that belongs to them."}


def get_buildos_usage_guide(context: ToolContext) -> Row:
    return {"guide": ["Create a project", "Add tasks", "Work"]}
