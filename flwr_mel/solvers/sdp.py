"""The suggest step: the paper's semidefinite programme (Eq_10_theoremSDP), made well posed.

The relaxed synchronous problem (Eq_13_RelaxedProblem) is quadratic in x = (tau, d_1, ..., d_K) only
through the products tau d_k. As printed, the matrix F2 of its Lagrangian (eq_func_quad) therefore has a
zero diagonal: semidefiniteness forces all lambda_k and gamma_k to 0, and then no omega >= 0 cancels the
objective. The dual has no solution, its primal is unbounded. Three kinds of constraints that every
solution satisfies anyway repair it:

* (tau - tau_lo)(tau - tau_hi) <= 0 and (d_k - d_lo)(d_k - d_hi,k) <= 0 put a positive diagonal into F2;
* sum_k tau d_k = d tau, the batch constraint times tau, ties the products together.

We solve the primal side of the same SDP: maximise tau over the lifted matrix X ~ (1, x)(1, x)', X >= 0.
No constraint touches a product d_i d_j, so the sparsity pattern is chordal with the cliques
{1, tau, d_k}, and a partial matrix on such a pattern has a semidefinite completion if and only if
every clique's block is semidefinite (Grone, Johnson, Sa, Wolkowicz 1984). The one (K+2) x (K+2) block
hence becomes K blocks of 3 x 3 that share their (1, tau) corner: same value, linear in K.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flwr_mel._validate import FloatArray

if TYPE_CHECKING:
    from flwr_mel.allocation.capacity import Capacities

#: Added to the bound, as a share of tau_hi, for what Clarabel may be off: it stops at relative residuals
#: of 1e-8, or, where it reports an inaccurate optimum, at about 1e-4.
MARGIN = {"optimal": 1e-5, "optimal_inaccurate": 1e-2}
_OPTIONS: dict[str, Any] = {}


@dataclass(frozen=True, slots=True, eq=False)
class Suggestion:
    """A candidate for the improve step.

    Parameters
    ----------
    samples : float array
        The d_k; they may break the limits a little, as a relaxation's do.
    bound : float
        Upper bound on the relaxed synchronous optimum.
    status : str
        How the solver ended.
    """

    samples: FloatArray
    bound: float
    status: str


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Ranges that hold every solution of the relaxed synchronous problem with tau >= 1."""

    tau_lo: float
    tau_hi: float
    d_lo: FloatArray
    d_hi: FloatArray

    @classmethod
    def of(cls, capacities: Capacities, demand: int) -> Boxes:
        """Derive the ranges in closed form.

        tau_hi is the smaller of what the slowest learner can do on the smallest batch, and of
        sum_k min((T - c0)/c2, (E_k - g0)/g2) / d: no learner can process
        more samples times epochs than that, and their sum is d tau.

        Parameters
        ----------
        capacities : Capacities
            Of learners that can all do one epoch.
        demand : int
            d.
        """
        c, least = capacities.coefficients, float(capacities.least)
        with np.errstate(divide="ignore", invalid="ignore"):
            by_time = (capacities.cycle_time_s - c.c0) / c.c2
            by_energy = (capacities.energy_limit_j - c.g0) / c.g2
            alone = np.fmin(by_time / least - c.c1 / c.c2, by_energy / least - c.g1 / c.g2)
        work = np.fmin(by_time, by_energy).sum() / demand
        # Never below 1, where rounding could bring it.
        tau_hi = max(1.0, min(float(alone.min()), float(work), float(capacities.max_epochs)))
        d_hi = np.minimum(capacities.relaxed(1.0), demand - (len(capacities) - 1) * least)
        d_hi = np.maximum(d_hi, least)
        # A box without interior would leave an interior-point method no room: widen it downwards.
        return cls(min(1.0, 0.9 * tau_hi), tau_hi, np.minimum(least, 0.9 * d_hi), d_hi)


def suggest_sdp(capacities: Capacities, demand: int) -> Suggestion:
    """Solve the SDP and take the candidate from its primal side.

    The paper recovers it from the multipliers (Eq_11_Candidate), for which F2 must be inverted; the
    last column of the lifted matrix is the same point without the ill-conditioned inverse.

    Parameters
    ----------
    capacities : Capacities
        Of learners that can all do one epoch.
    demand : int
        d.
    """
    cp = _cvxpy()
    box = Boxes.of(capacities, demand)
    tau, share, constraints = lifted(cp, capacities, demand, box)
    problem = cp.Problem(cp.Maximize(tau), constraints)
    status = _solve(cp, problem)
    if tau.value is None or status not in MARGIN:
        raise RuntimeError(f"the SDP ended with '{status}'; SuggestImprove(suggest='bisection') needs none")
    bound = box.tau_hi * (float(tau.value) + MARGIN[status])
    samples: FloatArray = np.clip(share.value * box.d_hi, box.d_lo, box.d_hi)
    return Suggestion(samples, bound, status)


def lifted(cp: Any, capacities: Capacities, demand: int, box: Boxes) -> tuple[Any, Any, list[Any]]:
    """Write the SDP with 3 x 3 blocks, in tau / tau_hi and d_k / d_hi,k for conditioning.

    Parameters
    ----------
    cp : module
        cvxpy.
    capacities : Capacities
        Of learners that can all do one epoch.
    demand : int
        d.
    box : Boxes
        Ranges of the variables.

    Returns
    -------
    tau, share : cvxpy variables
        tau / tau_hi, the objective, and d_k / d_hi,k.
    constraints : list
        Everything else.
    """
    learners = len(capacities)
    tau, tau_tau = cp.Variable(), cp.Variable()
    share, product, square = (cp.Variable(learners) for _ in range(3))
    tau_lo, d_lo, weight = box.tau_lo / box.tau_hi, box.d_lo / box.d_hi, box.d_hi / demand
    constraints = [
        cp.multiply(two, product) + cp.multiply(one, share) <= 1 for two, one in _limits(capacities, box)
    ]
    constraints += [
        weight @ share == 1,
        weight @ product == tau,
        tau_tau <= (1 + tau_lo) * tau - tau_lo,
        square <= cp.multiply(1 + d_lo, share) - d_lo,
    ]
    ones = np.ones(learners)
    rows = ([ones, tau * ones, share], [tau * ones, tau_tau * ones, product], [share, product, square])
    blocks = cp.stack([cp.stack(row, axis=1) for row in rows], axis=1)
    return tau, share, [*constraints, blocks >> 0]


def _limits(capacities: Capacities, box: Boxes) -> list[tuple[FloatArray, FloatArray]]:
    """Scale the time and the energy constraints to a right-hand side of 1."""
    c = capacities.coefficients
    limits = []
    for two, one, left in (
        (c.c2, c.c1, capacities.cycle_time_s - c.c0),
        (c.g2, c.g1, capacities.energy_limit_j - c.g0),
    ):
        # No energy left is possible only where none is needed: 0 <= 1.
        scale = np.divide(box.d_hi, left, out=np.zeros(len(left)), where=left > 0)
        limits.append((two * box.tau_hi * scale, one * scale))
    return limits


def _solve(cp: Any, problem: Any) -> str:
    """Run Clarabel; return how it ended. A first-order solver's inaccurate optimum has no known margin."""
    try:
        with warnings.catch_warnings():
            # An inaccurate optimum is reported by its status, and answered by a wider margin.
            warnings.simplefilter("ignore")
            # Stacked semidefinite blocks are compiled by this backend only.
            problem.solve(solver=cp.CLARABEL, canon_backend=cp.SCIPY_CANON_BACKEND, **_OPTIONS)
    except cp.SolverError as error:
        return str(error)
    return str(problem.status)


def _cvxpy() -> Any:
    try:
        import cvxpy  # noqa: PLC0415 - the core must not need it
    except ImportError as error:
        raise ImportError(
            "the paper's SDP needs cvxpy; in a clone of flwr_mel: pip install '.[paper]'. Or use "
            "SuggestImprove(suggest='bisection')"
        ) from error
    return cvxpy
