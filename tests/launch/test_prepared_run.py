"""The preparation of a run: an experiment must be one that can be resumed."""

import dataclasses

import pytest

from callboard.agents.impala import Impala
from callboard.errors import CallboardError
from callboard.launch.experiment import Experiment
from callboard.launch.prepared_run import check_can_be_resumed


@dataclasses.dataclass(frozen=True)
class OwnImpala(Impala):
    pass


def test_an_agent_is_one_that_can_be_imported_by_its_name():
    check_can_be_resumed(Experiment(Impala(), "CartPole-v1"))
    check_can_be_resumed(Experiment(OwnImpala(), "CartPole-v1"))

    @dataclasses.dataclass(frozen=True)
    class Inner(Impala):
        pass

    with pytest.raises(CallboardError, match="cannot be imported by that name; define its class at a module's top"):
        check_can_be_resumed(Experiment(Inner(), "CartPole-v1"))


def test_options_are_those_that_a_file_can_hold():
    with pytest.raises(CallboardError, match="cannot be written to a file"):
        check_can_be_resumed(Experiment(Impala(), "CartPole-v1", env_options={"render_mode": object()}))
