"""A disk for tests: a table of paths and what they are; parents are folders by themselves."""

import posixpath
from collections.abc import Mapping, Sequence

from agentwrap.launching.survey import Kind


class TableDisk:
    def __init__(
        self, files: Sequence[str], kinds: Mapping[str, Kind] | None = None, links: Mapping[str, str] | None = None
    ):
        self.links = dict(links or {})
        self.kinds: dict[str, Kind] = {"/": "folder"}
        given: dict[str, Kind] = dict.fromkeys(files, "file") | dict(kinds or {}) | dict.fromkeys(self.links, "link")
        for path, kind in given.items():
            above = path.rstrip("/")
            self.kinds[above] = "folder" if path.endswith("/") else kind
            while above != "/":
                above = posixpath.dirname(above)
                self.kinds.setdefault(above, "folder")

    def kind(self, path: str) -> Kind:
        return self.kinds.get(path, "")

    def real(self, path: str) -> str:
        for link, target in self.links.items():
            if path == link or path.startswith(link + "/"):
                return target + path[len(link) :]
        return path

    def entries(self, folder: str) -> Sequence[tuple[str, Kind]]:
        return [
            (posixpath.basename(path), kind)
            for path, kind in sorted(self.kinds.items())
            if posixpath.dirname(path) == folder and path != "/"
        ]
