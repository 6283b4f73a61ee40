"""Seed 003 as a world in memory, behind the tools of `introspection.yaml`. `state.WORLD` shows every effect."""
