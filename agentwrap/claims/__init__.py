"""What programs of a run say about themselves, over a socket of the run: taken down as said, believed by nobody."""
