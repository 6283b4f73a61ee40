"""The graph of a user's projects: operations `onto.*`, and `x.*` to add more kinds, share, restore and move it.

    operations                                             declaration of operations as tools
    reads, links, project_reads, document_reads            operations that read
    changes, reorganization, edge_operations, project_*    operations that write
    model                                                  kinds of entities, relations, tables
    nodes, edges, tree                                     entities, their links, the place of documents

Each change is one transaction: `nodes` writes the entity, `edges` its links, `tree` the place of a document, and the
event of the log is stored with them. Functions of these three take `Rows`, and leave the transaction to their caller.
"""

from .changes import (
    create_onto_document,
    create_onto_goal,
    create_onto_milestone,
    create_onto_plan,
    create_onto_requirement,
    create_onto_risk,
    create_onto_task,
    create_task_document,
    delete_onto_document,
    delete_onto_goal,
    delete_onto_milestone,
    delete_onto_plan,
    delete_onto_requirement,
    delete_onto_risk,
    delete_onto_task,
    move_document_in_tree,
    update_onto_document,
    update_onto_goal,
    update_onto_milestone,
    update_onto_plan,
    update_onto_project,
    update_onto_requirement,
    update_onto_risk,
    update_onto_task,
)
from .document_history import (
    get_onto_document_version,
    get_onto_tree_version,
    list_onto_document_versions,
    list_onto_tree_versions,
    restore_onto_document_version,
    restore_onto_tree_version,
)
from .document_reads import get_document_path, get_document_tree
from .edge_operations import link_onto_entities, unlink_onto_edge
from .field_info import get_onto_field_info
from .links import get_entity_relationships, get_linked_entities, list_task_documents
from .members import list_onto_members, set_onto_member
from .project_creation import create_onto_project
from .project_export import export_onto_project
from .project_import import import_onto_project
from .project_reads import get_onto_project_details, get_onto_project_graph
from .reads import (
    get_onto_document_details,
    get_onto_goal_details,
    get_onto_milestone_details,
    get_onto_plan_details,
    get_onto_requirement_details,
    get_onto_risk_details,
    get_onto_task_details,
    list_onto_documents,
    list_onto_goals,
    list_onto_milestones,
    list_onto_plans,
    list_onto_projects,
    list_onto_requirements,
    list_onto_risks,
    list_onto_tasks,
    search_onto_documents,
    search_onto_projects,
    search_onto_tasks,
    search_ontology,
)
from .reorganization import reorganize_onto_project_graph

__all__ = [
    "create_onto_document",
    "create_onto_goal",
    "create_onto_milestone",
    "create_onto_plan",
    "create_onto_project",
    "create_onto_requirement",
    "create_onto_risk",
    "create_onto_task",
    "create_task_document",
    "delete_onto_document",
    "delete_onto_goal",
    "delete_onto_milestone",
    "delete_onto_plan",
    "delete_onto_requirement",
    "delete_onto_risk",
    "delete_onto_task",
    "export_onto_project",
    "get_document_path",
    "get_document_tree",
    "get_entity_relationships",
    "get_linked_entities",
    "get_onto_document_details",
    "get_onto_document_version",
    "get_onto_field_info",
    "get_onto_goal_details",
    "get_onto_milestone_details",
    "get_onto_plan_details",
    "get_onto_project_details",
    "get_onto_project_graph",
    "get_onto_requirement_details",
    "get_onto_risk_details",
    "get_onto_task_details",
    "get_onto_tree_version",
    "import_onto_project",
    "link_onto_entities",
    "list_onto_document_versions",
    "list_onto_documents",
    "list_onto_goals",
    "list_onto_members",
    "list_onto_milestones",
    "list_onto_plans",
    "list_onto_projects",
    "list_onto_requirements",
    "list_onto_risks",
    "list_onto_tasks",
    "list_onto_tree_versions",
    "list_task_documents",
    "move_document_in_tree",
    "reorganize_onto_project_graph",
    "restore_onto_document_version",
    "restore_onto_tree_version",
    "search_onto_documents",
    "search_onto_projects",
    "search_onto_tasks",
    "search_ontology",
    "set_onto_member",
    "unlink_onto_edge",
    "update_onto_document",
    "update_onto_goal",
    "update_onto_milestone",
    "update_onto_plan",
    "update_onto_project",
    "update_onto_requirement",
    "update_onto_risk",
    "update_onto_task",
]
