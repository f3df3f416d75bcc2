"""The program graph, and nodes that a user adds to it."""

import pathlib
import re

import launchpad as lp
import pytest

from callboard.agents.apex import Apex
from callboard.agents.impala import Impala
from callboard.agents.sac import Sac
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.program import Graph, make_program
from callboard.launch.program_nodes import describe_graph, handle_of, nodes_of
from callboard.launch.run_directory.layout import RunDirectory
from callboard.settings.nested_settings import from_values

NODES = pathlib.Path(__file__).resolve().parents[2] / "launch" / "nodes"


class Own:
    def __init__(self, learner, coordinator):
        self.learner = learner


@pytest.fixture
def run(tmp_path):
    experiment = Experiment(agent=Impala(), env="CartPole-v1", actors=2)
    return Run(experiment, experiment.layout(), RunDirectory(tmp_path / "run"))


@pytest.fixture
def program(run):
    """The program of IMPALA with a node of the user's own."""
    program = make_program(run)
    handles = {name: handle_of(program, f"{name}/0") for name in ("learner", "coordinator")}
    program.add_node(lp.CourierNode(Own, **handles), "own")
    program.add_node(lp.PyNode(print), "printer")
    return program


def test_a_program_shows_its_groups_and_who_calls_whom(program):
    assert isinstance(program, lp.Program)
    assert describe_graph(program).splitlines() == [
        "coordinator x 1",
        "replay x 1  ->  coordinator",
        "learner x 1  ->  coordinator, replay",
        "actor x 2  ->  coordinator, learner, replay",
        "evaluator x 1  ->  coordinator, learner",
        "own x 1  ->  coordinator, learner",
        "printer x 1",
    ]
    assert [node.name for _, node in nodes_of(program)][-3:] == ["evaluator/0", "own/0", "printer/0"]


@pytest.mark.parametrize(
    "agent, addresses",
    [
        (Impala(), 1),
        (Apex(), 2),
        (from_values(Apex, {"replay.sampled_together": 1}), 1),
        (Sac(), 1),
    ],
)
def test_replay_has_an_address_more_where_windows_have_priorities(tmp_path, agent, addresses):
    experiment = Experiment(agent=agent, env="CartPole-v1")
    program = make_program(Run(experiment, experiment.layout(), RunDirectory(tmp_path / "run")))
    (replay,) = [node for label, node in nodes_of(program) if label == "replay"]
    assert len(replay.addresses) == addresses


def test_an_unknown_node_has_no_handle(program):
    with pytest.raises(CallboardError, match="unknown node 'lerner/0'; did you mean 'learner/0'"):
        handle_of(program, "lerner/0")


def test_a_kind_of_node_names_the_function_that_builds_it():
    building = [name for name in vars(Graph) if name.startswith("add_") and name != "add_coordinator"]
    assert len(building) == 8
    for name in building:
        named = re.findall(r"`(\w+)\.(prepare_\w+)`", getattr(Graph, name).__doc__)
        assert named, name
        for module, function in named:
            places = list(NODES.rglob(f"{module}.py"))
            assert [f"def {function}(" in path.read_text() for path in places] == [True], (module, function)
