"""Curricula as settings: what is read from YAML, and what is refused."""

import pytest

from callboard.errors import CallboardError
from callboard.launch.experiments.curriculum import Stage, check_stages, depends_on_episodes
from callboard.launch.experiments.experiment import Experiment
from callboard.launch.experiments.run_checks import check_experiment, check_settings
from callboard.launch.experiments.settings import format_experiment, parse_experiment
from callboard.launch.experiments.yaml_files import parse_yaml

EASY, HARD = {"size": 1}, {"size": 9}


@pytest.mark.parametrize(
    "stages, says",
    [
        ([Stage(EASY, steps=5)], "stage 1 of the curriculum begins with the run: leave steps out"),
        (
            [Stage(EASY), Stage(HARD)],
            "stage 2 of the curriculum begins either at 'steps' or 'when' a condition holds, ",
        ),
        ([Stage(EASY), Stage(HARD, steps=5, when="a > 1")], "and has both: leave one out"),
        ([Stage(EASY), Stage(HARD, steps=5), Stage(EASY, steps=5)], "stage 3 of the curriculum begins at 5 steps"),
        ([Stage(EASY), Stage(HARD, when="success")], "curriculum: when 'success' is no condition"),
        ([Stage(EASY), Stage(HARD, steps=0)], "stage 2 of the curriculum: steps must be"),
        ([Stage({1, 2})], "stage 1 of the curriculum: a task must be plain data"),
        ([{"task": EASY}], "must be settings such as"),
    ],
)
def test_wrong_stages_are_refused(stages, says):
    with pytest.raises(CallboardError) as caught:
        check_stages(stages)
    assert says in str(caught.value)


def test_whether_episodes_have_to_be_watched():
    assert depends_on_episodes([Stage(), Stage(when="actor/episode_return > 3")])
    assert depends_on_episodes([Stage(), Stage(when="episode/success > 0.5")])
    assert depends_on_episodes([Stage(), Stage(when="agent/left/episode_return > 3")])
    assert depends_on_episodes([Stage(), Stage(when="red/score > 0.5")])
    assert not depends_on_episodes([Stage(), Stage(steps=9), Stage(when="evaluator/return > 3")])
    assert not depends_on_episodes([Stage(), Stage(when="evaluator/red/score > 0.5"), Stage(when="red/rating > 1100")])


RECIPE = """
agent: {name: impala}
env: own_callbacks:Walk
curriculum:
  - task: {length: 2}
  - {task: {length: 3}, when: episode/success >= 0.8, episodes: 50}
  - {steps: 9000}
episode_metrics: [success, "place:sum:histogram"]
callbacks: [own_callbacks:Silent, {name: "own_callbacks:Recorder", factor: 3.5}]
evaluation_task: {length: 4}
"""


def test_settings_survive_a_run_directory():
    experiment = parse_experiment(None, parse_yaml(RECIPE), [])
    in_python = Experiment(experiment.agent, experiment.env, curriculum=parse_yaml(RECIPE)["curriculum"])
    assert in_python.curriculum == experiment.curriculum
    assert experiment.curriculum == (
        Stage({"length": 2}),
        Stage({"length": 3}, when="episode/success >= 0.8", episodes=50),
        Stage(steps=9000),
    )
    assert experiment.watches_episodes
    again = parse_experiment(None, parse_yaml(format_experiment(experiment)), [])
    assert again == experiment
    check_experiment(experiment)


def test_options_of_the_command_line():
    options = ["--env", "own_callbacks:Walk", "--callbacks", "own_callbacks:Silent,own_callbacks:Silent"]
    options += ["--episode-metrics", "success,place:sum", "--evaluation-task", "{length: 3}"]
    experiment = parse_experiment("impala", {}, [*options, "--curriculum", "[{task: {length: 2}}]"])
    check_settings(experiment)
    assert experiment.curriculum == (Stage({"length": 2}),) and experiment.evaluation_task == {"length": 3}
    assert experiment.watches_episodes
    assert not parse_experiment("impala", {}, options[:4]).watches_episodes


@pytest.mark.parametrize(
    "options, says",
    [
        (["--callbacks", "own_callbacks:Missing"], "has no 'Missing'"),
        (["--episode-metrics", "a,a"], "named twice"),
        (["--curriculum", "[{tusk: 1}]"], "unknown key 'curriculum.tusk'; did you mean 'curriculum.task'?"),
        (["--curriculum", "[{}, {when: episode/succes > 1}]"], "metric in curriculum: when 'episode/succes'"),
        (["--stop-when", "episode/succes > 1"], "metric in stop_when 'episode/succes'; did you mean 'episode/success'"),
        (["--curriculum", "[{}, {when: evaluator/return > 1}]", "--no-evaluator"], "needs the evaluator"),
    ],
)
def test_wrong_settings_are_refused_before_anything_starts(options, says):
    options = ["--env", "own_callbacks:Walk", "--episode-metrics", "success", *options]
    with pytest.raises(CallboardError) as caught:
        check_settings(parse_experiment("impala", {}, options))
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "env, options, says",
    [
        ("MinAtar/Breakout-v1", {"episode_metrics": "x"}, "MinAtarBatch has no infos"),
        ("MinAtar/Breakout-v1", {"curriculum": (Stage(EASY),)}, "MinAtarBatch cannot be set to a task"),
        ("own_callbacks:Walk", {"evaluation_task": 5}, "a task is a mapping of options for its 'reset', not 5"),
    ],
)
def test_environments_that_have_no_infos_or_tasks_are_refused(env, options, says):
    from callboard import Experiment
    from callboard.agents.impala import Impala

    with pytest.raises(CallboardError) as caught:
        check_experiment(Experiment(Impala(), env, **options))
    assert says in str(caught.value)


def test_metrics_of_callbacks_may_be_conditions():
    from callboard import Experiment
    from callboard.agents.impala import Impala

    stages = (Stage(EASY), Stage(HARD, when="callbacks/half > 3"))
    check_settings(Experiment(Impala(), "own_callbacks:Walk", callbacks="own_callbacks:Recorder", curriculum=stages))
