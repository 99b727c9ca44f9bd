"""Requirements and (later) rules: question in, verdict out. Pure."""
