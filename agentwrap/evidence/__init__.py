"""Judging a recording: is it whole, is it covered, what would undoing it mean."""
