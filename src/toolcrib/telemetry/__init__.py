"""Telemetry of tools and calls: figures, and the name of their counter."""
