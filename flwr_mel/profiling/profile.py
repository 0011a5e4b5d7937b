"""The profile: what a device measured of itself, as a file and as a node config."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flwr_mel import wire
from flwr_mel._validate import NOTHING, complain, count, number
from flwr_mel.devices import COEFFICIENTS, Capability, Measured
from flwr_mel.profiling.compute import ComputeCosts
from flwr_mel.profiling.energy import EnergyCosts
from flwr_mel.profiling.link import LinkRate

Note = int | float | str
#: A battery's level is not among them: it would be old when the file is read.
_KEYS = (wire.LEARNER, *wire.COEFFICIENTS, wire.ENERGY_LIMIT_J, wire.MAX_SAMPLES)
_PER = ("sample and epoch", "sample", "cycle")
_MEANING = {
    key: f"{'seconds' if k < 3 else 'joules'} per {_PER[k % 3]}" for k, key in enumerate(wire.COEFFICIENTS)
}


@dataclass(frozen=True, slots=True)
class Profile:
    """Measured costs and limits of one device, within the ranges that the server accepts.

    Parameters
    ----------
    device : Measured
        Coefficients of time and energy, limits, and the name ("" for none).
    measured : mapping
        How it was measured, for people; no decision depends on it.
    """

    device: Measured
    measured: Mapping[str, Note] = field(default_factory=dict)

    def __post_init__(self) -> None:
        Capability.parse(self.words(), "device")
        for key, value in self.measured.items():
            if not re.fullmatch(r"[\w-]+", key) or not isinstance(value, Note) or isinstance(value, bool):
                raise complain(f"measured.{key}", "a number or a text", value)

    def words(self) -> dict[str, Any]:
        """Return the profile in the words of the wire."""
        d = self.device
        words: dict[str, Any] = {wire.LEARNER: d.name} if d.name else {}
        words |= {key: float(getattr(d, c)) for key, c in zip(wire.COEFFICIENTS, COEFFICIENTS, strict=True)}
        if d.energy_limit_j is not None:
            words[wire.ENERGY_LIMIT_J] = float(d.energy_limit_j)
        return words if d.max_samples is None else {**words, wire.MAX_SAMPLES: int(d.max_samples)}

    def node_config(self) -> str:
        """Return it as one ``--node-config`` string of flower-supernode, not yet quoted for a shell."""
        words = self.words().items()
        return " ".join(f"{key}={quoted(x) if isinstance(x, str) else repr(x)}" for key, x in words)

    def toml(self) -> str:
        """Return it as TOML, which ``flower-supernode --node-config profile.toml`` reads too."""
        lines = ["# Written by flwr-mel profile.", *_lines(self.words())]
        if self.measured:
            lines += ["", "[measured]", *_lines(self.measured)]
        return "\n".join(lines) + "\n"


def make_profile(
    compute: ComputeCosts,
    energy: EnergyCosts,
    link: LinkRate | None = None,
    *,
    model_bytes: int = 0,
    sample_bytes: int = 0,
    tx_watts: float = 0.0,
    name: str = "",
    energy_limit_j: float | None = None,
    max_samples: int | None = None,
    notes: Mapping[str, Note] | None = None,
) -> Profile:
    """Put computing and transfers together, as `Coefficients.from_devices` does.

    The model travels both ways every cycle (c0), samples travel to the device (c1), and only sending costs
    energy (g0).

    Parameters
    ----------
    compute, energy : ComputeCosts, EnergyCosts
        Of the training.
    link : LinkRate, optional
        Without it transfers are not in the profile.
    model_bytes, sample_bytes : int
        The model one way; one sample, if the server ships samples (PL), else 0.
    tx_watts : float
        Power while sending.
    name, energy_limit_j, max_samples
        As in `Measured`.
    notes : mapping, optional
        More for the table ``[measured]``.
    """
    model, sample = count("model_bytes", model_bytes), count("sample_bytes", sample_bytes)
    sending = number("tx_watts", tx_watts, least=0)
    if (model or sample) and link is None:
        raise complain("model_bytes and sample_bytes", "given with a measured link only", (model, sample))
    c1, c0, g0 = compute.c1, compute.c0, energy.g0
    if link is not None:
        c1 += 8 * sample / link.down_bps
        c0 += 8 * model / link.up_bps + 8 * model / link.down_bps
        g0 += sending * 8 * model / link.up_bps
    device = Measured(
        compute.c2, c1, c0, energy.g2, energy.g1, g0,
        energy_limit_j=energy_limit_j, max_samples=max_samples, name=name,
    )  # fmt: skip
    measured: dict[str, Note] = {
        "runs": len(compute.runs),
        "largest-epochs": compute.epochs,
        "largest-samples": compute.samples,
        "relative-error": compute.error,
    }
    for key, mad in zip(("c2", "c1", "c0"), compute.spread or (), strict=False):
        measured[f"{key}-spread"] = mad
    measured |= {"meter": str(energy.meter), "meter-detail": energy.detail}
    if link is not None:
        measured |= {
            "up-bps": link.up_bps,
            "up-spread-bps": link.up_spread_bps,
            "down-bps": link.down_bps,
            "down-spread-bps": link.down_spread_bps,
            "round-trip-s": link.round_trip_s,
            "model-bytes": model,
            "sample-bytes": sample,
            "tx-watts": sending,
        }
    return Profile(device, {**measured, **(notes or {})})


def parse_profile(document: dict[str, Any]) -> Profile:
    """Check what a profile file says; ValueError with the reason if it is no good.

    Parameters
    ----------
    document : dict
        The TOML document.
    """
    measured = document.get("measured", {})
    if not isinstance(measured, dict):
        raise complain("measured", "a table, [measured]", measured)
    for key in document:
        if key not in (*_KEYS, "measured"):
            raise complain("every key", f"one of {', '.join(_KEYS)} and [measured]", key)
    said = Capability.parse(document, "device")
    if said.measured is None:
        raise complain(wire.COEFFICIENTS[0], "given, with the other five coefficients", NOTHING)
    name = said.learner if wire.LEARNER in document else ""
    device = Measured(
        *said.measured, energy_limit_j=said.energy_limit_j, max_samples=said.max_samples, name=name
    )
    return Profile(device, measured)


def _lines(values: Mapping[str, Note]) -> list[str]:
    lines = []
    for key, x in values.items():
        text = json.dumps(x, ensure_ascii=False).replace("\x7f", "\\u007F") if isinstance(x, str) else repr(x)
        lines.append(f"{key} = {text}" + (f"  # {_MEANING[key]}" if key in _MEANING else ""))
    return lines


def quoted(text: str) -> str:
    """Quote for Flower's parser, which takes text between two equal quotes and hands it to TOML.

    Parameters
    ----------
    text : str
        A name or a path.
    """
    quote = "'" if '"' in text or "\\" in text else '"'
    if quote in text:
        rule = "without single quotes beside double ones or backslashes"
        raise complain("a name or path in --node-config", rule, text)
    return f"{quote}{text}{quote}"
