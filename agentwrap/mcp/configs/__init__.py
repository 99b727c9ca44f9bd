"""Configurations of MCP clients: their formats, and which program's start is that of a declared server. Pure."""
