"""Notebooks: Python in a persistent kernel, in the sandbox."""

from .cells import notebook_execute
from .management import notebook_backends, notebook_create, notebook_list, notebook_reset, notebook_variables

__all__ = [
    "notebook_backends",
    "notebook_create",
    "notebook_execute",
    "notebook_list",
    "notebook_reset",
    "notebook_variables",
]
