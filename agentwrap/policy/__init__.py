"""The policy language and its one decision, and what a recording could have seen: question in, answer out. Pure."""
