"""Messages outside of a run: Flower's `Message` reads the ids of the run from the process."""

try:
    from flwr.supercore.task_identity import TaskIdentity
except ModuleNotFoundError:  # older versions of Flower do without
    TaskIdentity = None


def pretend(set_attribute=setattr):
    """Set the ids, so that messages can be built."""
    if TaskIdentity is not None:
        for name in ("task_id", "run_id", "node_id"):
            set_attribute(TaskIdentity, f"_{name}", 1)
