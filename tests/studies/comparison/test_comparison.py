"""Groups of runs and their scores, against a plain NumPy loop."""

import numpy as np
import pytest
from synthetic_runs import write_run

from callboard.errors import CallboardError
from callboard.studies.comparison.comparison import ComparisonSettings, _short_names, compare, group_runs
from callboard.studies.comparison.run_results import read_results

CURVES = {
    1: [(1000, 100.0), (2000, 480.0), (3000, 500.0)],
    2: [(1000, 20.0), (2000, 300.0), (3000, 440.0)],
    3: [(1000, 475.0), (2000, 200.0), (3000, 490.0)],
    4: [(1000, 30.0), (2000, 40.0), (3000, 476.0)],
}


@pytest.fixture
def runs(tmp_path):
    for seed, curve in CURVES.items():
        write_run(tmp_path / f"seed-{seed}", curve, seed=seed, options=["--stop-return=475"])
    return read_results([str(tmp_path)]).runs


def test_runs_that_differ_in_their_seed_alone_are_one_group(runs):
    (group,) = group_runs(reversed(runs))
    assert [run.seed for run in group.runs] == [1, 2, 3, 4]
    assert group.name == "impala on CartPole-v1"


def test_groups_are_named_by_what_they_differ_in(tmp_path):
    write_run(tmp_path / "a", [(1, 1.0)], options=["--agent.discount=0.9"])
    write_run(tmp_path / "b", [(1, 2.0)], options=["--agent.discount=0.8", "--actors=1"])
    write_run(tmp_path / "c", [(1, 3.0)], env="Acrobot-v1", options=["--agent.discount=0.7"])
    groups = group_runs(read_results([str(tmp_path)]).runs)
    names = {group.name: group.scores for group in groups}
    assert names == {
        "impala, discount 0.9 on CartPole-v1": [1.0],
        "impala, discount 0.8, actors 1 on CartPole-v1": [2.0],
        "impala, discount 0.7 on Acrobot-v1": [3.0],
    }


def test_what_watches_a_run_and_defaults_do_not_name_its_group(tmp_path):
    watching = ["--callbacks=own_callbacks:Meter", "--episode-metrics=place", "--evaluation-mode=sampled"]
    write_run(tmp_path / "a", [(1, 1.0)], agent="ppo", options=[*watching, "--loggers=wandb"])
    write_run(tmp_path / "b", [(1, 2.0)], agent="ppo", options=["--agent.network.core=gru"])
    write_run(tmp_path / "c", [(1, 3.0)], agent="ppo", options=["--agent.network.core=gru", "--episode-metrics=x"])
    groups = group_runs(read_results([str(tmp_path)]).runs)
    assert {group.variant: group.scores for group in groups} == {"ppo": [1.0], "ppo, core gru": [2.0, 3.0]}


def test_what_watches_a_run_names_its_group_where_nothing_else_does(tmp_path):
    write_run(tmp_path / "a", [(1, 1.0)], options=["--callbacks=own_callbacks:Meter"])
    write_run(tmp_path / "b", [(1, 2.0)])
    write_run(tmp_path / "c", [(1, 2.0)], options=["--evaluation-mode=sampled"])
    names = [group.variant for group in group_runs(read_results([str(tmp_path)]).runs)]
    assert len(set(names)) == 3 and "own_callbacks:Meter" in names[0] and "evaluation_mode sampled" in names[2]


@pytest.fixture
def unlike(tmp_path):
    """Runs of two agents that differ in their length, in options that only one has, and in nested settings."""
    write_run(tmp_path / "a", [(1, 1.0)], agent="ppo", options=["--max-steps=8000"])
    write_run(tmp_path / "b", [(1, 2.0)], agent="ppo", options=["--env-options.sutton_barto_reward=true"])
    write_run(tmp_path / "c", [(1, 3.0)], options=["--max-steps=60000", "--agent.optimizer.learning-rate=0.1"])
    write_run(tmp_path / "d", [(1, 4.0)], options=["--max-steps=60000", "--agent.optimizer.learning-rate=0.2"])
    write_run(tmp_path / "e", [(1, 6.0)], options=["--agent.optimizer.learning-rate=0.2"])
    return read_results([str(tmp_path)]).runs


def test_unlike_runs_are_named_by_what_was_set_and_not_by_their_length(unlike):
    assert {group.variant: group.scores for group in group_runs(unlike)} == {
        "ppo": [1.0],
        "ppo, sutton_barto_reward on": [2.0],
        "impala, learning_rate 0.1": [3.0],
        "impala, learning_rate 0.2": [4.0, 6.0],
    }


def test_how_runs_are_watched_and_kept_does_not_distinguish_them(tmp_path):
    watched = ["--evaluate-every=500", "--evaluation-episodes=2", "--video-every=3", "--checkpoint-every=7"]
    write_run(tmp_path / "a", [(1, 1.0)], options=[*watched, "--log-level=debug", "--record-limit=2"])
    write_run(tmp_path / "b", [(1, 2.0)], options=["--stop-return=400"])
    (group,) = group_runs(read_results([str(tmp_path)]).runs)
    assert group.variant == "impala" and group.scores == [1.0, 2.0]


def test_groups_can_be_chosen_and_named(unlike, tmp_path):
    groups = group_runs(unlike, ["optimizer.learning_rate"])
    assert [group.scores for group in groups] == [[1.0, 2.0], [3.0], [4.0, 6.0]]
    groups = group_runs(unlike, labels={str(tmp_path / "a"): "mine", str(tmp_path / "e"): "mine"})
    assert {group.variant: group.scores for group in groups}["mine"] == [1.0, 6.0]
    with pytest.raises(CallboardError, match="unknown setting to group by 'optimizer.learning_rat'; did you mean"):
        group_runs(unlike, ["optimizer.learning_rat"])
    with pytest.raises(CallboardError, match="labels name .*nowhere, but no run that is compared is there"):
        group_runs(unlike, labels={"nowhere": "x"})


def test_settings_of_one_last_name_are_distinguished():
    keys = ["agent.optimizer.learning_rate", "agent.critic.learning_rate", "agent.discount"]
    assert list(_short_names(keys).values()) == ["optimizer.learning_rate", "critic.learning_rate", "discount"]
    # The name of what?
    assert list(_short_names(["agent.optimizer.name"]).values()) == ["optimizer.name"]


@pytest.mark.slow("daily")
def test_every_figure_of_a_group(runs):
    (score,) = compare(group_runs(runs), ComparisonSettings()).groups
    finals = [curve[-1][1] for curve in CURVES.values()]
    mean = sum(finals) / 4
    assert score.mean == pytest.approx(mean)
    assert score.std == pytest.approx((sum((value - mean) ** 2 for value in finals) / 4) ** 0.5)
    assert score.iqm == pytest.approx(sum(sorted(finals)[1:3]) / 2)
    areas = []
    for curve in CURVES.values():
        pairs = zip(curve, curve[1:], strict=False)
        areas.append(sum((after - at) * (value + last) / 2 for (at, value), (after, last) in pairs) / 2000)
    assert score.area == pytest.approx(sum(areas) / 4)
    generator, resampled = np.random.default_rng(5), []
    for _ in range(20_000):
        chosen = sorted(finals[index] for index in generator.integers(4, size=4))
        resampled.append((chosen[1] + chosen[2]) / 2)
    assert score.interval == pytest.approx(np.percentile(resampled, [2.5, 97.5]), rel=0.01)
    # The goal is each run's own `stop_return`.
    steps = []
    for curve in CURVES.values():
        steps += [at for at, value in curve if value >= 475][:1]
    assert steps == [2000, 1000, 3000]
    assert [reached.steps for reached in score.reached] == steps
    assert [reached.seconds for reached in score.reached] == [at / 1000 for at in steps]
    # Seed 2 took longer than any of them.
    assert (score.median_steps, score.median_seconds) == (2500, 2.5)


def test_there_is_no_median_where_most_runs_miss_the_goal(runs):
    (score,) = compare(group_runs(runs), ComparisonSettings(goal=495)).groups
    assert len(score.reached) == 1 and score.has_goal
    assert score.median_steps is None and score.median_seconds is None


def test_lower_can_be_better(runs):
    (score,) = compare(group_runs(runs), ComparisonSettings(goal=30, mode="min")).groups
    assert [(reached.steps, reached.seconds) for reached in score.reached] == [(1000, 1), (1000, 1)]


def test_a_run_without_a_goal_has_none(tmp_path):
    write_run(tmp_path / "x", [(1000, 30.0)])
    results = read_results([str(tmp_path)], "learner/loss")
    comparison = compare(group_runs(results.runs), ComparisonSettings(metric="learner/loss"), ["y is left out"])
    assert comparison.runs[0].goal is None and not comparison.groups[0].has_goal
    assert comparison.groups[0].interval is None and comparison.left_out == ["y is left out"]


def test_normalized_scores_are_summarized_over_environments(tmp_path):
    finals = {"CartPole-v1": [500.0, 260.0, 380.0, 20.0], "Acrobot-v1": [-100.0, -500.0, -300.0]}
    ranges = {"CartPole-v1": [20, 500], "Acrobot-v1": [-500, -100]}
    for env, scores in finals.items():
        for seed, value in enumerate(scores):
            write_run(tmp_path / env / str(seed), [(1000, value)], seed=seed, env=env)
    groups = group_runs(read_results([str(tmp_path)]).runs)
    (score,) = compare(groups, ComparisonSettings(score_ranges=ranges)).variants
    assert (score.variant, sorted(score.envs), score.runs) == ("impala", sorted(finals), 7)
    normalized = []
    for env, scores in finals.items():
        low, high = ranges[env]
        normalized += [(value - low) / (high - low) for value in scores]
    assert score.iqm == pytest.approx(np.mean(sorted(normalized)[1:-1]))
    assert 0 <= score.interval.low < score.iqm < score.interval.high <= 1
    assert compare(groups, ComparisonSettings()).variants == []


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"metric": "score"}, "unknown metric 'score'; name one of those in metrics.jsonl"),
        ({"score_ranges": {"CartPole-v1": [1]}}, "score_ranges.CartPole-v1 must be the scores that count as 0 and 1"),
        ({"score_ranges": {"CartPole-v1": [5, 5]}}, "such as [20, 500], not [5, 5]"),
        ({"score_ranges": {"CartPole-v1": "high"}}, "not 'high'"),
        ({"score_ranges": {"CartPole-v1": [0, True]}}, "not [0, True]"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(CallboardError) as caught:
        ComparisonSettings(**settings).check()
    assert message in str(caught.value) and "\n" not in str(caught.value)
