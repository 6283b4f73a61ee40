"""Work that begins by itself: hooks (at an event or a time) and playbooks (several steps)."""
