"""Tasks: work with states, dependencies and priorities."""

from .changes import create_task, edit_task
from .views import get_task, list_tasks

__all__ = ["create_task", "edit_task", "get_task", "list_tasks"]
