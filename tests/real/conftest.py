"""A machine on which one host is allowed, and a web server behind the allowed names."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from real import sites
from real.confined import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


@pytest.fixture
def site(place: Place) -> sites.Site:
    """Over both families, plain and with TLS."""
    made = sites.Site()
    talk = made.tls(sites.context(place.folder, "allowed.example", "second.example", "http2.example"))
    for address in ("192.0.2.1", "2001:db8::1", "192.0.2.2", "192.0.2.4", "2001:db8::6"):
        place.serve(place.net.listen(address, 80), made.talk)
        place.serve(place.net.listen(address, 443), talk)
    return made
