import pytest
from flwr.supercore.task_identity import TaskIdentity

from tests.strategies.fleet import APIS


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    """Messages can be built outside of a run."""
    for name in ("task_id", "run_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1)


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
