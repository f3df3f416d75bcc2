"""What a run needs of a Ray cluster; `test_launcher.py` runs on real clusters."""

import pytest

from callboard.agents.impala import Impala
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.ray.ray_run import bundles_of
from callboard.launch.program import make_program
from callboard.launch.program_nodes import nodes_of
from callboard.launch.run_directory.layout import RunDirectory


def bundles(cpus=None, has_gpus=False, gpus=None, **settings):
    """The resources of every node, by name."""
    experiment = Experiment(agent=Impala(), env="CartPole-v1", **settings)
    program = make_program(Run(experiment, experiment.acting_layout(), RunDirectory("run")))
    names = [node.name for _, node in nodes_of(program)]
    return dict(zip(names, bundles_of(program, experiment, cpus or {}, gpus or {}, has_gpus), strict=True))


def test_every_node_has_a_cpu_and_the_coordinator_some_memory():
    found = bundles(actors=3)
    coordinator = found.pop("coordinator/0")
    assert coordinator == {"memory": 2**20}
    assert found == dict.fromkeys(
        ["replay/0", "learner/0", "actor/0", "actor/1", "actor/2", "evaluator/0"], {"CPU": 1.0}
    )


def test_cpus_are_set_by_kind_of_node():
    found = bundles({"actor": 0.5, "learner": 4.0, "replay": 0.0, "coordinator": 1.0})
    assert found["actor/0"] == found["actor/1"] == {"CPU": 0.5}
    assert found["learner/0"] == {"CPU": 4.0} and found["coordinator/0"] == {"CPU": 1.0}
    assert found["replay/0"] == {"memory": 2**20}


@pytest.mark.parametrize(
    "devices, has_gpus, gpus",
    [(1, False, 0), (1, True, 1), (4, True, 4), (4, False, 4), ("CPU:0,CPU:1", True, 0), ("GPU:0,GPU:1", True, 2)],
)
def test_a_learner_has_its_gpus(devices, has_gpus, gpus):
    found = bundles(has_gpus=has_gpus, learner_devices=devices)
    assert found["learner/0"].get("GPU", 0) == gpus
    assert all("GPU" not in bundle for name, bundle in found.items() if name != "learner/0")


@pytest.mark.parametrize("has_gpus", [True, False])
def test_inference_nodes_have_a_gpu_where_there_are_any(has_gpus):
    found = bundles(has_gpus=has_gpus, inference="central", inference_nodes=2)
    assert [found[f"inference/{rank}"].get("GPU", 0) for rank in range(2)] == [float(has_gpus)] * 2
    assert "GPU" not in found["actor/0"]


@pytest.mark.parametrize("has_gpus", [True, False])
def test_learners_and_actors_share_gpus_where_that_is_set(has_gpus):
    found = bundles(gpus={"learner": 0.5, "actor": 0.25, "evaluator": 0.0}, has_gpus=has_gpus, actors=2)
    assert [found[name].get("GPU", 0) for name in ("learner/0", "actor/0", "actor/1", "evaluator/0")] == [
        0.5,
        0.25,
        0.25,
        0,
    ]
    assert "GPU" not in found["replay/0"]
