"""Waypoints: saved states of the workspace that can be restored."""

from .tools import delete_waypoint, list_waypoints, restore_waypoint, save_waypoint, waypoint_info

__all__ = ["delete_waypoint", "list_waypoints", "restore_waypoint", "save_waypoint", "waypoint_info"]
