"""A human is asked: what waits, who may answer, how the answer reaches the run.

`registry` is the thinking, `messages` the words on the socket, `permission` what an answer for always writes (all
pure). `folder`, `ancestry`, `server` and `client` are the socket, `desk` is what a session uses.
"""
