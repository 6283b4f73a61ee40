"""The Model Context Protocol, client and server, on a wire of our own. The README of this folder has the reasons."""
