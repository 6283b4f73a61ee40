"""Domain values: frozen, without I/O, used by every floor above."""
