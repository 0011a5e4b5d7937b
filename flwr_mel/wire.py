"""Every key that crosses the network, in one place.

The same flat keys serve both APIs. A task rides in the one ConfigRecord of the train message (classic: the
FitIns config); what a learner says rides in a ConfigRecord of its own, named ``RECORD`` (classic: the
properties and the FitRes metrics). Values are int, float, str or bytes, which both APIs carry.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Name of the ConfigRecord that carries questions, answers and reports in the Message API.
RECORD = "mel"

# Server to learner, with a task. ``CYCLE`` is what makes a message a task.
CYCLE = "mel-cycle"
EPOCHS = "mel-epochs"
SAMPLES = "mel-samples"
SEED = "mel-seed"
#: In place of epochs and samples, 1: a free task. The app does what it would do without us; the mod watches.
FREE = "mel-free"
#: Under which key the project's clients read their epochs, in the run config or in the message's config. With
#: a task: the server's word (``epochs_key=``); absent, the mod looks for the usual names. With a report: the
#: key that the mod laid the epochs over; absent, it found none.
EPOCHS_KEY = "mel-epochs-key"
#: Shards of parallelized learning: "mel-shard-0" the features, "mel-shard-1" the labels, and so on, each in
#: numpy's .npy format. They are not an ArrayRecord, so that mods which expect one ArrayRecord (the model),
#: such as Flower's DP mods, go on working.
SHARD = "mel-shard-"

# Server to learner, instead of a task: tell me what you can do in this coming cycle. The answer repeats it.
PROBE = "mel-probe"

# Learner to server: who it is and what it can do. Physical values ...
LEARNER = "mel-learner"
CPU_HZ = "mel-cpu-hz"
RATE_BPS = "mel-rate-bps"
TX_POWER_W = "mel-tx-power-w"
CAPACITANCE = "mel-capacitance"
EXPONENT = "mel-exponent"
# ... or measured coefficients of time and energy ...
COEFFICIENTS = ("mel-c2", "mel-c1", "mel-c0", "mel-g2", "mel-g1", "mel-g0")
# ... and limits.
ENERGY_LIMIT_J = "mel-energy-limit-j"
MAX_SAMPLES = "mel-max-samples"
BATTERY_J = "mel-battery-j"
#: Least samples and most steps of this many samples each per cycle, of learners with sample-level DP.
#: Epochs beyond steps / ceil(d_k / batch) and samples outside are cut by the learner itself.
MIN_SAMPLES = "mel-min-samples"
MAX_STEPS = "mel-max-steps"
STEP_SAMPLES = "mel-step-samples"
#: 1 where the learner runs in Flower's simulation engine: waiting for a worker is not its link. Else absent.
SIMULATED = "mel-simulated"
#: What went wrong in the kit on the learner's side (its capability function raised, ...): one line. Where the
#: question reached no mod, the server puts what came back in its place.
PROBLEM = "mel-problem"

#: With the answer to a probe: seconds that the learner's own code took for it. The rest is Flower's.
ANSWER_SECONDS = "mel-answer-seconds"

# Learner to server: what the task took.
#: Seconds inside the app, without the transport and without the mod's own work.
TRAIN_SECONDS = "mel-train-seconds"
#: Joules, if the app measured them and says so in its own reply.
TRAIN_JOULES = "mel-train-joules"
#: What stood under ``EPOCHS_KEY`` before the mod laid tau_k over it: the project's own number of epochs.
OWN_EPOCHS = "mel-own-epochs"
#: Whether the app read its epochs: "yes"; "no", it did not look at any place where they were; "unknown", it
#: copied a whole config and nobody can see what it did with the copy.
EPOCHS_READ = "mel-epochs-read"
YES, NO, UNKNOWN = "yes", "no", "unknown"
#: Epochs the learner did, as far as the mod knows: what was laid, if it was read; else counted at the loader;
#: else absent.
EPOCHS_DONE = "mel-epochs-done"
#: Samples per epoch, and who says so: "task" (`Assignment.choose` or `loader` picked them), "loader" (the
#: app's own num-examples are the batches of a torch DataLoader, and these its samples) or "reply" (the app's
#: own num-examples, as sent: may be batches, or anything).
SAMPLES_USED = "mel-samples-used"
SAMPLES_FROM = "mel-samples-from"
TASK, LOADER, REPLY = "task", "loader", "reply"
#: Samples the learner has, if it gave them to `Assignment.choose` or `loader`; absent if not known.
SAMPLES_HELD = "mel-samples-held"

#: Everything a learner may say of its capabilities.
CAPABILITY_KEYS = (
    LEARNER,
    CPU_HZ,
    RATE_BPS,
    TX_POWER_W,
    CAPACITANCE,
    EXPONENT,
    *COEFFICIENTS,
    ENERGY_LIMIT_J,
    MAX_SAMPLES,
    BATTERY_J,
    MIN_SAMPLES,
    MAX_STEPS,
    STEP_SAMPLES,
)

#: What only our mod says: whoever says any of it has one. The mod's answer to a probe repeats ``PROBE``.
SIGNS = frozenset({PROBE, SIMULATED, TRAIN_SECONDS, *CAPABILITY_KEYS})

#: How projects call their epochs, the likelier first; ``-`` stands for ``_`` too, and "train.num-epochs" is
#: "num-epochs". Not "epoch": that is the number of the round in many projects.
EPOCHS_NAMES = (
    "local-epochs",
    "num-local-epochs",
    "local-epoch",
    "local-ep",
    "client-epochs",
    "epochs",
    "num-epochs",
    "n-epochs",
    "train-epochs",
    "num-train-epochs",
    "max-epochs",
)


def find_epochs_key(config: Mapping[str, object]) -> str | None:
    """Return the key under which a config has a number of local epochs, or None.

    Parameters
    ----------
    config : mapping
        A run config, or the config of a message.
    """
    by_name: dict[str, str] = {}
    for key, value in config.items():
        if is_epochs(value):
            by_name.setdefault(str(key).rpartition(".")[2].lower().replace("_", "-"), key)
    return next((by_name[name] for name in EPOCHS_NAMES if name in by_name), None)


def is_epochs(value: object) -> bool:
    """Tell whether this can be a number of epochs: 3, 3.0 or "3".

    Parameters
    ----------
    value : object
        From a config.
    """
    if isinstance(value, str):
        return value.isascii() and value.isdecimal()
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1 and value >= 0
    )
