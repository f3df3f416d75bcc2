"""Schedulers of a resumed search: what trials have reported before counts."""

import types

import pytest
from tunes_trials import TunesTrial

from callboard.studies.tuning.records import Trial, TuneDirectory

STEPS = "environment_steps"


def trial(number, reports, mode="max", **fields):
    result = Trial(number, {"agent.optimizer.learning_rate": 10.0**-number}, **fields)
    for steps, value in reports:
        result.report(steps, value, mode)
    return result


def add_trial(scheduler, number, checkpoint=None):
    manager = types.SimpleNamespace(checkpoint_config=types.SimpleNamespace(num_to_keep=None))
    added = TunesTrial(
        trial_id=f"x_{number:05d}",
        config={"values": {}},
        checkpoint=checkpoint,
        run_metadata=types.SimpleNamespace(checkpoint_manager=manager),
        experiment_tag="",
        is_finished=lambda: False,
    )
    scheduler.on_trial_add(types.SimpleNamespace(search_alg=None), added)
    return added


def test_asha_compares_with_what_was_reported_before_it_was_resumed(tmp_path):
    pytest.importorskip("ray")
    from callboard.studies.tuning.schedulers import ResumableAsha

    # Trial 0 has reached `stop_return` before the second rung, and keeps its value there.
    solved = trial(0, [(1000, 500.0)], ended="it has reached 475", state="done")
    TuneDirectory(tmp_path).write_trials([solved, trial(1, [(1000, 30.0)])])
    scheduler = ResumableAsha(str(tmp_path), max_t=8000, grace_period=1000, reduction_factor=4)
    scheduler.set_search_properties("return", "max")
    trials = [add_trial(scheduler, number) for number in range(3)]

    def decision(number, steps, value):
        return scheduler.on_trial_result(None, trials[number], {STEPS: steps, "return": value})

    # The best quarter of 500 and 30 begins at 382.5; of 500 alone at 500.
    assert decision(2, 1000, 380.0) == "STOP"
    assert decision(2, 1000, 20.0) == "CONTINUE"  # Decided once for each rung.
    assert decision(1, 4000, 499.0) == "STOP"
    # It has done all its steps: how good it is changes nothing any more.
    assert decision(2, 8000, 1.0) == "CONTINUE"


def test_pbt_knows_its_last_decisions_when_it_is_resumed(tmp_path):
    pytest.importorskip("ray")
    from callboard.studies.tuning.schedulers import ResumablePbt

    TuneDirectory(tmp_path).write_trials(
        [
            trial(0, [(500, 1.0), (1000, 5.0), (1500, 7.0)]),
            # From 2000 steps back to where trial 0 was at 1000: the next decision is at 2000.
            trial(1, [(1000, 2.0), (2000, 3.0), (1500, 4.0)], takeovers=[(0, 1000)]),
            trial(2, [(500, 9.0)]),
        ]
    )
    scheduler = ResumablePbt(
        str(tmp_path), time_attr=STEPS, perturbation_interval=900, hyperparam_mutations={"values": {"a": [1, 2]}}
    )
    scheduler.set_search_properties("return", "min")
    states = [scheduler._trial_state[add_trial(scheduler, number, f"checkpoint {number}")] for number in range(4)]
    assert [state.last_perturbation_time for state in states] == [1000, 1000, 0, 0]
    assert [state.last_score for state in states] == [-5.0, -3.0, None, None]
    assert [state.last_checkpoint for state in states] == ["checkpoint 0", "checkpoint 1", None, None]
