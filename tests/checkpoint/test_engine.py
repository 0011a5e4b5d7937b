"""A simulation on Flower's engine whose process is killed."""

import numpy as np
import pytest

from flwr_mel.checkpoint.files import read
from tests.checkpoint.project import CLIENT_APPS, CLIENTS, ROUNDS, same


def test_a_killed_simulation_ends_where_it_would_have(engine, tmp_path):
    def play(name, kill_in=0):
        (tmp_path / name).mkdir(exist_ok=True)
        lab = {"LAB_OUT": tmp_path / name, "LAB_KILL_IN": kill_in}
        return engine.play("tests.checkpoint.engine_app", tmp_path, nodes=CLIENTS, **lab)

    def final(name, api):
        with np.load(tmp_path / name / f"{api}.npz") as model:
            return [model[key] for key in model.files]

    def last(name, api):
        return max((tmp_path / name / api).glob("*.npz"))

    play("whole")
    with pytest.raises(AssertionError, match="the engine ended"):
        play("killed", kill_in=3)
    for api in CLIENT_APPS:
        assert last("killed", api).name == "round-00000002.npz"
    # The new engine draws other node ids.
    assert play("killed").count("continues after round 2") == len(CLIENT_APPS)
    for api in CLIENT_APPS:
        assert same(final("killed", api), final("whole", api))
        states = [read(last(name, api))["state"] for name in ("whole", "killed")]
        assert [state["cycle"] for state in states] == [ROUNDS, ROUNDS]
        learners, others = (state["learners"] for state in states)
        assert set(learners) == {str(k) for k in range(CLIENTS)}
        for key, learner in learners.items():
            assert others[key]["estimate"] == learner["estimate"]
