"""Every key that crosses the network, in one place.

The same flat keys serve both APIs; keys with their values are called *words*. A task rides in the
ConfigRecord of the train message (classic: the FitIns config). What a client sends rides in a ConfigRecord of
its own, named ``RECORD`` (classic: the properties and the FitRes metrics). Values are int, float, str or
bytes, which both APIs carry.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Name of the ConfigRecord that carries probes, answers and reports in the Message API.
RECORD = "mel"

# Server to client, with a task.
#: The number of the round. A message with this key is a task.
CYCLE = "mel-cycle"
#: tau_k and d_k.
EPOCHS = "mel-epochs"
SAMPLES = "mel-samples"
#: From which a client draws its samples.
SEED = "mel-seed"
#: Seconds that the task may take inside the client, from the arrival of the message. `Assignment.loader`
#: stops when they are over; an app with a loop of its own reads `Assignment.seconds_left`. Absent: no limit.
SECONDS = "mel-seconds"
#: 1, in place of EPOCHS and SAMPLES: the client does the project's own work, and the mod measures it.
BASELINE = "mel-baseline"
#: The key under which the project reads its epochs, if the server names it. Otherwise the mod looks for the
#: usual names in the run config and in the message's config.
EPOCHS_KEY = "mel-epochs-key"
#: Shards of parallelized learning: "mel-shard-0" the features, "mel-shard-1" the labels, and so on, each in
#: numpy's .npy format. They are bytes and not an ArrayRecord, because mods such as Flower's DP mods expect
#: only one ArrayRecord, the model.
SHARD = "mel-shard-"

#: Server to client, instead of a task: the number of the coming round. The mod answers without the app.
PROBE = "mel-probe"

# Client to server, with every answer and every report.
#: 1: a mod of ours answered.
MODDED = "mel-mod"
#: A label for logs and records. It identifies nothing.
LEARNER = "mel-learner"
#: The partition-id, only in a simulation, where it is the identity.
PARTITION = "mel-partition"
#: 1 in Flower's simulation engine, otherwise absent.
SIMULATED = "mel-simulated"
#: One line about an error in the mod or in the capability function.
PROBLEM = "mel-problem"
# Physical values ...
CPU_HZ = "mel-cpu-hz"
RATE_BPS = "mel-rate-bps"
TX_POWER_W = "mel-tx-power-w"
CAPACITANCE = "mel-capacitance"
EXPONENT = "mel-exponent"
# ... or measured coefficients of time and energy ...
COEFFICIENTS = ("mel-c2", "mel-c1", "mel-c0", "mel-g2", "mel-g1", "mel-g0")
# ... and limits.
#: The class of device, such as "phone". A new client is assumed to be as fast as the others of its class.
KIND = "mel-class"
ENERGY_LIMIT_J = "mel-energy-limit-j"
MAX_SAMPLES = "mel-max-samples"

# Client to server, with the reply to a task.
#: Seconds from the arrival of the message to the reply of the app.
TRAIN_SECONDS = "mel-train-seconds"
#: Joules, if the app measured them and put them into its reply.
TRAIN_JOULES = "mel-train-joules"
#: 1: a virtual fleet (see `flwr_mel.clientapp.virtual`). TRAIN_SECONDS and TRAIN_JOULES are then the price of
#: the whole task, link included: c2 SAMPLES_DRAWN + c1 SAMPLES_USED + c0. They do not depend on any clock.
VIRTUAL = "mel-virtual"
#: The project's own number of epochs, if the mod found it.
OWN_EPOCHS = "mel-own-epochs"
#: 1: the app read its epochs, in the run config, in `Assignment.epochs` or, with `MelClient`, in the config.
#: 0: it did not. Absent: unknown, for example because it copied the whole config.
EPOCHS_READ = "mel-epochs-read"
#: Distinct samples that the app trained on, d_k of the update: those that `Assignment.choose` or `loader`
#: returned, but at most SAMPLES_DRAWN if the task was stopped. Absent if the app called neither.
SAMPLES_USED = "mel-samples-used"
#: Samples that the app offered to `choose` or `loader`.
SAMPLES_HELD = "mel-samples-held"
#: Samples over all epochs, counted by the loader or by `Assignment.trained`; absent if they were not counted.
SAMPLES_DRAWN = "mel-samples-drawn"
#: 1: the app stops in time: it drew from the loader, or it read `Assignment.seconds_left`. Absent: unknown.
STOPS = "mel-stops"
#: 1: the task was cut short, because its seconds were over.
STOPPED = "mel-stopped"

#: Names a profile file in a client's node config. It stays on the device.
PROFILE = "mel-profile"

#: Every key by which a client describes itself.
CAPABILITY_KEYS = (
    LEARNER,
    KIND,
    CPU_HZ,
    RATE_BPS,
    TX_POWER_W,
    CAPACITANCE,
    EXPONENT,
    *COEFFICIENTS,
    ENERGY_LIMIT_J,
    MAX_SAMPLES,
)

#: Usual names of the number of local epochs, the likeliest first. ``_`` counts as ``-``, and the name is what
#: follows the last dot. "epoch" is not among them: in many projects it is the number of the round.
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
    """Whether this can be a number of epochs: 3, 3.0 or "3".

    Parameters
    ----------
    value : object
        A value of a config.
    """
    if isinstance(value, str):
        return value.isascii() and value.isdecimal()
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1 and value >= 0
    )
