"""Helpers of the file tools: paths, text, patterns, file search. Defines no tools."""
