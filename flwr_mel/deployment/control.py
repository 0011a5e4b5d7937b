"""The SuperLink's Control API: who may take part. All devices in one process, where `flwr` takes one each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, UnregisterNodeRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from flwr_mel._text import message, printable
from flwr_mel._validate import Phrase, complain
from flwr_mel.deployment.place import ServerPlace, ServerSettings

#: Flower's word for a device that is there.
ONLINE = "online"
_GONE = "unregistered"


class Control:
    """An operator's connection to the server, on the server itself."""

    def __init__(self, client: ControlHttpClient) -> None:
        self._client = client

    def registered(self) -> dict[int, bytes]:
        """Return the public key of every registered device, by node id."""
        nodes = self._client.ListNodes(ListNodesRequest()).nodes_info
        return {node.node_id: bytes(node.public_key) for node in nodes if node.status != _GONE}

    def presence(self) -> dict[int, tuple[str, str]]:
        """Return of every registered device how the server sees it and since when (ISO 8601; "": never)."""
        nodes = self._client.ListNodes(ListNodesRequest()).nodes_info
        return {
            node.node_id: (
                node.status,
                node.last_activated_at if node.status == ONLINE else node.last_deactivated_at,
            )
            for node in nodes
            if node.status != _GONE
        }

    def register(self, keys: Mapping[str, bytes]) -> dict[str, int]:
        """Register devices that are not yet; return everybody's node id by name.

        Parameters
        ----------
        keys : mapping
            From names to public keys in Flower's form.
        """
        there = {key: node for node, key in self.registered().items()}
        found = {}
        for name, key in keys.items():
            if key in there:
                found[name] = there[key]
            else:
                request = RegisterNodeRequest(public_key=key, name=name)
                found[name] = self._client.RegisterNode(request).node_id
        return found

    def unregister(self, node: int) -> None:
        """Have the server forget a device: its key is good for nothing then."""
        self._client.UnregisterNode(UnregisterNodeRequest(node_id=node))


@contextmanager
def controlling(place: ServerPlace, settings: ServerSettings) -> Iterator[Control]:
    """Connect to a server's SuperLink.

    Parameters
    ----------
    place : ServerPlace
        The server's directory.
    settings : ServerSettings
        What it was set up with.
    """
    client = ControlHttpClient.from_server_address(
        server_address=settings.control,
        insecure=False,
        root_certificates=place.ca.read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )
    try:
        yield Control(client)
    except httpx.HTTPStatusError as error:
        what = Phrase(printable(error.response.text, 300) or message(error))
        raise complain("device", "one that the server takes", what) from None
    except httpx.HTTPError as error:
        rule = f"running at {settings.control}"
        remedy = f"Start it: flwr-mel server up {place.root}"
        raise complain("server", rule, Phrase(message(error)), remedy) from ConnectionError(message(error))
    finally:
        client.close()
