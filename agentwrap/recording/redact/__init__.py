"""Hiding secrets before anything is hashed or stored. Pure: bytes in, bytes out, under a key given from outside."""

from agentwrap.recording.redact.redactor import RedactOptions, Redactor

__all__ = ["RedactOptions", "Redactor"]
