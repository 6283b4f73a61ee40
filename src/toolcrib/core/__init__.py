"""The nouns: frozen, without I/O, known to every floor above."""
