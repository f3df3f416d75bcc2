"""Settings that refusals of an experiment propose: with each alternative, the experiment is accepted."""

import re

import pytest

from callboard.errors import CallboardError
from callboard.launch.experiments.option_parsing import option_name
from callboard.launch.experiments.run_checks import check_experiment
from callboard.launch.experiments.settings import parse_experiment
from callboard.launch.launchers.registry import make_launcher

SET = re.compile(r"(?:set |leave |or )([a-z_]+(?:\.[\w.]+)*) (?:to|at) (?:at most |at least )?([\w.]+)(?: or (\d+))?")
MULTIPLE = re.compile(r"make ([\w.]+) a multiple of (\d+)")
LEFT_OUT = re.compile(r"leave ([a-z_]+) out")
LAUNCHER = re.compile(r"--launcher (\w+)(?: or (\w+))?")

CASES = [
    ("impala", ["--agent.batch-size=24"], "processes"),
    ("impala", ["--replay-shards=5"], "processes"),
    ("apex", ["--inference-nodes=2"], "processes"),
    ("apex", ["--inference=central", "--inference-nodes=3"], "processes"),
    ("ppo", ["--learners=2"], "threads"),
    ("apex", ["--replay-shards=2"], "inline"),
    ("ppo", ["--agent.batch-size=30"], "processes"),
    ("ppo", ["--agent.minibatches=7"], "processes"),
    ("ppo", ["--evaluation-episodes=5", "--evaluation-envs=20"], "processes"),
    ("apex", ["--evaluation-mode=sampled"], "processes"),
    ("ppo", ["--learners=2", "--learner-devices=CPU:0,CPU:1"], "processes"),
    ("ppo", ["--stop-return=5", "--evaluator=false"], "processes"),
    ("apex", ["--agent.batch-size=127", "--learner-devices=CPU:0,CPU:1"], "processes"),
    ("ppo", ["--max-steps=500"], "processes"),
    ("a3c", ["--max-steps=50"], "processes"),
    ("apex", ["--agent.replay.size=100", "--agent.replay.min-size=50"], "processes"),
]


def refusal(agent, options, launcher):
    """The message with which a run is refused, or None."""
    try:
        experiment = parse_experiment(agent, {"env": "CartPole-v1"}, options)
        make_launcher(launcher, {}).check(experiment)
        check_experiment(experiment)
    except CallboardError as error:
        return str(error)
    return None


def alternatives(message):
    """Each alternative of a message: options, and a launcher or None."""
    found = [
        ([f"{option_name(name)}={value}"], None) for name, *values in SET.findall(message) for value in values if value
    ]
    found += [([f"{option_name(name)}={2 * int(number)}"], None) for name, number in MULTIPLE.findall(message)]
    found += [([name], None) for name in LEFT_OUT.findall(message)]
    return found + [([], name) for names in LAUNCHER.findall(message) for name in names if name]


@pytest.mark.slow("daily")
@pytest.mark.parametrize(("agent", "options", "launcher"), CASES, ids=lambda part: str(part))
def test_what_a_refusal_proposes_is_accepted(agent, options, launcher):
    message = refusal(agent, options, launcher)
    assert message
    proposed = alternatives(message)
    assert proposed, message
    for changes, other in proposed:
        kept = (
            [option for option in options if option.partition("=")[0] != option_name(changes[0])]
            if changes
            else options
        )
        added = [change for change in changes if change.startswith("--")]
        again = refusal(agent, [*(kept if not added else options), *added], other or launcher)
        assert again is None, f"{message}; then: {again}"
