"""Processes that the command line becomes or starts, and the requests between them."""
