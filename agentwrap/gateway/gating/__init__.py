"""Rules for MCP over HTTP: requests held until they are judged, our own answers, servers' answers cut at events."""
