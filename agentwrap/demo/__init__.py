"""What `agentwrap demo` runs: a tiny MCP server and a scripted agent. Like any program of a run, without our code."""
