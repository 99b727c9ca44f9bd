"""The file: one writer, many readers. Redaction before hashing, hashing before writing."""
