"""One file per command: options, then one call."""
