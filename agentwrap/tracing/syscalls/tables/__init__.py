"""Generated system call numbers, one file per architecture."""
