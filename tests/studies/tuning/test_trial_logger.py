"""The records of trials, and the lines about them."""

import json
import pickle

import pytest
from tunes_trials import TunesTrial

from callboard.studies.tuning.records import TuneDirectory
from callboard.studies.tuning.search_definition import Tuning

STEPS = "environment_steps"


@pytest.fixture
def logger(tmp_path):
    pytest.importorskip("ray")
    from callboard.studies.tuning.trial_logger import TrialLogger

    return TrialLogger(tmp_path, Tuning(settings={}, search=[]))


def tunes_trial(number, directory, checkpoint=None):
    error_file = directory / "error.txt"
    error_file.write_text("Traceback:\n  ...\ncallboard.errors.CallboardError: set actors to 1\n")
    fields = {"config": {"values": {"actors": 2}}, "checkpoint": checkpoint, "error_file": str(error_file)}
    return TunesTrial(trial_id=f"x_{number:05d}", **fields)


def test_the_logger_keeps_reports_ends_and_errors_of_trials(logger, tmp_path, capsys):
    from callboard.studies.tuning.trial import AT_STEPS, ENDED, TOTAL_STEPS

    first, second, third = (tunes_trial(number, tmp_path) for number in range(3))
    for started in (first, second, third):
        logger.on_trial_start(0, [], started)
    metric = "evaluator/return"
    logger.on_trial_result(0, [], first, {STEPS: 1000, metric: 20.0})
    logger.on_trial_result(0, [], first, {AT_STEPS: 2000, metric: 50.0, TOTAL_STEPS: 2100, ENDED: "reached max_steps"})
    logger.on_trial_complete(0, [], first)
    logger.on_trial_result(0, [], second, {STEPS: 1000, metric: 10.0})
    logger.on_trial_complete(0, [], second)
    logger.on_trial_error(0, [], third)
    done, stopped, failed = TuneDirectory(tmp_path).read_trials().values()
    assert (done.state, done.environment_steps, done.best, done.best_steps) == ("done", 2100, 50.0, 2000)
    assert done.reports == [(1000, 20.0), (2000, 50.0)]
    assert (stopped.state, stopped.ended) == ("stopped early", "")
    assert (failed.state, failed.error) == ("failed", "set actors to 1")
    assert "Traceback" in TuneDirectory(tmp_path).run(2).log("error").read_text()
    lines = capsys.readouterr().out.splitlines()
    assert "trial 00 begins: actors 2" in lines and "trial 02 failed: set actors to 1" in lines
    assert "trial 01 stopped early at 1,000 steps, best evaluator/return 10" in lines


def test_the_logger_of_a_resumed_search_knows_the_trials_before(logger, tmp_path, capsys):
    from ray.tune import Checkpoint

    logger.on_trial_start(0, [], tunes_trial(0, tmp_path))
    logger.on_trial_start(0, [], tunes_trial(1, tmp_path))
    again = pickle.loads(pickle.dumps(logger))
    (tmp_path / "handed").mkdir()
    (tmp_path / "handed" / "trial.json").write_text(json.dumps({"trial": 0, STEPS: 4000}))
    handed = Checkpoint.from_directory(tmp_path / "handed")
    capsys.readouterr()
    for number in (0, 1, 1):
        again.on_trial_start(0, [], tunes_trial(number, tmp_path, handed))
    assert capsys.readouterr().out.splitlines() == [
        "trial 00 continues from 4,000 steps",
        *["trial 01 continues from trial 00 at 4,000 steps: actors 2"] * 2,
    ]
    # The same takeover is recorded once.
    assert TuneDirectory(tmp_path).read_trials()[1].takeovers == [(0, 4000)]
