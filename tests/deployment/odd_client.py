"""The example app's device with faults: $MEL_TEST_FAULTS/NAME.json says what device NAME does in a training.

declares: what it can do, for the server. hold: in this round it waits until NAME.go exists. lie: it claims so
many samples and answers with the model multiplied by 100.
"""

import json
import os
import time
from pathlib import Path

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from mel_fleet.client_app import train

from flwr_mel.clientapp import Assignment, MelMod


def fault_of(context):
    """Return the device's own path, without suffix, and what its file says."""
    mine = Path(os.environ["MEL_TEST_FAULTS"]) / str(context.node_config["mel-learner"])
    path = mine.with_suffix(".json")
    return mine, json.loads(path.read_text()) if path.exists() else {}


def declared(context, cycle):
    return fault_of(context)[1].get("declares", {})


def faulty(message, context, call_next):
    """Do what the file says."""
    mine, fault = fault_of(context)
    task = Assignment.from_message(message)
    if fault.get("hold") == task.cycle:
        mine.with_suffix(".holds").touch()
        while not mine.with_suffix(".go").exists():
            time.sleep(0.1)
    if "lie" not in fault:
        return call_next(message, context)
    task.choose(fault["lie"])
    arrays = [100 * a for a in message.content.array_records["arrays"].to_numpy_ndarrays()]
    metrics = MetricRecord({"num-examples": fault["lie"], "loss": 0.0})
    return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)


app = ClientApp(mods=[MelMod(declared), faulty])
app.train()(train)
