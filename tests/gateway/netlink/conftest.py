"""Every test of the kernel's side runs as root and as a plain user, where this machine lets it."""

import pytest
from namespaces import AS


@pytest.fixture(params=AS)
def who(request: pytest.FixtureRequest) -> str:
    return str(request.param)
