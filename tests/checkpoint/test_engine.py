"""A simulation on Flower's engine whose process is killed."""

import numpy as np
import pytest

from flwr_mel.checkpoint.files import read
from tests.checkpoint.project import APIS, CLIENTS, ROUNDS, same


@APIS
def test_a_killed_simulation_ends_where_it_would_have(engine, tmp_path, api):
    def play(name, kill_in=0):
        (tmp_path / name).mkdir(exist_ok=True)
        lab = {"LAB_API": api, "LAB_OUT": tmp_path / name, "LAB_KILL_IN": kill_in}
        said = engine.play("tests.checkpoint.engine_app", tmp_path, nodes=CLIENTS, **lab)
        with np.load(tmp_path / name / "final.npz") as final:
            return said, [final[key] for key in final.files], read(last(name))

    def last(name):
        return max((tmp_path / name / "checkpoints").glob("*.npz"))

    _, final, checkpoint = play("whole")
    with pytest.raises(AssertionError, match="the engine ended"):
        play("killed", kill_in=3)
    assert last("killed").name == "round-00000002.npz"
    # The new engine draws other node ids.
    said, resumed, other = play("killed")
    assert "continues after round 2" in said
    assert same(resumed, final)
    assert checkpoint["state"]["cycle"] == other["state"]["cycle"] == ROUNDS
    assert set(checkpoint["state"]["learners"]) == {str(k) for k in range(CLIENTS)}
    for key, learner in checkpoint["state"]["learners"].items():
        assert other["state"]["learners"][key]["estimate"] == learner["estimate"]
