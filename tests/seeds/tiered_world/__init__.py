"""Seed 000 as a world in memory, behind the tools of `tiered.yaml`. Every effect can be looked at in `state.WORLD`."""
