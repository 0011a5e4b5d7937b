import pytest

from tests import identity
from tests.strategies.fleet import APIS


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    """Messages can be built outside of a run."""
    identity.pretend(monkeypatch.setattr)


@pytest.fixture(params=list(APIS))
def api(request):
    """Each of the two APIs in turn."""
    return APIS[request.param]


@pytest.fixture
def message_api():
    return APIS["message"]


@pytest.fixture
def classic_api():
    return APIS["classic"]
