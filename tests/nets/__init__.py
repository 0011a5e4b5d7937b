"""Safety nets: results that a change of the code must not change by accident.

1. `test_golden_allocations`: epochs and samples of 144 problems from the paper's grid, all four schemes.
2. `test_three_cycles`: three cycles of the simulation in both APIs, federated and parallelized.
3. Example diffs on Flower's engine: `tests/examples` applies every diff and runs the wrapped projects.
4. Kill and resume: `tests/checkpoint` in process and on Flower's engine, in both APIs;
   `tests/deployment` with a SuperLink that is killed.

A change of behaviour on purpose updates the stored results in the same commit and states the reason:
``python -m tests.nets.test_golden_allocations`` and ``FLWR_MEL_UPDATE_NETS=1 pytest tests/nets`` write them.
"""
