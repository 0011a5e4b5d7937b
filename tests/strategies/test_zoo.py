"""Models of all kinds under every strategy of Flower that trains on arrays: wrapped as plain, to the bit."""

import numpy as np
import pytest
from flwr.common import ndarrays_to_parameters
from flwr.server import strategy as classic
from flwr.serverapp import strategy as message

import flwr_mel.server
import flwr_mel.serverapp
from flwr_mel.records import Outcome
from tests.strategies.drive import run, same_bits
from tests.strategies.models import ZOO, K
from tests.strategies.test_arguments import NO_ARRAYS

NODES = {"min_train_nodes": K, "min_available_nodes": K}
CLIENTS = {"min_fit_clients": K, "min_available_clients": K}
DP = {"noise_multiplier": 0.01, "num_sampled_clients": K}


def first(model):
    return ndarrays_to_parameters([np.asarray(a) for a in model.values()])


MESSAGE = {
    "FedAvg": lambda: message.FedAvg(**NODES),
    "FedProx": lambda: message.FedProx(proximal_mu=0.1, **NODES),
    "FedAvgM": lambda: message.FedAvgM(server_momentum=0.9, **NODES),
    "FedAdam": lambda: message.FedAdam(**NODES),
    "FedAdagrad": lambda: message.FedAdagrad(**NODES),
    "FedYogi": lambda: message.FedYogi(**NODES),
    "QFedAvg": lambda: message.QFedAvg(client_learning_rate=0.1, **NODES),
    "FedMedian": lambda: message.FedMedian(**NODES),
    "FedTrimmedAvg": lambda: message.FedTrimmedAvg(**NODES),
    "Krum": lambda: message.Krum(num_malicious_nodes=1, **NODES),
    "MultiKrum": lambda: message.MultiKrum(num_malicious_nodes=1, num_nodes_to_select=4, **NODES),
    "Bulyan": lambda: message.Bulyan(num_malicious_nodes=1, **NODES),
    "fixed DP": lambda: message.DifferentialPrivacyServerSideFixedClipping(
        message.FedAvg(**NODES), clipping_norm=1.0, **DP
    ),
    "adaptive DP": lambda: message.DifferentialPrivacyServerSideAdaptiveClipping(
        message.FedAvg(**NODES), **DP
    ),
    "fixed DP on the client": lambda: message.DifferentialPrivacyClientSideFixedClipping(
        message.FedAvg(**NODES), clipping_norm=1.0, **DP
    ),
    "adaptive DP on the client": lambda: message.DifferentialPrivacyClientSideAdaptiveClipping(
        message.FedAvg(**NODES), **DP
    ),
    "MelFedAvg": lambda: flwr_mel.serverapp.MelFedAvg(**NODES),
}
CLASSIC = {
    "FedAvg": lambda m: classic.FedAvg(**CLIENTS),
    "FedAvg, not in place": lambda m: classic.FedAvg(inplace=False, **CLIENTS),
    "FedProx": lambda m: classic.FedProx(proximal_mu=0.1, **CLIENTS),
    "FedAvgM": lambda m: classic.FedAvgM(server_momentum=0.9, initial_parameters=first(m), **CLIENTS),
    "FedAdam": lambda m: classic.FedAdam(initial_parameters=first(m), **CLIENTS),
    "FedAdagrad": lambda m: classic.FedAdagrad(initial_parameters=first(m), **CLIENTS),
    "FedYogi": lambda m: classic.FedYogi(initial_parameters=first(m), **CLIENTS),
    "FedOpt": lambda m: classic.FedOpt(initial_parameters=first(m), **CLIENTS),
    "QFedAvg": lambda m: classic.QFedAvg(evaluate_fn=lambda *_: (0.7, {}), **CLIENTS),
    "FedMedian": lambda m: classic.FedMedian(**CLIENTS),
    "FedTrimmedAvg": lambda m: classic.FedTrimmedAvg(**CLIENTS),
    "Krum": lambda m: classic.Krum(num_malicious_clients=1, **CLIENTS),
    "MultiKrum": lambda m: classic.Krum(num_malicious_clients=1, num_clients_to_keep=4, **CLIENTS),
    "Bulyan": lambda m: classic.Bulyan(num_malicious_clients=1, to_keep=0, **CLIENTS),
    "FaultTolerantFedAvg": lambda m: classic.FaultTolerantFedAvg(**CLIENTS),
    "fixed DP": lambda m: classic.DifferentialPrivacyServerSideFixedClipping(
        classic.FedAvg(**CLIENTS), clipping_norm=1.0, **DP
    ),
    "adaptive DP": lambda m: classic.DifferentialPrivacyServerSideAdaptiveClipping(
        classic.FedAvg(**CLIENTS), **DP
    ),
    "fixed DP on the client": lambda m: classic.DifferentialPrivacyClientSideFixedClipping(
        classic.FedAvg(**CLIENTS), clipping_norm=1.0, **DP
    ),
    "adaptive DP on the client": lambda m: classic.DifferentialPrivacyClientSideAdaptiveClipping(
        classic.FedAvg(**CLIENTS), **DP
    ),
    "DPFedAvgFixed": lambda m: classic.DPFedAvgFixed(
        classic.FedAvg(**CLIENTS), num_sampled_clients=K, clip_norm=1.0, noise_multiplier=0.01
    ),
    "DPFedAvgAdaptive": lambda m: classic.DPFedAvgAdaptive(
        classic.FedAvg(**CLIENTS), num_sampled_clients=K, noise_multiplier=0.01
    ),
    "MelFedAvg": lambda m: flwr_mel.server.MelFedAvg(**CLIENTS),
}
STRATEGIES = [("message", name) for name in MESSAGE] + [("classic", name) for name in CLASSIC]


def train(api, name, animal, *, wrapped):
    inner = MESSAGE[name]() if api == "message" else CLASSIC[name](animal.model)

    def client(k, cycle, arrays):
        new, metrics = animal.client(k, cycle, arrays)
        norm_bit = int(metrics["train_loss"] < 1) if api == "message" else metrics["train_loss"] < 1
        return new, {**metrics, "norm_bit": norm_bit, "dpfedavg_norm_bit": norm_bit}

    with np.errstate(all="ignore"):  # as Flower's own loop does not mind either
        return run(api, inner, animal.model, client, learners=K, wrapped=wrapped)


#: Where Flower's own strategy cannot compute with whole numbers or with flags, and says so.
RAISES = {
    "message": {
        "QFedAvg": ("BatchNorm CNN", "scikit-learn", "quantised", "pruned"),
        "fixed DP": ("quantised", "pruned"),
        "adaptive DP": ("scikit-learn", "quantised", "pruned"),
    },
    "classic": {
        **dict.fromkeys(("FedAdam", "FedAdagrad", "FedYogi", "QFedAvg"), ("pruned",)),
        **dict.fromkeys(("fixed DP", "adaptive DP"), ("scikit-learn", "quantised", "pruned")),
    },
}
#: Where it makes NaN or infinity of a finite model: with a mask of -inf, because it sums squares over all
#: arrays, and of halves and bytes, because it divides by tiny numbers.
BREAKS = {
    *((api, "QFedAvg", "transformer") for api in ("message", "classic")),
    *(("classic", name, "quantised") for name in ("FedAdam", "FedAdagrad", "FedYogi")),
}


def cases():
    """Every strategy with three of the models in turn, and where Flower's own fails; the others are slow."""
    for n, (api, name) in enumerate(STRATEGIES):
        for k, animal in enumerate(ZOO):
            fails = animal in RAISES[api].get(name, ()) or (api, name, animal) in BREAKS
            # {0, 1, 3} and its shifts are the lines of the Fano plane: all models meet, each as often.
            chosen = (k - n) % len(ZOO) in (0, 1, 3)
            slow = [] if fails or chosen else [pytest.mark.slow]
            yield pytest.param(api, name, animal, id=f"{api}, {name}, {animal}", marks=slow)


@pytest.mark.parametrize(("api", "theirs"), [("message", message), ("classic", classic)])
def test_no_strategy_of_flower_is_forgotten(api, theirs):
    """Each is in the zoo, or it is refused (`test_arguments`)."""
    made = [make() for make in MESSAGE.values()] if api == "message" else []
    if api == "classic":
        made = [make(ZOO["LSTM"].model) for make in CLASSIC.values()]
    refused = {name for where, name in NO_ARRAYS if where == api}
    names = {type(strategy).__name__ for strategy in made} | refused
    assert set(theirs.__all__) - {"Result", "Strategy"} <= names


@pytest.mark.parametrize(("api", "name", "animal"), list(cases()))
def test_wrapped_trains_as_plain_does(api, name, animal):
    start = ZOO[animal].model
    if animal in RAISES[api].get(name, ()):
        for wrapped in (False, True):
            with pytest.raises(TypeError, match=r"Cannot cast|boolean subtract"):
                train(api, name, ZOO[animal], wrapped=wrapped)
        return
    plain = train(api, name, ZOO[animal], wrapped=False)
    wrapped = train(api, name, ZOO[animal], wrapped=True)
    rows = [row for record in wrapped.strategy.records for row in record.learners]
    assert len(rows) == 3 * K
    if (api, name, animal) in BREAKS:
        finite = {key: np.isfinite(array) for key, array in start.items()}
        assert not all(np.isfinite(a)[finite[key]].all() for key, a in plain.arrays().items())
        assert all(np.isfinite(a)[finite[key]].all() for key, a in wrapped.arrays().items())
        assert any("made has values that are not finite" in row.reason for row in rows)
        return
    assert {(row.outcome, row.reason) for row in rows} == {(Outcome.USED, "")}
    same, moved = same_bits(wrapped.arrays(), plain.arrays()), not same_bits(wrapped.arrays(), start)
    assert (same, moved) == (True, True)
