"""Shipped skills (data analysis, documents, slides, summaries): a folder each, and `groups.yaml`."""
