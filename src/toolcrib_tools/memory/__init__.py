"""Memory across conversations: memories, notes, project profile, prompts and templates."""

from .memories import delete_memory, list_memory_tags, memory_search, retrieve_memories, store_memory
from .notes import (
    append_note,
    compare_specs_notes,
    delete_note,
    edit_project_profile,
    list_notes,
    promote_note,
    read_note,
    regenerate_profile,
    view_profile,
    write_note,
)
from .project_records import compact_memory, memory_reindex, memory_stats
from .prompts import delete_prompt, list_saved_prompts, read_prompt, render_prompt, save_prompt
from .templates import (
    create_template,
    delete_template,
    get_template,
    list_template_variables,
    list_templates,
    validate_template_index,
    write_file_from_template,
)

__all__ = [
    "append_note",
    "compact_memory",
    "compare_specs_notes",
    "create_template",
    "delete_memory",
    "delete_note",
    "delete_prompt",
    "delete_template",
    "edit_project_profile",
    "get_template",
    "list_memory_tags",
    "list_notes",
    "list_saved_prompts",
    "list_template_variables",
    "list_templates",
    "memory_reindex",
    "memory_search",
    "memory_stats",
    "promote_note",
    "read_note",
    "read_prompt",
    "regenerate_profile",
    "render_prompt",
    "retrieve_memories",
    "save_prompt",
    "store_memory",
    "validate_template_index",
    "view_profile",
    "write_file_from_template",
    "write_note",
]
