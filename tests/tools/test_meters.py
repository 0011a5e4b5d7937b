"""Meters: which is chosen, and what their readings become."""

import pytest

from flwr_mel.tools.meters import MeterName, choose_meter, energy_costs
from flwr_mel.tools.profiling import ComputeCosts, Run


def costs(c2=1e-3, c1=0.0, c0=0.0, joules=lambda e, d: None):
    points = [(1, 100), (1, 400), (4, 100), (2, 200), (4, 400)] * 2
    runs = [Run(e, d, c2 * e * d + c1 * d + c0, joules(e, d)) for e, d in points]
    return ComputeCosts(c2, c1, c0, 0.01, 400, 4, tuple(runs))


def test_meters_come_in_order(no_zeus):
    meter, reasons = choose_meter(watts=5)
    assert meter.name == "declared"
    assert len(reasons) == 1
    assert "flwr-mel[energy]" in reasons[0]
    meter, reasons = choose_meter()
    assert meter.name == "none"
    assert [reason.split(":")[0] for reason in reasons] == ["rapl", "declared"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"only": MeterName.RAPL}, "meter must be one that works here, got 'rapl'. rapl: zeus cannot"),
        ({"only": MeterName.DECLARED}, "no watts were declared"),
        ({"watts": 0}, "watts must be a finite number > 0"),
    ],
)
def test_meters_that_do_not_work(no_zeus, settings, message):
    with pytest.raises(ValueError, match=message):
        choose_meter(**settings)


def test_declared_watts_times_seconds(no_zeus):
    got, detail = energy_costs(choose_meter(watts=5)[0], costs(2e-3, 1e-3, 0.5))
    assert got == pytest.approx((1e-2, 5e-3, 2.5))
    assert detail == "stated, not measured, 5 W while training"
    assert energy_costs(choose_meter()[0], costs())[0] == (0, 0, 0)


@pytest.fixture
def powercap(tmp_path, monkeypatch):
    """Zeus itself on a directory like the kernel's, with a counter that we move."""
    rapl = pytest.importorskip("zeus.device.cpu.rapl")
    import zeus.device.cpu

    zone = tmp_path / "intel-rapl" / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "energy_uj").write_text("5000000\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    monkeypatch.setattr(rapl, "RAPL_DIR", str(zone.parent))
    monkeypatch.setattr(zeus.device.cpu, "_cpus", None, raising=False)
    rapl.rapl_is_available.cache_clear()
    yield zone / "energy_uj"
    rapl.rapl_is_available.cache_clear()


def test_the_processors_counters_through_zeus(powercap):
    meter, reasons = choose_meter(watts=5)
    assert (meter.name, reasons) == ("rapl", [])
    assert "1 CPU package" in meter.detail
    before = meter.counter_j()
    powercap.write_text("17000000\n")
    assert meter.counter_j() - before == pytest.approx(12.0)
    got, _ = energy_costs(meter, costs(joules=lambda e, d: 3e-3 * e * d + 2.0))
    assert got == pytest.approx((3e-3, 0.0, 2.0), abs=1e-9)
    with pytest.raises(ValueError, match=r"the energy by rapl must be above 0, got '0 J in.*Raise budget_s"):
        energy_costs(meter, costs(joules=lambda e, d: 0.0))
