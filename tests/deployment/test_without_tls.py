"""Flower's own SuperNodes and no TLS: no data leave, and our two lines in a plain project do their work."""

import json
from textwrap import dedent

from flwr_mel.records import CycleRecord, Outcome
from tests.deployment.reference import same_model
from tests.deployment.tools import blobs, save_data

DEVICES, OWN, HELD, ROUNDS = 2, 2, 20, 3

FILES = {
    "pyproject.toml": """
        [project]
        name = "plain"
        version = "1.0.0"
        dependencies = []
        [tool.hatch.build.targets.wheel]
        packages = ["."]
        [tool.flwr.app]
        publisher = "me"
        [tool.flwr.app.components]
        serverapp = "plain.server_app:app"
        clientapp = "plain.client_app:app"
        [tool.flwr.app.config]
        local-epochs = 2
        rounds = 3
        out = ""
        """,
    "plain/__init__.py": '"""Plain."""\n',
    "plain/client_app.py": """
        import json
        import time
        from pathlib import Path

        from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
        from flwr.clientapp import ClientApp
        from flwr_mel.clientapp import mel_mod

        app = ClientApp(mods=[mel_mod])
        SLOW = (1, 10)


        @app.train()
        def train(message, context):
            k, epochs = context.node_config["partition-id"], context.run_config["local-epochs"]
            (model,) = message.content["arrays"].to_numpy_ndarrays()
            for _ in range(epochs):
                model = model + k
                time.sleep(0.002 * 20 * SLOW[k])
            cycle = message.content["config"]["server-round"]
            (Path(context.run_config["out"]) / f"did-{cycle}-{k}").write_text(json.dumps(epochs))
            said = MetricRecord({"num-examples": 20})
            return Message(RecordDict({"arrays": ArrayRecord([model]), "metrics": said}), reply_to=message)
        """,
    "plain/server_app.py": """
        from pathlib import Path

        import numpy as np
        from flwr.app import ArrayRecord
        from flwr.serverapp import ServerApp
        from flwr.serverapp.strategy import FedAvg
        from flwr_mel.records import JsonlWriter
        from flwr_mel.serverapp import MelStrategy

        app = ServerApp()


        @app.main()
        def main(grid, context):
            strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2)
            out = Path(context.run_config["out"])
            strategy = MelStrategy(strategy, callbacks=[JsonlWriter(out / "cycles.jsonl")])
            result = strategy.start(grid, ArrayRecord([np.zeros(3)]), num_rounds=context.run_config["rounds"])
            np.save(out / "model.npy", result.arrays.to_numpy_ndarrays()[0])
        """,
}


def test_an_insecure_superlink_ships_nothing_unless_told_to(open_fleet):
    x, y = blobs(7, 100)
    data, run_dir = open_fleet.root / "server-data", open_fleet.root / "run"
    save_data(data, x, y)
    config = {
        "mode": "parallelized",
        "data_dir": str(data),
        "cycles": 1,
        "cycle_time": 3.0,
        "overhead": 0.0,
        "learning": False,
        "run_dir": str(run_dir),
    }
    status, details = open_fleet.finish(open_fleet.submit(**config))
    assert status == "failed"
    assert "mode='parallelized' ships data" in details
    assert "allow_insecure_shards=True" in details
    assert not any("Receiving" in open_fleet.log(name) for name in open_fleet.nodes)
    open_fleet.complete(**config, allow_insecure_shards=True)
    same_model(run_dir, dataset=(x, y))


def test_a_plain_project_on_real_devices(open_fleet, tmp_path):
    app, out = tmp_path / "app", tmp_path / "out"
    for name, text in FILES.items():
        path = app / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
    out.mkdir()
    run = open_fleet.start_run(app, {"out": str(out), "rounds": ROUNDS})
    status, details = open_fleet.finish(run)
    assert status == "completed", f"{details}\n{open_fleet.log('superlink')[-4000:]}"
    first, *later = [
        CycleRecord.from_dict(json.loads(x)) for x in (out / "cycles.jsonl").read_text().splitlines()
    ]
    assert first.status == "free"
    assert len(later) == ROUNDS - 1
    for record in (first, *later):
        did = [json.loads((out / f"did-{record.cycle}-{k}").read_text()) for k in range(DEVICES)]
        assert [row.epochs for row in record.learners] == did
        assert [row.epochs_done for row in record.learners] == did
        assert [(row.outcome, row.samples, row.weight) for row in record.learners] == [
            (Outcome.USED, HELD, HELD)
        ] * DEVICES
        # On real devices there is a link, by the server's clock.
        assert all(row.round_trip_s >= row.reported_time_s for row in record.learners)
    assert [row.epochs for row in first.learners] == [OWN] * DEVICES
    for record in later:
        assert 0 < record.cycle_time_s <= record.own_round_s == first.cycle_time_s
        assert min(row.epochs for row in record.learners) >= 1
