"""An experiment is the sum of its parts, and its users see one flat list of settings."""

import dataclasses
import pickle

import pytest

from callboard.errors import CallboardError
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.parts.output_part import CheckpointsPart
from callboard.launch.experiments.parts.placement_part import EvaluationPart, LimitsPart
from callboard.settings.nested_settings import declared_fields

ORDER = """
agent env env_options env_wrappers env_processes env_previous_inputs check_env env_python policies mapping
evaluation_mapping train agent_groups agent_index agent_padding agent_state seed actors envs_per_actor inference
inference_nodes replay_shards learners learner_devices learner_threads gpu_memory tf32 jit_compile min_actors evaluator
evaluate_every evaluation_episodes evaluation_envs evaluation_mode video_every training_video_every render
evaluation_timeout max_steps max_learner_steps max_seconds stop_return stop_when patience episode_metrics callbacks
curriculum evaluation_task init_from init_parts freeze dataset record_episodes record_infos record_limit
publish_every_steps checkpoint_every checkpoint_every_steps keep_checkpoints checkpoint_replay replay_checkpoint_every
node_timeout log_level listen loggers prometheus_port prometheus_host policy_server spaces policy_server_silence
policy_server_token_file policy_server_certificate policy_server_key run_dir
""".split()
PARTS = [kind for kind in Experiment.__mro__ if kind.__name__.endswith("Part")]


def test_arguments_keep_their_order():
    assert [field.name for field in dataclasses.fields(Experiment)] == ORDER
    experiment = Experiment("impala", "CartPole-v1", {"render_mode": None}, (), False, True, False)
    assert list(vars(experiment)) == ORDER
    assert (experiment.env_previous_inputs, experiment.check_env) == (True, False)


def test_each_setting_belongs_to_one_part_that_documents_it():
    own = [name for kind in PARTS for name in _own_fields(kind)]
    assert sorted(own) == sorted(ORDER)
    assert all(field.text for field in declared_fields(Experiment).values())
    for kind in PARTS:
        assert all(declared_fields(kind)[name].text for name in _own_fields(kind)), kind


def _own_fields(kind):
    return vars(kind).get("__annotations__", {})


def test_a_part_stands_alone_and_an_experiment_stands_for_it():
    assert LimitsPart(max_steps=10).patience is None
    assert EvaluationPart(evaluation_episodes=30).evaluation_batch() == 15
    experiment = Experiment("impala", "CartPole-v1", keep_checkpoints=4)
    assert isinstance(experiment, CheckpointsPart)
    with pytest.raises(dataclasses.FrozenInstanceError):
        experiment.keep_checkpoints = 5


def test_an_experiment_is_pickled_and_replaced_as_a_whole():
    experiment = Experiment("ppo", "CartPole-v1", actors=3, stop_when="learner/loss >= 1", run_dir="runs/one")
    assert pickle.loads(pickle.dumps(experiment)) == experiment
    other = dataclasses.replace(experiment, seed=7, max_steps=5)
    assert (other.seed, other.max_steps, other.actors) == (7, 5, 3)
    assert dataclasses.replace(other, seed=experiment.seed, max_steps=experiment.max_steps) == experiment


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_step": 3}, "unknown argument 'max_step'; did you mean 'max_steps'"),
        ({"keep_checkpoint": 3}, "did you mean 'keep_checkpoints'"),
        ({"learning_rate": 0.1}, "others have agent.optimizer.learning_rate"),
        ({"actors": "many"}, "actors"),
    ],
)
def test_messages_name_settings_of_all_parts(given, message):
    with pytest.raises(CallboardError, match=message):
        Experiment("impala", env="CartPole-v1", **given)
