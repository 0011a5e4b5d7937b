"""What people are told beside the numbers of a profile."""

from dataclasses import replace

from flwr_mel.cli.profile.printing import Surroundings, remarks
from flwr_mel.profiling import LinkRate
from tests.profiling.tools import costs

RATE = LinkRate(1e6, 1e6, 0.0, 0.0, 0.01, 1000)


def told(compute=None, meter="declared", energy_limit=None, rate=None, model_bytes=0, around=None):
    return list(
        remarks(compute or costs(), 400, meter, ["no counters"], energy_limit, rate, model_bytes, around)
    )


def test_nothing_is_said_where_nothing_is_odd():
    assert told() == told(rate=RATE, model_bytes=1000) == []


def test_each_oddity_is_said():
    (small,) = told(replace(costs(), samples=100))
    assert "400 samples do not fit into --budget: measured with up to 100" in small
    (noisy,) = told(replace(costs(), error=0.25))
    assert "runs differ from the fit by 25%" in noisy
    (dark,) = told(meter="none", energy_limit=3.0)
    assert dark.endswith("--energy-limit has no effect then. no counters")
    (light,) = told(rate=RATE)
    assert "without --model-bytes" in light


def test_load_and_threads_are_noticed():
    assert told(around=Surroundings(0.3, 2, "1")) == told(around=Surroundings(0.9, 1, None)) == []
    (busy,) = told(around=Surroundings(5.25, 2, "1"))
    assert "load 5.2 on 2 cores" in busy
    for threads in (None, "4"):
        (many,) = told(around=Surroundings(0.3, 4, threads))
        assert many.endswith("Measure with OMP_NUM_THREADS=1")
    now = Surroundings.now()
    assert now.cores >= 1
    assert now.load >= 0
