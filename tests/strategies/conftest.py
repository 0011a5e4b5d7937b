import pytest

from tests.strategies.fleet import APIS


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
