"""The gateway: the one exit of a run. Its connector makes the namespace, its service judges and relays what comes out.

It knows hosts, names and connections; it knows nothing of processes but what the tracer tells it (`callers`).
"""
