"""What outlasts a conversation: memories, notes, the profile of a project, prompts and templates."""

from .keeping import compact_memory, memory_reindex, memory_stats
from .memories import delete_memory, list_memory_tags, memory_search, retrieve_memories, store_memory
from .notes import append_note, compare_specs_notes, delete_note, list_notes, read_note, write_note
from .project import edit_project_profile, promote_note, regenerate_profile, view_profile

__all__ = [
    "append_note",
    "compact_memory",
    "compare_specs_notes",
    "delete_memory",
    "delete_note",
    "edit_project_profile",
    "list_memory_tags",
    "list_notes",
    "memory_reindex",
    "memory_search",
    "memory_stats",
    "promote_note",
    "read_note",
    "regenerate_profile",
    "retrieve_memories",
    "store_memory",
    "view_profile",
    "write_note",
]
