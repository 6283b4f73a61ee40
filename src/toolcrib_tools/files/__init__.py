"""Files of the workspace: read, written, edited, moved, listed, and changes taken back."""

from .listing import glob_files, list_directory
from .moving import copy_file, move_file, remove_file
from .reading import file_info, read_file
from .replacing import find_and_replace
from .undoing import list_backups, restore_backup, undo_edit
from .writing import edit_file, multi_edit, write_file

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
