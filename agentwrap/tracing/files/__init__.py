"""The file witness: from "this call is about to run" to "this is what changed on disk".

`tracker.FileTracker` is the whole interface; `settings` has its argument types.
"""

from agentwrap.tracing.files.settings import FileSettings, Place, Who
from agentwrap.tracing.files.tracker import FileTracker

__all__ = ["FileSettings", "FileTracker", "Place", "Who"]
