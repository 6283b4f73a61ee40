"""Artifacts: files that an agent made, their inputs, and the reviews that are due when an input has changed."""

from .tracking import (
    acknowledge_review,
    check_related_artifacts,
    flag_for_review,
    list_tracked_artifacts,
    notify_change,
    track_artifact,
    untrack_artifact,
    update_tracked_artifact,
)

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
