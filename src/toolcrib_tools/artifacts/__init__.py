"""Artifacts: files that an agent made, their inputs, and the reviews that are due when an input has changed."""

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
