"""The preparation of a run: an experiment must be one that can be resumed."""

import dataclasses

import pytest
import tensorflow as tf
from untrained_runs import write_run

from callboard.agents.impala import Impala
from callboard.agents.ppo import Ppo
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.launchers.launcher import Launcher
from callboard.launch.launchers.screen.display import LineMonitor
from callboard.launch.nodes.coordination.counters import Counters
from callboard.launch.run import run
from callboard.launch.runs.prepared_run import PreparedRun, check_can_be_resumed, warn_of_lost_checkpoints


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


def test_a_policy_that_has_lost_its_checkpoints_is_named(tmp_path, caplog):
    experiment, directory = write_run(tmp_path / "run", best=False)
    checked = Run(experiment, experiment.layout(), directory)
    for learner_steps, lines in ((0, []), (1200, ["1,200 learner steps were made: learning begins anew"])):
        warn_of_lost_checkpoints(checked, Counters({"learner/0#a": {"learner_steps": learner_steps}}))
        assert len(caplog.messages) == len(lines) and all(line in caplog.text for line in lines)


@dataclasses.dataclass(frozen=True)
class Forgetful(Launcher):
    name = "forgetful"

    def run(self, program, run, monitor):
        pass


def test_a_launcher_that_returns_no_outcome_is_refused(tmp_path):
    experiment, directory = write_run(tmp_path / "run", best=False)
    checked = Run(experiment, experiment.layout(), directory)
    with pytest.raises(CallboardError, match="run of launcher forgetful returned None; return an Outcome"):
        PreparedRun(checked, Forgetful(), None).launch(LineMonitor(None))


def no_network(*arguments, **options):
    return lambda features: features


@pytest.mark.parametrize("launcher", ["inline", "processes"])
@pytest.mark.parametrize("part", ["torso", "core"])
def test_parts_of_a_network_that_are_none_are_refused_before_anything_is_written(tmp_path, part, launcher):
    path = tmp_path / "run"
    experiment = Experiment(Ppo(network={part: f"{__name__}:no_network"}), "CartPole-v1", run_dir=path)
    with pytest.raises(CallboardError, match=f"{part} '{__name__}:no_network' must return a"):
        run(experiment, launcher)
    assert not path.exists()


def wide_torso(spec):
    return tf.keras.layers.Dense(4, dtype="float64")


def eager_torso(spec):
    return tf.keras.layers.Lambda(lambda x: tf.constant(x.numpy()))


@pytest.mark.parametrize(
    "torso, kind, message",
    [
        (wide_torso, CallboardError, "weights .*kernel.* are float64: learners take those of float32 alone"),
        (eager_torso, AttributeError, "numpy"),
    ],
)
def test_a_torso_that_only_fails_once_it_learns_or_is_compiled_is_refused_before(torso, kind, message, tmp_path):
    experiment = Experiment(Impala(network={"torso": torso}), "CartPole-v1", run_dir=tmp_path / "run")
    with pytest.raises(kind, match=message):
        run(experiment, "inline")
    assert not (tmp_path / "run").exists()
