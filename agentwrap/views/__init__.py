"""Recordings as lines of text: filters, streams, trees, diffs. Pure."""
