"""Recordings in other formats: events in, bytes out. Pure."""
