"""The definition of a search: its defaults, its checks, and the recipe of the best trial."""

import dataclasses
import os
import pathlib

import pytest

from callboard.cli.command import main
from callboard.errors import CallboardError
from callboard.launch.experiments.settings import read_recipe
from callboard.launch.experiments.yaml_files import format_yaml
from callboard.studies.tuning.records import Trial, TuneDirectory
from callboard.studies.tuning.search_definition import Tuning, read_tuning, write_best
from callboard.studies.tuning.search_space import SearchSpace


@pytest.fixture(autouse=True)
def functions(monkeypatch):
    """Makes the functions importable that searches name."""
    monkeypatch.syspath_prepend(pathlib.Path(__file__).parents[2] / "launch" / "environments")


@pytest.fixture
def directory(tmp_path):
    directory = TuneDirectory(tmp_path / "search")
    directory.create({"settings": {}, "search": []})
    return directory


@pytest.mark.parametrize(
    "content, message",
    [
        ("[]", "does not hold a search"),
        ("settings: {}\nsampels: 3", "unknown key 'sampels'"),
        ("settings: {}\nsamples: many", "samples must be a whole number of at least 1 or null, not 'many'"),
        ("settings: {}", "tune.yaml: seed must be a whole number"),
        ("settings: {seed: x, max_steps: 9, evaluate_every: 1}", "tune.yaml: seed must be a whole number"),
        ("settings: {seed: 1, max_steps: [1], evaluate_every: 1}", "tune.yaml: max_steps must be a whole number"),
        ("settings: {seed: 1, max_steps: 9, evaluate_every: null}", "tune.yaml: evaluate_every must be a whole number"),
        ("settings: {seed: 1, max_steps: 9, evaluate_every: 1}\nsearch: ['a=randint(1,9)']", "a search needs an agent"),
        ("a: *b", "not valid YAML"),
    ],
)
def test_a_damaged_search_is_refused_in_one_line(directory, content, message, capsys):
    directory.settings.write_text(content)
    assert main(["tune", "--resume", "--run-dir", str(directory.path)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.fixture
def tuning():
    """A search that is right, with some fields changed."""
    settings = {**read_recipe("impala-cartpole"), "seed": 3, "max_steps": 80_000, "evaluate_every": 4000}
    settings["evaluator"] = True
    search = ["agent.entropy_cost=choice(0.0,0.01)"]

    def make(**fields):
        return Tuning(**{"settings": settings, "search": search, **fields})

    return make


def test_the_defaults_follow_from_the_length_of_a_trial(tuning):
    tuning().check()
    assert (tuning().first_rung, tuning().perturbation_interval) == (10_000, 10_000)
    assert tuning(grace_steps=500).perturbation_interval == 500
    assert tuning(settings={"max_steps": 8000, "evaluate_every": 4000}).first_rung == 4000


def test_trials_at_a_time_are_as_many_as_there_are_processors_and_under_pbt_all(tuning):
    processors = len(os.sched_getaffinity(0))
    assert tuning().trials_at_a_time == processors
    assert tuning(cpus_per_trial=2.0 * processors).trials_at_a_time == 1
    assert tuning(scheduler="pbt", samples=64).trials_at_a_time == 64
    assert tuning(scheduler="pbt", concurrent=3).trials_at_a_time == 3


def test_a_trial_has_its_values_and_its_own_directory(tuning):
    experiment = tuning().experiment({"agent.entropy_cost": 0.5}, {"run_dir": "x"})
    assert experiment.agent.entropy_cost == 0.5 and str(experiment.run_dir) == "x"
    assert tuning().samples_of_all() == tuning().samples_of_all()
    assert len(tuning(samples=5).samples_of_all()) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields, message",
    [
        ({"scheduler": "hyper"}, "--scheduler must be asha, pbt or none, not 'hyper'"),
        ({"grace_steps": 0}, "--grace-steps must be a whole number of at least 1 or null, not 0"),
        ({"concurrent": -1}, "--concurrent must be a whole number of at least 1 or null, not -1"),
        ({"gpus_per_trial": -1.0}, "--gpus-per-trial must be a number of at least 0, not -1.0"),
        ({"cpus_per_trial": float("inf")}, "--cpus-per-trial must be a number above 0 or text, not inf"),
        ({"cpus_per_trial": "many"}, "must be a number above 0, nodes, or package.module:function, not 'many'"),
        ({"cpus_per_trial": "search_functions:nothing"}, "must return a number of CPUs above 0, not None"),
        ({"cpus_per_trial": "search_functions:cpsu"}, "has no 'cpsu', did you mean 'cpus'?"),
        ({"trial": "search_functions:tral"}, "unknown trial function 'search_functions:tral'"),
        ({"trial": "search_functions:NUMBER"}, "--trial search_functions:NUMBER is no function"),
        ({"trial": "os:system"}, "part of Python's standard library"),
        ({"sampler": "optuna", "scheduler": "pbt"}, "use --sampler optuna with --scheduler asha or none"),
        ({"sampler": "optuna", "search": ["actors=grid(1,2)"]}, "--sampler optuna tries no grid"),
        ({"sampler": "best"}, "--sampler must be random or optuna, not 'best'"),
        ({"metric": "learner/loss"}, None),
        ({"metric": "learner/los"}, "unknown metric in --metric 'learner/los'; did you mean 'learner/loss'"),
        ({"metric": "learner/temperature"}, "--metric learner/temperature cannot work: learner/temperature is"),
        ({"metric": "episode/success"}, "unknown metric in --metric 'episode/success'"),
        ({"metric": "evaluator/seconds"}, "unknown metric 'evaluator/seconds'; did you mean 'evaluator/return'"),
        ({"metric": "episodes"}, "name one of those in metrics.jsonl"),
        ({"launcher": "ray"}, "--launcher must be one of inline, threads, not 'ray'"),
        ({"search": ["env=choice(A,B)"]}, "trials on different environments cannot be compared"),
        ({"search": ["actors=choice(1,0)"]}, "a run without actors learns from recorded episodes"),
    ],
)
def test_a_search_that_cannot_work_is_refused(tuning, fields, message):
    if message is None:
        tuning(**fields).check()
        return
    with pytest.raises(CallboardError) as caught:
        tuning(**fields).check()
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow("daily")
@pytest.mark.parametrize("metric", ["episode/success", "evaluator/episode/success_max", "callbacks/speed"])
def test_trials_can_be_compared_by_metrics_of_ones_own(tuning, metric):
    experiment = tuning().settings
    own = {"episode_metrics": ["success"], "callbacks": ["own_callbacks:Silent"], "env": "own_callbacks:Walk"}
    tuning(settings={**experiment, **own}, metric=metric).check()


def test_grids_multiply_and_samples_repeat_them(tuning):
    search = ["actors=grid(1,2)", "seed=grid(1,2,3)", "agent.entropy_cost=uniform(0,1)"]
    assert tuning().trials == 16 and tuning(search=search).trials == 6 and tuning(search=search, samples=2).trials == 12
    assert tuning(search=search, scheduler="pbt").trials_at_a_time == 6


@pytest.mark.slow("daily")
def test_cpus_follow_from_the_settings(tuning):
    values = {"actors": 3}
    assert tuning(cpus_per_trial=2.5).cpus(values) == 2.5
    assert tuning(cpus_per_trial="nodes").cpus(values) == 1.0  # All of them are in one thread.
    assert tuning(cpus_per_trial="nodes", launcher="threads").cpus(values) == 4.0
    assert tuning(cpus_per_trial="search_functions:cpus").cpus(values) == 1.5
    two = tuning(cpus_per_trial="search_functions:cpus", search=["actors=choice(2,4)"])
    two.check()
    assert two.trials_at_a_time == max(1, len(os.sched_getaffinity(0)))
    assert tuning(cpus_per_trial="nodes", launcher="threads", search=["actors=choice(1)"]).cpus({}) == 3.0


def test_a_function_of_ones_own_needs_no_experiment_and_may_have_settings_of_its_own(tuning):
    alone = Tuning(
        {"seed": 1, "max_steps": 10, "evaluate_every": 1}, ["x=uniform(0,1)"], trial="search_functions:trial"
    )
    alone.check()
    assert not alone.has_experiment and alone.trial_function().__name__ == "trial"
    with pytest.raises(CallboardError, match="nodes counts actors and learners; name an agent or a recipe"):
        dataclasses.replace(alone, cpus_per_trial="nodes").check()
    mixed = tuning(trial="search_functions:trial", search=["trial.width=choice(1,2)", "agent.discount=choice(0.5)"])
    mixed.check()
    assert mixed.experiment({"trial.width": 1, "agent.discount": 0.5}, {}).agent.discount == 0.5
    with pytest.raises(CallboardError, match="unknown key"):
        tuning(search=["trial.width=choice(1,2)"]).check()


@pytest.mark.slow("daily")
def test_a_function_that_is_given_in_python_is_written_by_its_name(tuning, directory):
    import search_functions

    mine = tuning(trial=search_functions.trial)
    mine.check()
    directory.settings.write_text(format_yaml(mine.to_file()))
    assert read_tuning(directory.settings) == tuning(trial="search_functions:trial")


def test_without_optuna_one_line_says_how_to_get_it(tuning, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(CallboardError, match=r"--sampler optuna needs Optuna: .*pip install .*'callboard\[optuna\]'"):
        tuning(sampler="optuna").check()


def test_a_search_is_read_as_it_was_written(tuning, directory):
    wanted = tuning(samples=5, mode="min", metric="learner/loss", cpus_per_trial=0.5)
    directory.settings.write_text(format_yaml(dataclasses.asdict(wanted)))
    assert read_tuning(directory.settings) == wanted


def test_the_best_trial_becomes_a_recipe_that_says_where_it_came_from(tuning, directory):
    best = Trial(4, {"agent.entropy_cost": 0.01}, takeovers=[(1, 4000)])
    best.report(12_000, 481.25, "max")
    write_best(tuning(), directory, best)
    lines = directory.best.read_text().splitlines()
    assert lines[0] == "# The best of 16 trials, number 04: evaluator/return 481.25 after 12,000 environment steps,"
    assert lines[1] == "# with agent.entropy_cost 0.01." and "weights came from other trials" in lines[2]
    recipe = read_recipe(str(directory.best))
    assert recipe["agent"]["entropy_cost"] == 0.01 and recipe["max_steps"] == 80_000


def test_a_search_with_too_many_trials_is_refused_before_they_are_made(tuning, monkeypatch):
    monkeypatch.setattr(SearchSpace, "samples", None)
    grid = ",".join(str(number / 10_000) for number in range(2000))
    large = tuning(search=[f"agent.entropy_cost=grid({grid})", f"agent.discount=grid({grid})"])
    with pytest.raises(CallboardError, match="the search has 4,000,000 trials, more than 10,000; lower --samples or"):
        large.check()
    with pytest.raises(CallboardError, match="the search has 1,000,000,000,000 trials"):
        tuning(samples=10**12).check()
