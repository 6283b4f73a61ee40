"""Commands in the sandbox: one at a time, in the background, in a terminal; and the tests of a project."""

from .commands import run_command
from .project_tests import run_tests
from .terminals import shell_close, shell_control, shell_input, shell_list, shell_read, shell_spawn

__all__ = [
    "run_command",
    "run_tests",
    "shell_close",
    "shell_control",
    "shell_input",
    "shell_list",
    "shell_read",
    "shell_spawn",
]
