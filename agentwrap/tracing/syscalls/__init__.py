"""Which system calls are watched, and how their arguments are read. Pure."""
