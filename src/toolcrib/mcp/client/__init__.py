"""MCP client: transports, handshake and requests of every revision from 2024-11-05 to 2026-07-28."""
