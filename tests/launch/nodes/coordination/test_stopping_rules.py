"""The rules that end a run, with a clock of the test's own."""

import pytest

from callboard.launch.experiments.experiment import Experiment
from callboard.launch.nodes.coordination.stopping_rules import StoppingRules, setting_that_ended


@pytest.fixture
def rules(clock):
    def make(totals=None, **settings):
        return StoppingRules(Experiment(agent=None, env="CartPole-v1", **settings), totals or {}, clock)

    return make


def evaluations(rules, *returns, best=None):
    for value in returns:
        best = value if best is None else max(best, value)
        rules.add_evaluation({"evaluator/return": value, "evaluator/best_return": best})


def check(rules, steps=0, values=None, evaluation=None):
    return rules.check(steps, values or {}, evaluation or {})


def test_nothing_ends_a_run_before_its_limits(rules):
    assert (
        check(rules(max_learner_steps=5, max_seconds=5, patience=1, stop_return=5.0), 10, {"learner/step": 4}) is None
    )


def test_max_steps_and_the_return(rules):
    reason, final, _ = check(rules(max_steps=10), 12)
    assert reason == "reached max_steps (12 environment steps)" and final
    reason, final, _ = check(rules(stop_return=5.0), 7, evaluation={"evaluator/return": 5.0})
    assert reason == "the return 5.0, a mean over 100 episodes, has reached 5 within 7 environment steps" and not final
    assert check(rules(stop_return=0.7), 7, evaluation={"evaluator/return": 0.699999988079071}) is not None


def test_learner_steps_end_the_run_once_the_learner_has_made_and_saved_the_last(rules):
    limited = rules(max_learner_steps=5)
    assert check(limited, values={"learner/step": 5}) is None
    reason, final, _ = check(limited, values={"learner/step": 5, "learner/final": 1.0})
    assert reason == "reached max_learner_steps (5 learner steps)" and final
    # A coordinator that restarts while the final policy is evaluated continues to end the run.
    assert "the run was ending" in check(rules(), values={"learner/step": 5, "learner/final": 1.0}).reason


def test_seconds_are_counted_over_resumes(rules, clock):
    first = rules(max_seconds=10)
    clock.now += 7.9
    totals = first.counts()
    assert check(first) is None and totals["seconds"] == 7
    clock.now += 1000  # In between nothing runs.
    second = rules(totals, max_seconds=10)
    clock.now += 2.5
    assert check(second) is None and not second.out_of_time
    clock.now += 0.5
    reason, final, _ = check(second, steps=1234)
    assert reason == "reached max_seconds (10 s, 1,234 environment steps)" and final
    assert second.counts()["seconds"] == 3


def test_pauses_do_not_count(rules, clock):
    limited = rules(max_seconds=10)
    clock.now += 4
    limited.set_paused(True)
    clock.now += 100
    limited.set_paused(True)
    assert limited.seconds == 4
    limited.set_paused(False)
    clock.now += 5
    assert limited.seconds == 9 and not limited.out_of_time


def test_patience_ends_after_evaluations_without_a_higher_return(rules):
    patient = rules(patience=2)
    evaluations(patient, 1.0, 5.0, 5.0)
    assert check(patient) is None
    evaluations(patient, 4.0, best=5.0)
    reason, final, _ = check(patient, steps=1234)
    assert not final
    assert reason == (
        "patience is over: the last 2 evaluations were no better than the one before them, within 1,234 environment "
        "steps"
    )
    recovered = rules(patience=2)
    evaluations(recovered, 1.0, 0.0, 2.0, 1.0)
    assert check(recovered) is None


def test_patience_is_counted_over_resumes(rules):
    first = rules(patience=3)
    evaluations(first, 1.0, 5.0, 4.0)
    totals = first.counts()
    second = rules(totals, patience=3)
    evaluations(second, 4.0, best=5.0)
    assert check(second) is None
    again = {name: count + totals[name] for name, count in second.counts().items()}
    third = rules(again, patience=3)
    evaluations(third, 4.5, best=5.0)
    assert check(third).reason.startswith("patience is over: the last 3")
    improved = rules(again, patience=3)
    evaluations(improved, 6.0, 5.0, 5.0)
    assert check(improved) is None
    evaluations(improved, 5.0, best=6.0)
    assert check(improved) is not None


def test_any_condition_ends_the_run(rules):
    conditional = rules(stop_when=("learner/loss < 1", "evaluator/return >= 3"))
    assert conditional.has_conditions and not rules().has_conditions
    assert conditional.check_conditions(7, {"learner/loss": 2.0}) is None
    reason, final, _ = conditional.check_conditions(1234, {"learner/loss": 0.5, "evaluator/return": 2.0})
    assert reason == "learner/loss is 0.5, and learner/loss < 1 was to end the run, within 1,234 environment steps"
    assert final
    assert not conditional.check_conditions(7, {"evaluator/return": 3.0}).final_evaluation


def test_every_reason_names_the_setting_that_ends_the_run(rules, clock):
    ends = {
        "max_steps": check(rules(max_steps=10), 12),
        "max_learner_steps": check(rules(max_learner_steps=5), values={"learner/step": 5, "learner/final": 1.0}),
        "stop_return": check(rules(stop_return=5.0), 7, evaluation={"evaluator/return": 5.0}),
        "stop_when": rules(stop_when=("episodes >= 5",)).check_conditions(9, {"episodes": 6.0}),
    }
    timed, patient = rules(max_seconds=10), rules(patience=1)
    clock.now += 11
    evaluations(patient, 5.0, 4.0)
    ends |= {"max_seconds": check(timed), "patience": check(patient)}
    assert {name: setting_that_ended(end.reason) for name, end in ends.items()} == {name: name for name in ends}
    assert setting_that_ended("stopped by SIGINT") is None
    restarted = check(rules(), values={"learner/step": 5, "learner/final": 1.0})
    assert setting_that_ended(restarted.reason) is None
