"""A client mod that makes simulated devices slow; `examples/run.py` adds it to copies of the projects."""

from time import monotonic, sleep

#: Seconds that the device of each partition takes for one epoch of one sample. The runner writes them.
SECONDS = (0.0,)
_started = []


def slow_mod(message, context, call_next):
    """Train, then wait until the slow device would have finished.

    Parameters
    ----------
    message, context, call_next
        As Flower calls a mod.
    """
    if not _started:
        # For `Run.began_s`: Flower's own line of round 1 comes before Ray and the app are loaded.
        print("the first task of this process starts", flush=True)
        _started.append(True)
    start = monotonic()
    reply = call_next(message, context)
    if message.metadata.message_type == "train" and reply.has_content():
        records = (*reply.content.metric_records.values(), *reply.content.config_records.values())
        told = {key.replace("_", "-"): value for record in records for key, value in record.items()}
        seconds = SECONDS[context.node_config["partition-id"] % len(SECONDS)]
        sleep(max(start + seconds * told["epochs-run"] * told["num-examples"] - monotonic(), 0.0))
    return reply
