"""Messages can only be made inside a run."""

import pytest

from tests import identity


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    """Pretend to be inside one."""
    identity.pretend(monkeypatch.setattr)
