"""One run on Flower's engine, in a process of its own: ``python -m mel_simulation.engine.run_app ORDER``.

Flower's own way (`flwr run`) goes through a SuperLink, an executor and a process for the run, each of which
imports Flower anew before Ray is even started. Here Ray starts first; while it does, the app is imported, and
its workers import it while Flower gets ready.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from flwr_mel._files import atomically
from mel_simulation.engine.ray_start import import_ray, start_ray


@dataclass(frozen=True, slots=True)
class Order:
    """What to run, and where to say how it goes.

    Parameters
    ----------
    config : dict
        The run configuration, as Flower spells it.
    learners : int
        Virtual nodes.
    cpus_per_learner : float
        CPUs that each working learner takes.
    ray_address : str
        An existing Ray cluster; empty: Ray on this machine.
    scratch : str
        A directory with a short name. Its file ``phase`` says what is going on, ``trouble`` what went wrong.
    """

    config: dict[str, Any]
    learners: int
    cpus_per_learner: float
    ray_address: str
    scratch: str

    def write(self) -> Path:
        """Write it down for the process to read."""
        path = Path(self.scratch) / "order.json"
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path

    def say(self, phase: str) -> None:
        """Tell whoever looks on what is going on."""
        atomically(Path(self.scratch) / "phase", lambda file: file.write(phase))


#: The last phase: all results are on disk.
DONE = "done"
CLIENT_APP = "mel_simulation.app.client_app"


def run(order: Order) -> None:
    """Start Ray and run the app on Flower's engine."""
    order.say("starting Ray")
    import_ray(preload=CLIENT_APP)
    loading = threading.Thread(target=load_app)
    loading.start()
    start_ray(0, order.ray_address, order.scratch)
    order.say("loading the app")
    loading.join()
    _simulate(order)


def load_app() -> None:
    """Import all that the server needs."""
    for name in ("flwr.simulation", CLIENT_APP, "mel_simulation.app.server_app"):
        import_module(name)


def send_actors_whole() -> None:
    """Send workers the code of Flower's actors, not its place: that imports databases and web servers."""
    from flwr.simulation.ray_transport import ray_actor  # noqa: PLC0415
    from ray import cloudpickle  # noqa: PLC0415

    cloudpickle.register_pickle_by_value(ray_actor)  # type: ignore[no-untyped-call]


def _simulate(order: Order) -> None:
    from flwr.app import Context  # noqa: PLC0415
    from flwr.serverapp import Grid, ServerApp  # noqa: PLC0415
    from flwr.simulation import run_simulation  # noqa: PLC0415

    from mel_simulation.app.client_app import client_app  # noqa: PLC0415
    from mel_simulation.app.server_app import simulate  # noqa: PLC0415
    from mel_simulation.scenario.config import RunConfig  # noqa: PLC0415

    config = RunConfig.parse(order.config)
    server = ServerApp()

    @server.main()
    def main(grid: Grid, _: Context) -> None:
        order.say("waiting for the learners")
        simulate(config, order.learners, grid)
        order.say(DONE)

    send_actors_whole()
    run_simulation(
        server_app=server,
        client_app=client_app(config),
        num_supernodes=order.learners,
        backend_config={"client_resources": {"num_cpus": order.cpus_per_learner, "num_gpus": 0.0}},
    )


def main() -> None:
    """Carry out the order; what goes wrong is left where the command looks for it."""
    order = Order(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    try:
        run(order)
    except BaseException as error:
        (Path(order.scratch) / "trouble").write_text(str(error) or type(error).__name__, encoding="utf-8")
        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    main()
