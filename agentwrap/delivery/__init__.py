"""Bringing exports to somebody else's server. Knows bytes and where they go; refuses to know recordings and formats."""
