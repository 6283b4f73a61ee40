"""Progressive disclosure: the tools that a model sees, one file a strategy.

Hiding is never security: policy decides.
"""
