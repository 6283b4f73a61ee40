"""Tool definitions as the APIs of the models take them."""

from .definitions import FORMATS, Definitions, definitions, references

__all__ = ["FORMATS", "Definitions", "definitions", "references"]
