"""What stands on the screen is what was said."""

import io

import pytest
from rich.console import Console

from callboard.launch.launchers.run_outcome import OutputClosed
from callboard.launch.launchers.screen.display import LineMonitor, LiveMonitor, RunProgress, progress_view

TEXT = "actor/0: OSError: cannot open [agent] camera [/dev/video0] :smile:"


def test_brackets_are_no_markup(capsys):
    LineMonitor(100).notify(TEXT)
    assert capsys.readouterr().out == f"{TEXT}\n"
    screen = io.StringIO()
    monitor = LiveMonitor(Console(file=screen, force_terminal=True, width=200), 100)
    monitor.notify(TEXT)
    monitor.close()
    assert TEXT in screen.getvalue()


def test_letters_that_the_output_does_not_have_are_replaced(monkeypatch):
    output = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr("sys.stdout", output)
    LineMonitor(100).notify("mean return 5.0 ± 0.1 ↗")
    assert output.buffer.getvalue().decode("latin-1") == "mean return 5.0 ± 0.1 ?\n"


class Closed(io.StringIO):
    """A terminal that has gone away."""

    def write(self, text):
        raise OSError(5, "Input/output error")


def test_output_that_is_closed_is_named(monkeypatch):
    monkeypatch.setattr("sys.stdout", Closed())
    with pytest.raises(OutputClosed, match=r"the output was closed \(Input/output error\): keep it open"):
        LineMonitor(100).notify(TEXT)
    screen = io.StringIO()
    monitor = LiveMonitor(Console(file=screen, force_terminal=True), 100)
    monitor._live.console.file = Closed()
    with pytest.raises(OutputClosed, match="the output was closed"):
        monitor.notify(TEXT)
    monitor.close()


STATUS = {
    "environment_steps": 500,
    "learner_steps": 3,
    "actor/steps_per_second": 100.0,
    "learner/steps_per_second": 2.0,
    "waiting": {"actor": {}, "learner": {"data": 0.63}},
    "stop_return": 475.0,
}


def test_progress_shows_time_left_trends_the_best_evaluation_and_restarts():
    now = 0.0
    progress = RunProgress(1000, clock=lambda: now)
    progress.update({**STATUS, "environment_steps": 0})
    for steps, score in ((125, 10.0), (250, 60.0), (375, 80.0), (500, 70.0)):
        now += 5.0
        status = {**STATUS, "environment_steps": steps, "evaluator/return": score, "evaluator/return_std": 5.0}
        progress.update({**status, "actor/episode_return": 100.0 - score})
    shown = {**status, "actor/episode_return": 30.0, "node_restarts": {"actor/1": 2, "learner/0": 1}}
    fields = dict(progress.fields(shown, in_words=True))
    assert fields["time left"] == "20 s"
    assert fields["mean return"] == "30.0 ↘"
    assert fields["evaluation"] == "70.0 ± 5.0 ↗ (goal 475, best 80.0)"
    assert fields["waiting"] == "the learner waits for data 63% of the time: actors are the bottleneck"
    assert fields["restarts"] == "3 (actor/1 2, learner/0 1)"
    many = {**STATUS, "node_restarts": {f"actor/{index}": 1 for index in range(9)}}
    assert dict(progress.fields(many))["restarts"].endswith("actor/3 1 and 5 more nodes)")


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"max_learner_steps": 40, "seconds_left": None}, "29 s"),
        ({"max_learner_steps": None, "seconds_left": 2.0}, "2 s"),
        ({"max_learner_steps": 4000, "seconds_left": 90.0}, "39 s"),
    ],
)
def test_the_time_left_is_that_to_the_first_limit(limits, left):
    now = 0.0
    progress = RunProgress(1000, clock=lambda: now)
    for now in (0.0, 1.0, 11.0):  # noqa: B007
        status = {**STATUS, **limits, "environment_steps": 20 * now, "learner_steps": now}
        progress.update(status)
    assert dict(progress.fields(status))["time left"] == left


def test_lines_are_compact(capsys):
    LineMonitor(1000).status({**STATUS, "node_restarts": {"actor/1": 2}})
    assert capsys.readouterr().out == (
        "      500 of 1,000 steps  steps/s 100  learner steps/s 2.0  bottleneck actors  restarts 2 (actor/1 2)\n"
    )


def test_a_run_without_actors_shows_learner_steps_alone(capsys):
    status = {**STATUS, "actors": 0, "learner_steps": 20, "max_learner_steps": 300}
    LineMonitor(1000).status(status)
    printed = capsys.readouterr().out
    assert "20 of 300 learner steps  learner steps/s 2.0" in printed and " steps  steps/s" not in printed


def test_the_live_display_shows_sentences():
    screen = io.StringIO()
    monitor = LiveMonitor(Console(file=screen, force_terminal=True, width=120), 1000)
    monitor.status(STATUS)
    monitor.close()
    assert "500 of 1,000 environment steps (50%)" in screen.getvalue()
    assert "actors are the bottleneck" in screen.getvalue()


@pytest.mark.parametrize("width", [60, 140])
def test_the_bar_fills_the_width_and_the_time_since_the_start_is_shown(width):
    now = 0.0
    progress = RunProgress(1000, clock=lambda: now)
    now = 125.0
    progress.update(STATUS)
    console = Console(file=io.StringIO(), width=width)
    console.print(progress_view(progress, STATUS, 0.5, "500 of 1,000 environment steps"))
    bar, first, *_ = console.file.getvalue().splitlines()
    assert len(bar) == width and bar.endswith("  500 of 1,000 environment steps (50%)") and bar.startswith("━" * 10)
    assert first.split() == ["elapsed", "2", "min"]


def test_how_full_replay_is_is_shown_unless_it_is_a_queue():
    progress = RunProgress(1000)
    assert dict(progress.fields({**STATUS, "replay/fill_0": 0.25}))["replay"] == "25% full"
    assert "replay" not in dict(progress.fields({**STATUS, "replay/fill_0": 0.25, "has_queue": True}))


def test_open_episodes_of_simulators_and_that_the_run_waits_for_them():
    fields = dict(RunProgress(1000).fields({**STATUS, "policy_server/open_episodes": 3.0}))
    assert fields["open episodes"] == "3 of simulators" and fields["waits for"] == "simulators"


def test_the_time_left_is_shown_once_steps_were_made_for_a_while():
    now = 0.0
    progress = RunProgress(1000, clock=lambda: now)
    shown = []
    for now, steps in ((0.0, 0), (60.0, 0), (61.0, 1), (66.0, 51), (72.0, 111)):  # noqa: B007
        status = {**STATUS, "environment_steps": steps, "seconds_left": 7200.0}
        progress.update(status)
        shown.append(dict(progress.fields(status)).get("time left"))
    assert shown[:4] == [None] * 4 and shown[4] == "89 s"


def test_slow_learner_steps_are_not_shown_as_none():
    fields = dict(RunProgress(1000).fields({**STATUS, "learner/steps_per_second": 0.043}))
    assert fields["learner steps/s"] == "0.043"


def test_a_line_says_how_far_the_final_evaluation_is(capsys):
    monitor = LineMonitor(1000)
    monitor.status({**STATUS, "stopping": True, "evaluation": [12, 100]})
    assert capsys.readouterr().out == "evaluating: 12 of 100 episodes\n"


def test_a_line_names_a_slow_link(capsys):
    LineMonitor(1000).status({**STATUS, "slow_weights": [34e6, 27.2, 1]})
    assert "bottleneck link: weights of 34 MB take 27 s to 1 machine: the link" in capsys.readouterr().out
