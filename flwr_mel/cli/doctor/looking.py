"""All checks of a device, one after the other, and how they are shown."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from flwr_mel._validate import complain
from flwr_mel.cli.doctor import checks
from flwr_mel.cli.doctor.checks import Finding, Health

_MARKS = {Health.GOOD: "[green]good [/]", Health.DOUBT: "[yellow]doubt[/]", Health.BAD: "[red]bad  [/]"}


def examine(
    server: str,
    ca: Path,
    key: Path,
    node: Mapping[str, object],
    modules: Sequence[str],
    env: Mapping[str, str] = os.environ,
) -> Iterator[Finding]:
    """Look at a device before it takes part.

    Parameters
    ----------
    server : str
        HOST:PORT.
    ca, key : Path
        The authority's certificate, the device's private key.
    node : mapping
        Its node configuration; data-dir and mel-profile are looked at.
    modules : sequence of str
        What the app imports.
    env : mapping
        The environment in which the device works.
    """
    host, port = _address(server)
    for name in modules:
        if not all(part.isidentifier() for part in name.split(".")):
            raise complain("modules", "names of modules", name)
    paths = [Path(str(node[name])) if node.get(name) else None for name in ("data-dir", "mel-profile")]

    def findings() -> Iterator[Finding]:
        yield from checks.software()
        yield from checks.key_file(key)
        yield from checks.server(host, port, ca)
        yield from checks.data(paths[0])
        yield from checks.profile(paths[1])
        yield from checks.load(env)
        yield from checks.disk(Path(env.get("FLWR_HOME") or Path.home() / ".flwr"))
        yield from checks.start_up(modules, env)

    return findings()


def show(finding: Finding, out: Console) -> None:
    """Print a finding, with its remedy.

    Parameters
    ----------
    finding : Finding
        What was found.
    out : Console
        The one that shows that one is looking: another would write into its line.
    """
    remedy = f"\n        {finding.remedy}" if finding.remedy else ""
    out.print(f"{_MARKS[finding.health]}  {finding.what}: {finding.detail}{remedy}", soft_wrap=True)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise complain(
            "server", "HOST:PORT", text, "Devices come in at port 8000 unless server up was told another."
        )
    return host.strip("[]"), int(port)
