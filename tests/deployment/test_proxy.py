"""The proxy in front of the server: devices pass, nobody else does."""

import shutil
import ssl
from contextlib import suppress
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from mel_simulation.engine.processes import end

from tests.deployment.tools import DEPLOY, environment, script
from tests.ports import free_port
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(
    shutil.which("nginx", path="/usr/sbin:/usr/bin:/sbin:/bin") is None, reason="nginx is not installed here"
)


@pytest.fixture
def door(federation):
    """Start the proxy before the federation's server; return its port."""
    port = free_port()
    superlink = f"127.0.0.1:{federation.port}"
    command = [
        DEPLOY / "proxy.sh",
        federation.certificates,
        federation.root / "proxy",
        "127.0.0.1",
        port,
        superlink,
    ]
    process = federation._spawn("proxy", command, environment(federation.home))

    def answers():
        assert process.poll() is None, federation.log("proxy")
        with suppress(OSError):
            return status(federation, port, "/")

    wait_for(answers)
    yield port
    end(process)


def status(federation, port, path, data=None):
    context = ssl.create_default_context(cafile=federation.certificates / "ca.pem")
    try:
        with urlopen(Request(f"https://localhost:{port}{path}", data), context=context) as answer:
            return answer.status
    except HTTPError as error:
        return error.code


def test_a_device_comes_through_and_nothing_else_does(federation, door):
    script("node_key.sh", federation.root / "keys" / "guest", "guest")
    home = federation.root / "home-through-the-proxy"
    env = environment(home, MEL_PORT=str(free_port()))
    ca, key = federation.certificates / "ca.pem", federation.root / "keys" / "guest"
    script("connect.sh", "outside", f"localhost:{door}", ca, env=env)
    # What a device has, its key and the authority's certificate, registers nobody and starts nothing.
    refused = script("register.sh", "outside", f"{key}.pub", env=env, check=False)
    assert refused.returncode != 0
    for part in ("control", "runtime"):
        for name in ("StartRun", "RegisterNode", "CreateNode", ""):
            assert status(federation, door, f"/v1/{part}/{name}", b"") == 403
    climbing = ("../control", "%2e%2e/control", "..%2fcontrol", "x/../../control")
    for path in ("/", "/health", *(f"/v1/fleet/{way}/StartRun" for way in climbing)):
        assert status(federation, door, path, b"") in (400, 403), path
    assert status(federation, federation.port, "/health") == 200, "the server itself is well"
    # Registered by the operator, on the server, it is a device like others.
    script("register.sh", "fleet", f"{key}.pub", env=environment(federation.home))
    device = federation._spawn(
        "guest", [DEPLOY / "supernode.sh", f"localhost:{door}", ca, key, "guest", "data-dir=/nowhere"], env
    )
    try:
        guest = wait_for(lambda: federation.node_id("guest"))
        assert device.poll() is None
        assert guest in federation.online()
    finally:
        end(device)
        federation.unregister("guest")
    assert guest not in federation.online(), "the federation is as it was, for the tests that follow"
