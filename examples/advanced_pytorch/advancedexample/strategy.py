"""FedAvg with a `start` of its own: a checkpoint of the best model, results.json, a falling learning rate."""

import json
from logging import INFO
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord
from flwr.common import log
from flwr.serverapp.strategy import FedAvg, Result


class CustomFedAvg(FedAvg):
    """Keeps the best model and writes down how it went."""

    def set_save_path(self, path: str) -> None:
        """Say where files go."""
        self.save_path = Path(path)
        self.save_path.mkdir(parents=True, exist_ok=True)
        self.best_accuracy = 0.0
        self.results: list[dict[str, float]] = []

    def configure_train(self, server_round, arrays, config, grid):
        """Halve the learning rate every second round."""
        if server_round % 2 == 1 and server_round > 1:
            config["lr"] *= 0.5
        return super().configure_train(server_round, arrays, config, grid)

    def _keep(self, server_round, arrays, accuracy):
        if accuracy > self.best_accuracy:
            self.best_accuracy = accuracy
            torch.save(arrays.to_torch_state_dict(), self.save_path / "best.pt")
            log(INFO, "new best model after round %s", server_round)
        self.results.append({"round": server_round, "accuracy": accuracy})
        (self.save_path / "results.json").write_text(json.dumps(self.results))

    def start(
        self,
        grid,
        initial_arrays,
        num_rounds=3,
        timeout=3600,
        train_config=None,
        evaluate_config=None,
        evaluate_fn=None,
    ) -> Result:
        """Run the rounds."""
        train_config = ConfigRecord() if train_config is None else train_config
        result = Result(arrays=initial_arrays)
        arrays: ArrayRecord = initial_arrays
        for current_round in range(1, num_rounds + 1):
            messages = self.configure_train(current_round, arrays, train_config, grid)
            replies = grid.send_and_receive(messages=messages, timeout=timeout)
            averaged, metrics = self.aggregate_train(current_round, replies)
            if averaged is not None:
                result.arrays = arrays = averaged
            if metrics is not None:
                result.train_metrics_clientapp[current_round] = metrics
            evaluated = evaluate_fn(current_round, arrays)
            result.evaluate_metrics_serverapp[current_round] = evaluated
            self._keep(current_round, arrays, evaluated["accuracy"])
        return result
