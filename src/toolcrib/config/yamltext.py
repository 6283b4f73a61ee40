"""Moved to `core.yamltext`."""

from ..core.yamltext import parse_yaml

__all__ = ["parse_yaml"]
