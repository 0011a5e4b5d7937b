"""Clients of `start_client`, which have no mods."""

import numpy as np
import pytest
from flwr.common import (
    Code,
    EvaluateIns,
    FitIns,
    GetParametersIns,
    GetPropertiesIns,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)

from flwr_mel import Device, wire
from flwr_mel.clientapp import Assignment, MelClient, MelMod
from tests.clientapp.tools import TASK, Learner

MODEL = ndarrays_to_parameters([np.arange(3.0)])


class Whole(Learner):
    def get_properties(self, config):
        return {"own": 1}

    def get_parameters(self, config):
        return [np.arange(2.0)]

    def evaluate(self, parameters, config):
        return 0.25, 5, {"accuracy": 0.5}


def client(work=lambda config: None, **kwargs):
    return MelClient(Whole(work), **kwargs)


def fit(work, words, **config):
    return client(work).fit(FitIns(MODEL, {**config, **words}))


def test_the_probe_is_answered():
    mel = client(mod=MelMod(Device(1e9, 1e7, 0.1)), name="pi-4")
    answer = mel.get_properties(GetPropertiesIns({wire.PROBE: 1}))
    assert answer.status.code == Code.OK
    assert (answer.properties[wire.LEARNER], answer.properties[wire.MODDED]) == ("pi-4", 1)
    assert answer.properties[wire.CPU_HZ] == 1e9


def test_the_epochs_reach_the_client_and_the_report_the_server():
    seen = []

    def work(config):
        seen.append((config["local_epochs"], len(Assignment.from_config(config).choose(50))))

    result = fit(work, TASK, local_epochs=2)
    assert seen == [(7, 20)]
    assert (result.metrics[wire.SAMPLES_USED], result.metrics[wire.SAMPLES_HELD]) == (20, 50)
    assert (result.metrics["loss"], result.num_examples) == (0.5, 12)
    assert (result.metrics[wire.EPOCHS_READ], result.metrics[wire.OWN_EPOCHS]) == (1, 2)
    assert result.metrics[wire.TRAIN_SECONDS] >= 0
    for ignore in (lambda config: None, lambda config: Assignment.from_config(config).choose(50)):
        assert fit(ignore, TASK, local_epochs=2).metrics[wire.EPOCHS_READ] == 0
    read = fit(lambda config: Assignment.from_config(config).epochs, TASK, local_epochs=2)
    assert read.metrics[wire.EPOCHS_READ] == 1


def test_everything_else_is_the_projects_own():
    mel = client()
    assert mel.get_properties(GetPropertiesIns({})).properties == {"own": 1}
    (array,) = parameters_to_ndarrays(mel.get_parameters(GetParametersIns({})).parameters)
    np.testing.assert_array_equal(array, np.arange(2.0))
    assert mel.evaluate(EvaluateIns(MODEL, {})).metrics == {"accuracy": 0.5}
    assert mel.fit(FitIns(MODEL, {})).metrics == {"loss": 0.5}


def test_an_exception_of_the_client_stays_its_own():
    with pytest.raises(ZeroDivisionError):
        fit(lambda config: 1 / 0, TASK)


def test_an_error_of_the_mod_does_not_lose_the_reply(caplog):
    mod = MelMod()
    mod.report = lambda *_: 1 / 0
    result = client(mod=mod).fit(FitIns(MODEL, dict(TASK)))
    assert result.metrics == {"loss": 0.5}
    assert "no report is attached" in caplog.text
