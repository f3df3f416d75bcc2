"""The learner makes the updates that `samples_per_insert` promises for the environment steps, on every launcher."""

import pytest

STEPS, MIN_SIZE, BATCH = 1600, 400, 32
WITHOUT_ITEM = 2 * 4
"""Steps whose transition is not complete at the end, in 2 actors with 4 environments, one each."""
CALL = 8
"""Updates of a call, one for each environment: less than a call is not made at the end."""
SETTINGS = {
    "--agent.replay.min-size": MIN_SIZE,
    "--agent.batch-size": BATCH,
    "--agent.replay.samples-per-insert": BATCH,
    "--agent.network.hidden-sizes": "[8]",
    "--max-steps": STEPS,
    "--actors": 2,
    "--envs-per-actor": 4,
}


@pytest.mark.slow
@pytest.mark.parametrize("evaluation", [(), ("--no-evaluator",)], ids=["evaluated", "not evaluated"])
@pytest.mark.parametrize("inference", ["local", "central"])
@pytest.mark.parametrize("launcher", ["inline", "threads", "processes"])
def test_one_update_is_made_for_every_step_after_the_first_ones(start, tmp_path, launcher, inference, evaluation):
    options = [part for option in SETTINGS.items() for part in option]
    where = ["--launcher", launcher, "--inference", inference, "--evaluation-episodes", 1, *evaluation]
    run = start("train", "sac", "--env", "Pendulum-v1", *options, *where, "--run-dir", tmp_path / "run")
    assert run.wait(timeout=300) == 0, run.text()
    last = [row for row in run.rows() if "learner_steps" in row][-1]
    promised = last["environment_steps"] - MIN_SIZE
    print(f"{launcher}, {inference}: {last['learner_steps']} updates of {promised}")
    assert promised - WITHOUT_ITEM - CALL <= last["learner_steps"] <= promised and last["learner_steps"] % CALL == 0
