"""File tools: read, write, edit, move, list, and undo changes."""

from .edits import edit_file, multi_edit, write_file
from .listings import glob_files, list_directory
from .moves import copy_file, move_file, remove_file
from .read import file_info, read_file
from .replacements import find_and_replace
from .undo import list_backups, restore_backup, undo_edit

__all__ = [
    "copy_file",
    "edit_file",
    "file_info",
    "find_and_replace",
    "glob_files",
    "list_backups",
    "list_directory",
    "move_file",
    "multi_edit",
    "read_file",
    "remove_file",
    "restore_backup",
    "undo_edit",
    "write_file",
]
