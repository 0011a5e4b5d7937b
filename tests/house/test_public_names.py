"""What the first version offered still imports, from where it was."""

import importlib

import pytest

NAMES = {
    "flwr_mel": "AllocationProblem Channel Coefficients Device Handout Infeasible Learning Plan Reason "
    "Recommendation Scheme Solution Status Workload allocate fastest greenest paper_fleet recommend scheme",
    "flwr_mel.allocation": "AllocationProblem BrokenAllocation Diagnosis Handout Infeasible Proposal Reason "
    "Solution Solver Status allocate",
    "flwr_mel.solvers": "EqualBatches Exact SuggestImprove",
    "flwr_mel.devices": "Channel Device Measured",
    "flwr_mel.fleets": "Fleet FleetError parse_fleet read_fleet write_fleet write_fleet_csv",
    "flwr_mel.paper": "PaperFleet least_batch paper_fleet",
    "flwr_mel.costs": "Coefficients Workload",
    "flwr_mel.learning": "Estimate Learning LogFilter Observation Of",
    "flwr_mel.orchestrator": "Capability CyclePlan Mode OnInfeasible Orchestrator RefusedUpdate Settings "
    "Stopped Stopping Task brief check_update check_weight odd_metrics weighted_average",
    "flwr_mel.records": "Callback CycleRecord JsonlWriter LearnerRecord Outcome TensorBoardWriter read_jsonl",
    "flwr_mel.report": "Run load_run render write_report",
    "flwr_mel.server": "MelFedAvg MelStrategy Stopping",
    "flwr_mel.serverapp": "MelFedAvg MelResult MelStrategy Stopping",
    "flwr_mel.clientapp": "Assignment MelMod describe mel_mod",
    "flwr_mel.checkpoint": "Checkpoint Checkpoints Refused",
    "flwr_mel.profiling": "ComputeCosts EnergyCosts LinkRate LinkServer Meter Profile Run choose_meter "
    "energy_costs make_profile measure_compute measure_link read_profile write_profile",
}


@pytest.mark.parametrize("module", NAMES)
def test_public_names_of_the_first_version_import(module):
    place = importlib.import_module(module)
    missing = [name for name in NAMES[module].split() if not hasattr(place, name)]
    assert not missing
