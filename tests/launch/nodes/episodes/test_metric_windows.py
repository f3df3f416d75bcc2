"""Metrics of the newest episodes, and of those of the current task."""

from callboard.launch.nodes.episodes.episode_watch import WatchedEpisode
from callboard.launch.nodes.episodes.metric_windows import MetricWindows, evaluation_metrics, report_episodes


def episode(env=0, task=None, **values):
    return WatchedEpisode(env, task, {name.replace("__", "/"): value for name, value in values.items()})


def test_a_report_groups_successive_episodes_of_a_task():
    easy, hard = {"size": 1}, {"size": 2}
    episodes = [episode(0, easy, a=1.0, b=2.0), episode(1, {"size": 1}, a=5.0), episode(2, hard, a=3.0)]
    assert report_episodes(episodes) == [(easy, {"a": [1.0, 5.0], "b": [2.0]}), (hard, {"a": [3.0]})]
    assert report_episodes([]) == []


def test_a_report_keeps_the_order_of_episodes_where_the_task_changes():
    easy, hard = {"size": 1}, {"size": 2}
    episodes = [episode(0, easy, a=1.0), episode(1, hard, a=3.0), episode(2, easy, a=5.0)]
    assert report_episodes(episodes) == [(easy, {"a": [1.0]}), (hard, {"a": [3.0]}), (easy, {"a": [5.0]})]


def test_mean_minimum_and_maximum_of_the_newest_hundred_episodes():
    windows = MetricWindows(["episode/a", "episode/never"])
    windows.add([[None, {"episode/a": [1000.0, *map(float, range(100))], "actor/episode_return": [1.0]}]])
    assert windows.row() == {"episode/a": 49.5, "episode/a_min": 0.0, "episode/a_max": 99.0}
    assert windows.histograms() == {"episode/a": [float(value) for value in range(100)]}


def test_the_episodes_of_the_current_task():
    windows = MetricWindows()

    def means(episodes):
        row = windows.row_of_task(episodes)
        assert set(row) <= {"episode/a", "episode/a_min", "episode/a_max"}
        return row.get("episode/a")

    windows.add([[None, {"episode/a": [1.0] * 10}]])
    assert means(10) == 1.0 and windows.row_of_task(11) == {}
    windows.set_task({"size": 2})
    assert windows.row_of_task(1) == {}
    # Episodes that had begun before the task was set do not count.
    windows.add([[None, {"episode/a": [1.0] * 10}], [{"size": 2}, {"episode/a": [0.0, 0.5]}]])
    assert means(1) == 0.5 and means(2) == 0.25 and windows.row_of_task(2)["episode/a_min"] == 0.0
    windows.set_task({"size": 2})
    assert means(2) == 0.25
    assert windows.row()["episode/a_max"] == 1.0


def test_an_evaluation_counts_the_first_episodes_of_every_environment():
    episodes = [
        episode(0, episode__a=1.0, actor__episode_return=9.0),
        episode(0, episode__a=100.0),
        episode(1, episode__a=3.0),
    ]
    assert evaluation_metrics(episodes, 1) == {
        "evaluator/episode/a": 2.0,
        "evaluator/episode/a_min": 1.0,
        "evaluator/episode/a_max": 3.0,
    }


def test_a_metric_with_the_name_of_a_minimum_is_kept():
    for names in (("a", "a_min"), ("a_min", "a")):
        values = dict(zip(names, ((1.0, 5.0) if name == "a" else (8.0, 8.0) for name in names), strict=True))
        windows = MetricWindows()
        windows.add([[None, {f"episode/{name}": list(values[name]) for name in names}]])
        episodes = [episode(**{f"episode__{name}": values[name][0] for name in names})]
        for row in (windows.row(), windows.row_of_task(2), evaluation_metrics(episodes, 1)):
            assert {value for name, value in row.items() if name.endswith("episode/a_min")} == {8.0}
