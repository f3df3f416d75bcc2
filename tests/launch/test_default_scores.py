"""Every agent learns with nothing but its name, an environment and limits.  The figures in docs/defaults.md come from
here."""

import pytest
from agent_cases import AGENT_CASES

pytestmark = pytest.mark.slow


@pytest.mark.score
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "agent, task",
    [(case.name, task) for case in AGENT_CASES for task in case.default_tasks],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_an_agent_learns_with_its_defaults(start, tmp_path, agent, task, seed):
    env, goal, steps = task
    if env.startswith("MinAtar"):
        pytest.importorskip("minatar")
    limits = ["--max-steps", steps, "--stop-return", goal, "--seed", seed]
    run = start("train", agent, "--env", env, *limits, "--run-dir", tmp_path / "run")
    assert run.wait(timeout=3600) == 0, run.text()
    returns = [
        (row["evaluator/environment_steps"], round(row["evaluator/return"], 1))
        for row in run.rows()
        if "evaluator/return" in row
    ]
    print(f"\n{agent} on {env}, seed {seed}: {returns}")
    assert max(value for _, value in returns) >= goal
