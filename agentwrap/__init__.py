"""agentwrap: launch any agent, follow every child, keep one file that tells what happened and what could not be seen.

The journey of an event, one folder a stage: `launching` starts the agent stopped and filtered, `tracing` follows it,
`events` is the vocabulary, `recording` is the file, `evidence` judges it, `views` and `export` show it, `cli` is typed.
`session` is the only place where the writing side is wired together.
"""

__version__ = "0.1.0"
