"""The example app's device with faults: $MEL_TEST_FAULTS/NAME.json says what device NAME does in a training.

slow: real seconds per sample and epoch. hold: in this round it waits until NAME.go exists. lie: it claims so
many samples and answers with the model multiplied by 100.
"""

import json
import os
import time
from pathlib import Path

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from mel_fleet.client_app import train

from flwr_mel.clientapp import Assignment, mel_mod


def faulty(message, context, call_next):
    """Do what the file says; a mod inside `mel_mod`, so that what it does counts as the device's work."""
    mine = Path(os.environ["MEL_TEST_FAULTS"]) / str(context.node_config["mel-learner"])
    path = mine.with_suffix(".json")
    fault = json.loads(path.read_text()) if path.exists() else {}
    task = Assignment.from_message(message)
    if fault.get("hold") == task.cycle:
        mine.with_suffix(".holds").touch()
        while not mine.with_suffix(".go").exists():
            time.sleep(0.1)
    if "lie" in fault:
        task.choose(fault["lie"])
        arrays = [100 * a for a in message.content.array_records["arrays"].to_numpy_ndarrays()]
        metrics = MetricRecord({"num-examples": fault["lie"], "loss": 0.0})
        return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)
    reply = call_next(message, context)
    done = int(reply.content.metric_records["metrics"]["num-examples"]) * int(
        context.run_config["local-epochs"]
    )
    time.sleep(fault.get("slow", 0.0) * done)
    return reply


app = ClientApp(mods=[mel_mod, faulty])
app.train()(train)
