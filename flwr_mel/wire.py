"""Every key that crosses the network, in one place.

The same flat keys serve both APIs. A task rides in the one ConfigRecord of the train message (classic: the
FitIns config); what a learner says rides in a ConfigRecord of its own, named ``RECORD`` (classic: the
properties and the FitRes metrics). Values are int, float, str or bytes, which both APIs carry.
"""

#: Name of the ConfigRecord that carries questions, answers and reports in the Message API.
RECORD = "mel"

# Server to learner, with a task.
CYCLE = "mel-cycle"
EPOCHS = "mel-epochs"
SAMPLES = "mel-samples"
SEED = "mel-seed"
#: Shards of parallelized learning: "mel-shard-0" the features, "mel-shard-1" the labels, and so on, each in
#: numpy's .npy format. They are not an ArrayRecord, so that mods which expect one ArrayRecord (the model),
#: such as Flower's DP mods, go on working.
SHARD = "mel-shard-"

# Server to learner, instead of a task: tell me what you can do in this coming cycle.
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

# Learner to server: what the task took.
TRAIN_SECONDS = "mel-train-seconds"
TRAIN_JOULES = "mel-train-joules"

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
)
