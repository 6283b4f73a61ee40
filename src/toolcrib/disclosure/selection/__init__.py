"""Seed 004: the tools that a task needs are selected for it, in three levels, anew for every interaction.

  level 1   core tools, always included
  level 2   tools with the capabilities that the schema, the plan and the intent ask for
  level 3   the whitelist, over both

`select` decides and gives its reasons; the strategy shows the selection. `route` names the one capability for a
request.
"""

from .requirements import SelectionState
from .selector import Candidate, Route, Selection, route, select
from .strategy import STRATEGY

__all__ = ["STRATEGY", "Candidate", "Route", "Selection", "SelectionState", "route", "select"]
