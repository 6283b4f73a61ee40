"""Files that an agent made, what they were made from, and which of them need another look because that changed."""

from .reviews import acknowledge_review, check_related_artifacts, flag_for_review, notify_change
from .tracking_tools import list_tracked_artifacts, track_artifact, untrack_artifact, update_tracked_artifact

__all__ = [
    "acknowledge_review",
    "check_related_artifacts",
    "flag_for_review",
    "list_tracked_artifacts",
    "notify_change",
    "track_artifact",
    "untrack_artifact",
    "update_tracked_artifact",
]
