"""Seed 004: the tools that a task needs are selected for it, in three levels, anew for every interaction.

  level 1   core tools, always included
  level 2   tools with the capabilities that the schema, the plan and the intent ask for
  level 3   the whitelist, over both

`analyse` finds what a task in words needs, before its interaction begins. `select` decides and gives its reasons; the
strategy shows the selection, and its meta-tool adds to it. `route` names the one capability for a request.
"""

from .intent import analyse, read_intent
from .requirements import SelectionState
from .selector import Candidate, Route, Selection, route, select
from .strategy import STRATEGY

__all__ = ["STRATEGY", "Candidate", "Route", "Selection", "SelectionState", "analyse", "read_intent", "route", "select"]
