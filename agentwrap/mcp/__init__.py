"""MCP: which servers are declared, the relay between client and server, what is judged, and what is made of it."""
