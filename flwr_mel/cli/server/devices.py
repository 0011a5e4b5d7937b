"""``flwr-mel server devices`` and ``remove``: who may take part."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flwr_mel._validate import complain
from flwr_mel.cli.deploying import tell
from flwr_mel.cli.shared import ENVIRONMENT, bad_input, stop
from flwr_mel.cli.watch.lines import clock
from flwr_mel.deployment import secrets
from flwr_mel.deployment.bundles import (
    Bundle,
    DeviceSettings,
    check_device_name,
    make_bundle,
    numbered,
    parse_pairs,
)
from flwr_mel.deployment.place import ServerPlace, ServerSettings

if TYPE_CHECKING:
    from flwr_mel.deployment.control import Control

EXAMPLES = """Examples:

flwr-mel server devices /srv/flwr-mel 50 --set data-dir=/srv/data

flwr-mel server devices /srv/flwr-mel pi-1 pi-2 camera-north

flwr-mel server devices /srv/flwr-mel pi-7.pub       (the key was made on the device: flwr-mel device key)

flwr-mel server list /srv/flwr-mel

flwr-mel server remove /srv/flwr-mel pi-2"""

_OPTIONS = {
    "devices": "NAME",
    "name": "NAME",
    "node": "--set",
    "directory": "DIRECTORY",
    "public key": "NAME",
}
Directory = Annotated[Path, typer.Argument(metavar="DIRECTORY", help="The server's directory.")]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON.")]


def devices(
    directory: Directory,
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME...", help="Devices: names, a number, or public keys."),
    ],
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="For every device's node configuration; {name} is its name."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a bundle for every device, and let them take part.

    NAME... are names of devices, or one number (so many, called device-1 and so on), or files NAME.pub of
    keys that were made on the devices (flwr-mel device key).

    A bundle, DIRECTORY/bundles/NAME, has the device's name, key and settings, the server's authority, a unit.
    Copy it to the device, and there: flwr-mel device start BUNDLE. Repeat the command as often as you like:
    what is there stays, what is not registered yet is registered. The server must be running.

    Exit codes: 0 done, 2 bad input, 4 the environment.
    """
    place = ServerPlace(directory.absolute())
    with bad_input(_OPTIONS):
        settings = place.read()
        wanted, node = _wanted(names), parse_pairs(pairs or [])
        bundles = {name: Bundle(place.bundles / name) for name in wanted}
        with _controlling(place, settings) as control:
            registered = control.registered()
            known = {node: name for node, name in place.names_by_node().items() if node in registered}
            _check_free(place, bundles, set(known.values()))
            for name, bundle in bundles.items():
                own = {key: v.replace("{name}", name) if isinstance(v, str) else v for key, v in node.items()}
                make_bundle(bundle, DeviceSettings(name, settings.address, own), place.ca, wanted[name])
            keys = {name: secrets.read_public_key(bundle.public(name)) for name, bundle in bundles.items()}
            nodes = control.register(keys)
            place.remember(known | {node: name for name, node in nodes.items()})
    rows = [{"name": name, "node": str(nodes[name]), "bundle": str(bundles[name].root)} for name in bundles]
    lines = [(row["name"], f"node {row['node']}, {row['bundle']}") for row in rows]
    lines.append(("next", "copy each bundle to its device, and there: flwr-mel device start BUNDLE"))
    tell(json, {"devices": rows}, lines)


def list_(directory: Directory, json: Json = False) -> None:
    """Tell by name which devices are there, as the server sees it, those that are missing first.

    One that dies is seen as online until it has missed two heartbeats, about a minute.

    Exit codes: 0 done, 2 bad input, 4 the environment.
    """
    place = ServerPlace(directory.absolute())
    with bad_input(_OPTIONS):
        settings = place.read()
        with _controlling(place, settings) as control:
            presence = control.presence()
    names = place.names_by_node()
    rows = sorted(
        (
            {"name": names.get(node, ""), "node": str(node), "status": status, "since": since}
            for node, (status, since) in presence.items()
        ),
        key=lambda row: (row["status"] == "online", row["name"], row["node"]),
    )
    online = sum(row["status"] == "online" for row in rows)
    lines = [(row["name"] or row["node"], _seen(row)) for row in rows]
    lines.append(("in all", f"{online} of {len(rows)} online"))
    tell(json, {"devices": rows, "online": online}, lines)


def _seen(row: Mapping[str, str]) -> str:
    """Say how the server sees a device."""
    status = row["status"] if row["since"] or row["status"] == "online" else "has never been here"
    try:
        since = f" since {clock(datetime.fromisoformat(row['since']).timestamp())}"
    except ValueError:
        since = ""
    return f"{status}{since}" + (f", node {row['node']}" if row["name"] else ", its name is not known")


def remove(
    directory: Directory,
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of devices.")],
    json: Json = False,
) -> None:
    """Let devices take part no more: their keys are good for nothing from now on. Their bundles stay.

    Exit codes: 0 done, 2 bad input, 4 the environment.
    """
    place = ServerPlace(directory.absolute())
    with bad_input(_OPTIONS):
        settings = place.read()
        known = place.names_by_node()
        for name in names:
            if name not in known.values():
                raise complain("name", f"a device in {place.devices}", name)
        gone = [node for node, name in known.items() if name in names]
        with _controlling(place, settings) as control:
            for node in set(gone) & set(control.registered()):
                control.unregister(node)
        place.remember({node: name for node, name in known.items() if node not in gone})
    told = [{"name": known[node], "node": str(node)} for node in gone]
    tell(json, {"removed": told}, [("removed", f"{row['name']}, node {row['node']}") for row in told])


def _controlling(place: ServerPlace, settings: ServerSettings) -> AbstractContextManager[Control]:
    """Connect to the SuperLink; Flower takes a second or two to import, and must be new enough."""
    try:
        from flwr_mel.deployment.control import controlling  # noqa: PLC0415
    except ImportError as error:
        stop(f"this needs another version of Flower ({error}): pip install 'flwr>=1.41,<2'", ENVIRONMENT)
    return controlling(place, settings)


def _wanted(names: Sequence[str]) -> dict[str, Path | None]:
    """Return the names of the devices, each with the public key that was made on it, if one was."""
    if len(names) == 1 and names[0].isdecimal():
        return dict.fromkeys(numbered(int(names[0])))
    found: dict[str, Path | None] = {}
    for text in names:
        path = Path(text) if text.endswith(".pub") else None
        name = text if path is None else path.stem
        check_device_name(name)
        if name in found:
            raise complain("name", "given once", name)
        found[name] = path
    return found


def _check_free(place: ServerPlace, bundles: Mapping[str, Bundle], taken: Collection[str]) -> None:
    """Complain about a name that belongs to a key whose bundle is gone: the new key would be a second one."""
    for name, bundle in bundles.items():
        if name in taken and not bundle.settings.exists():
            remedy = f"Take its key back first: flwr-mel server remove {place.root} {name}"
            raise complain("name", "a name that no registered key has", name, remedy)
