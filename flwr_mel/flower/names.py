"""Who a node is, by what the operator wrote down: a mapping, or a file that may grow during a run."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from flwr_mel import wire
from flwr_mel._text import message
from flwr_mel._validate import Phrase, complain
from flwr_mel.devices import read_name

log = logging.getLogger("flwr.mel")

_RULE = 'a mapping of node ids to names, or a JSON file with one, such as {"1234": "pi-1"}'
#: A node's id, as the operator has it, to the name of the device whose key it has.
NamesLike = Mapping[str, str] | Mapping[int, str] | str | os.PathLike[str]


class Names:
    """The names of the nodes.

    Parameters
    ----------
    source : mapping, path or None
        From node ids to names, or a JSON file with that. None: names are what learners claim.
    """

    def __init__(self, source: NamesLike | None) -> None:
        self._path: Path | None = None
        self._seen: object = None
        self._names: dict[str, str] | None = None
        if isinstance(source, Mapping):
            self._names = _checked(source)
        elif isinstance(source, str | os.PathLike):
            self._path = Path(source)
            try:
                self._seen, self._names = _stamp(self._path), _read(self._path)
            except OSError as error:
                raise complain("names", _RULE, Phrase(f"{source}: {message(error)}")) from error
        elif source is not None:
            raise complain("names", _RULE, source)

    def of(self, nodes: Iterable[str]) -> Mapping[str, str] | None:
        """Return all names; a file that has changed is read again when there is a node that is not in it.

        Parameters
        ----------
        nodes : iterable of str
            Who is there.
        """
        if self._path is not None and self._names is not None and not self._names.keys() >= set(nodes):
            self._look(self._path)
        return self._names

    def _look(self, path: Path) -> None:
        try:
            stamp = _stamp(path)
            if stamp != self._seen:
                self._seen, self._names = stamp, _read(path)
        except (OSError, ValueError) as error:
            self._seen = None
            log.warning("the names in %s cannot be read, so those read before hold: %s", path, message(error))


def _stamp(path: Path) -> object:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise complain("names", _RULE, Phrase(f"{path}: {message(error)}")) from error
    if not isinstance(found, Mapping):
        raise complain("names", _RULE, found)
    return _checked(found)


def _checked(names: Mapping[str, str] | Mapping[int, str]) -> dict[str, str]:
    found = {}
    for node, given in names.items():
        name = read_name({wire.LEARNER: given}) if isinstance(given, str) else None
        if name is None or not str(node).isdecimal():
            raise complain("names", _RULE, {node: given})
        found[str(node)] = name
    return found
