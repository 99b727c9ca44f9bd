"""The relay of servers on standard input and output: a process that stands between client and server."""
