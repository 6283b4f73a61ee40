"""The graph of a user's projects: operations `onto.*`, and `x.*` to add more kinds, share, restore and move it.

    operations                                             declaration of operations as tools
    reads, links, documents, project_reads                 operations that read
    changes, links, documents, reorganization, project_*   operations that write
    model                                                  kinds of entities, relations, tables
    nodes, edges, tree                                     entities, their links, the place of documents

Each change is one transaction: `nodes` writes the entity, `edges` its links, `tree` the place of a document, and the
event of the log is stored with them. Functions of these three take `Rows`, and leave the transaction to their caller.
"""
