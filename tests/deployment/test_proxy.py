"""The proxy in front of the server: devices pass, nobody else does."""

import shutil
import ssl
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, StartRunRequest

from flwr_mel._processes import end
from flwr_mel.deployment import secrets
from tests.deployment.tools import HAS_NGINX
from tests.tools.commands import ask, refused, run
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(not HAS_NGINX, reason="nginx is not installed here")


@pytest.fixture
def bundle(federation):
    """A bundle of a guest that nobody has registered."""
    federation.make_stranger("guest")
    yield federation.bundle("guest")
    federation.unregister("guest")
    shutil.rmtree(federation.bundle("guest").root)


def status(ca, port, path, data=None):
    context = ssl.create_default_context(cafile=ca)
    try:
        with urlopen(Request(f"https://localhost:{port}{path}", data), context=context) as answer:
            return answer.status
    except HTTPError as error:
        return error.code


def test_what_a_device_has_registers_nobody_and_starts_nothing(federation, bundle):
    door, key = federation.device_port, secrets.read_public_key(bundle.public("guest"))
    requests = {
        "RegisterNode": RegisterNodeRequest(public_key=key, name="guest"),
        "StartRun": StartRunRequest(),
        "ListNodes": ListNodesRequest(),
    }
    for method, request in requests.items():
        with pytest.raises(Exception, match="403"):
            federation._ask(method, request, port=door)
    for part in ("control", "runtime"):
        for name in ("start-run", "register-node", "StartRun", "CreateNode", ""):
            assert status(bundle.ca, door, f"/v1/{part}/{name}", b"") == 403
    climbing = ("../control", "%2e%2e/control", "..%2fcontrol", "x/../../control")
    for path in ("/", "/health", *(f"/v1/fleet/{way}/start-run" for way in climbing)):
        assert status(bundle.ca, door, path, b"") in (400, 403), path
    assert status(bundle.ca, federation.port, "/health") == 200, "the server itself is well"


def test_a_registered_device_comes_through(federation, bundle):
    """Registered by the operator, on the server, it is a device like others; it goes by the bundle alone."""
    assert bundle.read().server == f"localhost:{federation.device_port}"
    federation.register("guest")
    federation.register("guest")  # once more changes nothing
    device = federation.start_node("guest")
    try:
        guest = wait_for(lambda: federation.node_id("guest"))
        assert device.poll() is None
        assert guest in federation.online()
        assert federation.place.names_by_node()[int(guest)] == "guest"
        # Flower's own list has numbers only.
        told = ask("server", "list", federation.place.root)
        there = {row["name"]: (row["node"], row["status"]) for row in told["devices"]}
        assert there["guest"] == (guest, "online")
        assert told["online"] == len(federation.online())
        assert (
            f"{told['online']} of {len(there)} online" in run("server", "list", federation.place.root).stdout
        )
    finally:
        end(device)
        del federation.nodes["guest"]
        assert ask("server", "remove", federation.place.root, "guest")["removed"]
    assert guest not in federation.online(), "the federation is as it was, for the tests that follow"
    assert "guest" not in federation.place.names_by_node().values()


def test_a_name_belongs_to_one_key(federation, bundle):
    """A second key for a name that has one is refused until the first is taken back."""
    root = federation.place.root
    federation.register("guest")
    assert "has never been here, node" in run("server", "list", root).stdout
    kept = bundle.root.rename(bundle.root.with_name("kept"))
    try:
        assert "flwr-mel server remove" in refused("server", "devices", root, "guest")
        assert not bundle.root.exists()
    finally:
        kept.rename(bundle.root)
        run("server", "remove", root, "guest")
    assert "NAME must be a device" in refused("server", "remove", root, "guest")
