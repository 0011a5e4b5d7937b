"""Random histories of trainings: see `tests.cycle.histories` for what must hold in each."""

from hypothesis import given
from hypothesis import strategies as st

from tests.cycle.histories import Drawn, drawn, failures
from tests.search import examples


@st.composite
def histories(draw):
    return drawn(Drawn(draw))


@examples(60)
@given(histories())
def test_what_must_hold_holds_in_every_history(history):
    assert failures(history) == []
