"""What tests of agents share."""

import pytest

from callboard.agents.fast_function import eager_functions


@pytest.fixture
def eagerly():
    """Nothing is compiled, which takes longer than an update of small networks that is made once or twice."""
    with eager_functions():
        yield
