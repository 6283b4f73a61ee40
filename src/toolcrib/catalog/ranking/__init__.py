"""Ranking of tools against a query: text to terms, terms to postings, postings to an order.

    text, stem, synonyms, topics     which words are the same, or near
    entry, fields                    one tool as weighted terms (BM25F)
    postings, sources, file          all tools: in memory, by source, on disk
    query, score                     one query, and the order of the tools for it

`toolcrib.catalog.index` is the way in.
"""
