"""What checking and weighting updates costs beside plain Flower: ``python -m bench.updates``.

Ten clients send a model of 50 million parameters back, two rounds. Every measurement has a process of its
own: the strategy's processor time in `configure_*` and `aggregate_*`, and the peak memory of the process,
replies included. Plain and wrapped take turns.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import subprocess
import sys
from statistics import median
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common import Code, FitIns, FitRes, GetPropertiesRes, Status
from flwr.common import ndarrays_to_parameters as to_parameters
from flwr.common import parameters_to_ndarrays as to_arrays
from flwr.server import strategy as classic
from flwr.serverapp import strategy as message

from bench.strategy import Client, classic_rounds, in_server, message_rounds
from bench.tables import arguments, save, table
from flwr_mel import Measured, server, serverapp
from flwr_mel.clientapp import Assignment, MelMod, describe

CLIENTS, ROUNDS, LAYERS = 10, 2, 25
MOST_TIME, MOST_MEMORY = 1.15, 1.08
DEVICE = Measured(1e-3, 1e-3, 0.1, 1e-4, 0.0, 0.1, max_samples=10)


class Mover(Client):
    """A classic client that moves every parameter."""

    def get_properties(self, ins: Any, timeout: Any, group_id: Any) -> Any:  # noqa: ARG002
        """Declare the device."""
        return GetPropertiesRes(Status(Code.OK, ""), describe(DEVICE))

    def fit(self, ins: FitIns, timeout: Any, group_id: Any) -> FitRes:  # noqa: ARG002
        """Move the model."""
        moved = to_parameters([(a + 1e-3).astype(np.float32) for a in to_arrays(ins.parameters)])
        return FitRes(Status(Code.OK, ""), moved, 10, {})


def moving_app() -> ClientApp:
    """Return an app that moves every parameter."""
    app = ClientApp(mods=[MelMod(DEVICE)])

    @app.train()
    def train(sent: Message, context: Context) -> Message:  # noqa: ARG001
        Assignment.from_message(sent).choose(10)
        given = sent.content.array_records["arrays"]
        moved = ArrayRecord({k: Array((a.numpy() + 1e-3).astype(np.float32)) for k, a in given.items()})
        metrics = MetricRecord({"num-examples": 10, "loss": 0.5})
        return Message(RecordDict({"arrays": moved, "metrics": metrics}), reply_to=sent)

    return app


def one(api: str, name: str, kind: str, parameters: int) -> dict[str, float]:
    """Train in this process; return the strategy's processor time and the peak memory."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    rng = np.random.default_rng(0)
    model = [rng.normal(size=parameters // LAYERS).astype(np.float32) for _ in range(LAYERS)]
    if api == "message":
        nodes = {"fraction_evaluate": 0.0, "min_train_nodes": CLIENTS, "min_available_nodes": CLIENTS}
        strategy = getattr(message, name)(**nodes)
        if kind == "wrapped":
            strategy = serverapp.MelStrategy(strategy, cycle_time_s=10.0)
        arrays = ArrayRecord(model, keep_input=False)
        spent = in_server(lambda: message_rounds(strategy, moving_app(), CLIENTS, arrays, ROUNDS))
    else:
        start = to_parameters(model)
        model.clear()
        clients = {"fraction_evaluate": 0.0, "min_fit_clients": CLIENTS, "min_available_clients": CLIENTS}
        given = {"initial_parameters": start} if name == "FedAdam" else {}
        strategy = getattr(classic, name)(**clients, **given)
        given.clear()
        if kind == "wrapped":
            strategy = server.MelStrategy(strategy, cycle_time_s=10.0)
        spent = classic_rounds(strategy, [Mover(str(k)) for k in range(CLIENTS)], start, ROUNDS)
    return {"cpu_s": sum(spent), "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000}


def compare(api: str, name: str, parameters: int, repeats: int) -> dict[str, Any]:
    """Measure plain and wrapped in turns; return the medians and their ratios."""
    found: dict[str, list[dict[str, float]]] = {"plain": [], "wrapped": []}
    command = [sys.executable, "-m", "bench.updates", "--parameters", str(parameters), "--one", api, name]
    env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for _ in range(repeats):
        for kind, seen in found.items():
            done = subprocess.run([*command, kind], check=True, capture_output=True, text=True, env=env)
            seen.append(json.loads(done.stdout.splitlines()[-1]))
    row: dict[str, Any] = {"api": api, "strategy": name}
    for what in ("cpu_s", "peak_mb"):
        plain, wrapped = (median(x[what] for x in found[kind]) for kind in found)
        row |= {f"plain_{what}": plain, f"wrapped_{what}": wrapped, f"{what}_ratio": wrapped / plain}
    print(row, file=sys.stderr, flush=True)
    return row


def section(found: dict[str, Any]) -> str:
    """Return the section of the page."""
    rows = [
        [
            f"{r['strategy']}, {r['api']}",
            f"{r['plain_cpu_s']:.1f} s",
            f"{r['cpu_s_ratio']:.2f}",
            f"{r['plain_peak_mb'] / 1000:.1f} GB",
            f"{r['peak_mb_ratio']:.2f}",
        ]
        for r in found["rows"]
    ]
    return f"""## Large models

Processor time of the server and peak memory of its process for {ROUNDS} rounds of {CLIENTS} clients with
{found["parameters"] / 1e6:.0f} million parameters each, and how many times as much `MelStrategy` around the
strategy needs (medians of {found["repeats"]} runs).

{table(["strategy, API", "time", "wrapped", "memory", "wrapped"], rows)}
"""


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--parameters", type=int, default=50_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("API", "STRATEGY", "KIND"), help="measure in this process")
    given = parser.parse_args()
    if given.one:
        api, name, kind = given.one
        print(json.dumps(one(api, name, kind, given.parameters)))
        return
    pairs = [(api, name) for api in ("message", "classic") for name in ("FedAvg", "FedAdam")]
    rows = [compare(api, name, given.parameters, given.repeats) for api, name in pairs]
    found = {"parameters": given.parameters, "repeats": given.repeats, "rows": rows}
    print(section(found))
    if not given.no_write:
        save("updates", found)


if __name__ == "__main__":
    main()
