"""Views of guests in the console: their pages, and the calls of tools behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.call import VIEW
from ..core.entry_points import VIEWS
from ..core.events import Problem
from ..core.permission import Answer, NoApprover, Question
from ..core.services.console_view import ConsoleView
from ..crib import Toolcrib
from ..crib.services.contributions import SessionCaller
from ..disclosure.settings import BY_CATALOG
from ..errors import ToolFailure
from ..plugin import load_entry_points
from .pages import ConsolePage


class GuestViews:
    """The views whose tools a crib has. Their calls are made as the operator who looks."""

    def __init__(self, crib: Toolcrib) -> None:
        """`crib` has the tools of the views; what cannot be loaded is a problem of it."""
        self._crib = crib
        guests, problems = load_entry_points(VIEWS)
        self._views = {guest.name: guest.thing for guest in guests if isinstance(guest.thing, ConsoleView)}
        for problem in problems:
            crib.tools.report(problem)
        for guest in guests:
            if guest.name not in self._views:
                message = f"{guest.origin}: {type(guest.thing).__name__} is not a ConsoleView of toolcrib.plugin"
                crib.tools.report(Problem(source="plugins", code="unavailable", message=message))

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels by name, of those whose tools are there."""
        there = self._crib.catalog.find
        return {name: view.label for name, view in self._views.items() if there(view.tool) is not None}

    async def page(self, name: str, path: str, operator: str) -> ConsolePage:
        """Return a page of a view. Raises `ToolFailure`: `not_found`, or the error of a call."""
        page = await self._found(name).show(self._caller(operator, None), path)
        blocks = [(type(block).__name__, block) for block in page.blocks]
        return ConsolePage(template="view", values={"title": page.title, "blocks": blocks, "name": name})

    async def act(self, name: str, path: str, form: Mapping[str, str], operator: str) -> str:
        """Do what a form asks for, and return the path to go on with. Raises `ToolFailure`.

        The operator's click answers the questions of these calls.
        """
        act = self._found(name).act
        if act is None:
            raise ToolFailure("not_found", f"the view {name} has no forms")
        return await act(self._caller(operator, f"{operator} (console)"), path, form)

    def _found(self, name: str) -> ConsoleView:
        if name not in self.labels:
            raise ToolFailure("not_found", f"there is no view {name[:60]!r}, or its tools are not offered here")
        return self._views[name]

    def _caller(self, operator: str, answered_by: str | None) -> SessionCaller:
        async def approver(question: Question) -> Answer:
            if answered_by is None:
                raise NoApprover
            return Answer(verdict="yes", by=answered_by)

        options: dict[str, Any] = {"principal": operator, "profile": BY_CATALOG, "approver": approver}
        return SessionCaller(self._crib.session(**options), "console" if answered_by else VIEW)
