"""Modules under their old names."""

import importlib
import importlib.util
import inspect
import pathlib
import pickle
import sys
import warnings

import pytest

from callboard.launch.experiments.experiment import Experiment
from callboard.runtime import moved_modules
from callboard.settings.named_objects import import_object

MOVED = dict(line.split() for line in moved_modules._MOVED.split("\n") if line)


NAMES = [
    line.split()
    for line in (pathlib.Path(__file__).parent / "names_of_0_2.txt").read_text().splitlines()
    if not line.startswith("#")
]
REMOVED = {
    "there are as many critics as a run asks for, no longer two": (
        "agents.learning.sac_composed:value_of_taken agents.losses.deterministic_policy:clipped_double_q_target "
        "agents.losses.discrete_soft_actor_critic:discrete_actor_loss "
        "agents.losses.discrete_soft_actor_critic:discrete_soft_target "
        "networks.actor_critics.actor_critic:TwinCritic networks.actor_critics.actor_critic:TwinHeads "
        "networks.actor_critics.actor_critic:TwinQ networks.actor_critics.composed_actor_critic:AdditiveTwinCritic "
        "networks.actor_critics.discrete_actor_critic:DiscreteTwinCritic"
    ),
    "methods of the devices of a learner, and of agents": (
        "launch.experiments.experiment_checks:check_learner_steps launch.nodes.devices:device_count "
        "launch.nodes.devices:device_names"
    ),
    "methods of the experiment and its policies": (
        "launch.experiments.recorded_sources:with_recorded_data "
        "launch.trained.trained_policy_sources:with_absolute_path launch.trained.warm_start:with_absolute_sources "
        "launch.tuning.tune_function:with_absolute_weights"
    ),
    "steps of one function, which does them itself now": (
        "environments.external.spaces_only:refuse_options environments.factory:check_observation "
        "environments.recorded.hdf5_episodes:make_file"
    ),
    "one function serves all trials": (
        "environments.checks.examination_process:main environments.checks.trial_process:main"
    ),
    "for annotations alone": ("launch.experiment:LogLevel launch.trained.video:Made networks.heads.heads:MakeNoisy"),
    "other classes do this now, with other methods": "launch.launchers.ray.parts:RemoteWeights",
}
"""Names that are gone without a successor, and why."""
REMOVED_MODULES = {"replay.prioritized_sequences": "sequences are sampled from items of whole batches now"}


@pytest.mark.slow("daily")
def test_all_modules_and_names_of_version_0_2_are_found_unless_they_were_removed():
    lost = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for module, *names in NAMES:
            try:
                found = importlib.import_module(f"callboard.{module}")
            except ModuleNotFoundError as error:
                if (error.name or "").startswith("callboard"):
                    lost.add(module)
            else:
                lost |= {f"{module}:{name}" for name in names if not hasattr(found, name)}
    assert len(NAMES) > 600
    assert lost == {*" ".join(REMOVED.values()).split(), *REMOVED_MODULES}


@pytest.mark.parametrize(
    "old, new",
    [
        ("launch.program:nodes_of", "launch.program_nodes:nodes_of"),
        ("launch.program:handle_of", "launch.program_nodes:handle_of"),
        ("environments.mixtures:Part", "environments.mixtures:MixturePart"),
        ("agents.agent:Watched", "agents.watched:Watched"),
    ],
)
def test_a_name_that_left_its_module_is_the_same_object_under_its_old_name(old, new):
    (module, name), (home, renamed) = old.split(":"), new.split(":")
    with pytest.warns(DeprecationWarning, match=f"callboard.{module}.{name} is now callboard.{home}.{renamed}") as seen:
        found = getattr(importlib.import_module(f"callboard.{module}"), name)
    assert found is getattr(importlib.import_module(f"callboard.{home}"), renamed)
    # The line that has to change.
    assert [warning.filename for warning in seen] == [__file__]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_names_that_left_their_module_are_found_by_statements_pickles_and_settings():
    from callboard.environments.adapters.gymnasium_vector_batch import GymnasiumVectorBatch
    from callboard.launch.program import nodes_of

    assert nodes_of.__module__ == "callboard.launch.program_nodes"
    assert pickle.loads(b"ccallboard.launch.program\nnodes_of\n.") is nodes_of
    old = "callboard.environments.gymnasium_adapter:GymnasiumVectorBatch"
    assert import_object("environment", old) is GymnasiumVectorBatch


def test_a_module_that_lost_names_is_otherwise_as_before():
    program = importlib.import_module("callboard.launch.program")
    with pytest.raises(AttributeError, match=r"module 'callboard.launch.program' has no attribute 'no_such'"):
        getattr(program, "no_such")  # noqa: B009
    assert inspect.getsource(program) == pathlib.Path(program.__file__).read_text()


@pytest.mark.slow("daily")
@pytest.mark.parametrize("old", MOVED)
def test_the_new_name_exists(old):
    assert importlib.util.find_spec(f"callboard.{MOVED[old]}")
    assert old not in MOVED.values()


@pytest.mark.parametrize("name", ["launch.settings", "launch.cli.command", "atomic_files", "launch.comparison"])
def test_a_module_is_the_same_under_its_old_name(name):
    package = max((old for old in MOVED if name == old or name.startswith(f"{old}.")), key=len)
    with pytest.warns(DeprecationWarning, match=f"callboard.{name} is now callboard."):
        sys.modules.pop(f"callboard.{name}", None)
        old = importlib.import_module(f"callboard.{name}")
    assert old is importlib.import_module(f"callboard.{MOVED[package]}{name.removeprefix(package)}")
    assert old.__spec__.name == old.__name__ != f"callboard.{name}"


def test_classes_of_old_pickles_are_found():
    data = b"ccallboard.launch.experiment\nExperiment\n."
    assert pickle.loads(data) is Experiment


def test_modules_that_never_were_are_not_found():
    for name in ("callboard.no_such", "callboard.launch.no_such", "callboard.launch.cli.no_such"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)
