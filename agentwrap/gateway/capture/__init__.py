"""What HTTP exchanges say, read from a copy of a connection's bytes while the bytes themselves pass untouched."""
