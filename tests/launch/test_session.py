"""Sessions: runs that are started, continued in pieces, inspected and changed by a program."""

import concurrent.futures
import dataclasses
import os
import pathlib
import re
import signal
import threading
import time

import numpy as np
import pytest
from agent_cases import AGENT_CASES

from callboard.environments import WeightedEnvironment
from callboard.errors import CallboardError
from callboard.launch.experiments.settings import parse_experiment, read_recipe
from callboard.launch.launchers.launcher import Launcher
from callboard.launch.launchers.local_launchers import ThreadsLauncher
from callboard.launch.launchers.registry import make_launcher
from callboard.launch.launchers.run_outcome import Outcome
from callboard.launch.run import run
from callboard.launch.run_directory.checkpoints import Checkpoints
from callboard.launch.run_directory.layout import RunDirectory
from callboard.launch.run_directory.policy_weights import read_policy
from callboard.launch.runs.background_run import SessionEnded
from callboard.launch.session import Session
from callboard.runtime.deadlines import wait_until

ENVIRONMENTS = pathlib.Path(__file__).parent / "environments"

SMALL = (
    "--env=CartPole-v1",
    "--env-options.max_episode_steps=9",
    "--agent.network.hidden-sizes=[4]",
    "--agent.batch-size=8",
    "--agent.unroll-length=5",
    "--evaluation-episodes=2",
    "--evaluation-envs=2",
    "--evaluate-every=1000",
)


@pytest.fixture
def said():
    return []


@pytest.fixture
def experiment(tmp_path):
    return parse_experiment("impala", {}, [*SMALL, f"--run-dir={tmp_path / 'run'}", "--max-steps=100000"])


class Quiet:
    def __init__(self, said):
        self.notify = said.append

    def status(self, status):
        pass


def gravity(environment):
    return environment.unwrapped.gravity


def step_limit(environment):
    return environment.unwrapped.max_episode_steps


def fail(environment):
    raise ValueError("there is no such thing\nhere")


def use(session, inference="local"):
    """What every launcher must do."""
    first = session.train(steps=1000)
    assert 1000 <= first.environment_steps < 1000 + 32 and not first.over and session.outcome is None
    later = session.train(learner_steps=3)
    assert later.learner_steps == first.learner_steps + 3 and later.environment_steps >= first.environment_steps
    assert later.episode_return is not None and later.metrics["actor/episode_return"] == later.episode_return
    before = session.get_weights()
    assert {"head/logits/output/kernel", "torso/dense/kernel"} < set(before)
    saved = session.save()
    assert saved.is_dir() and dict(zip(*read_policy(saved / "policy.npz")[:2], strict=True)).keys() == before.keys()
    session.set_weights({"torso/dense/bias": np.full(4, 3.0)})
    changed = session.get_weights()
    assert (changed["torso/dense/bias"] == 3).all()
    assert (changed["head/logits/output/kernel"] == before["head/logits/output/kernel"]).all()
    assert session.restore(saved) == int(saved.name[:12])
    for name, value in session.get_weights().items():
        assert (value == before[name]).all()
    evaluation = session.evaluate(3)
    assert len(evaluation.returns) == 3 and evaluation.mean == pytest.approx(np.mean(evaluation.returns))
    action, _ = session.policy()(np.zeros(4, np.float32))
    assert action in (0, 1)
    session.update(learning_rate=1e-30)
    frozen = session.get_weights()
    assert session.train(learner_steps=2).learner_steps == later.learner_steps + 2
    for name, value in session.get_weights().items():
        assert name.startswith("normalizer/") or np.abs(value - frozen[name]).max() < 1e-20, name
    second = session.save()
    assert session.restore(saved) == int(saved.name[:12])
    third = session.save()
    assert saved.name < second.name < third.name and saved.is_dir() and second.is_dir() and third.is_dir()
    slots = session.for_each_environment(gravity)
    assert slots == [pytest.approx(9.8)] * 32
    with pytest.raises(CallboardError) as caught:
        session.for_each_environment(fail)
    assert str(caught.value) == "actor/0: environments 0 to 15: ValueError: there is no such thing"
    assert session.for_each_actor(lambda actor: (actor.index, actor.first_slot)) == [(0, 0), (1, 16)]
    if inference == "local":
        _, weights = session.for_each_actor(lambda actor: actor.weights())
        assert {name: value.shape for name, value in weights.items()} == {
            name: value.shape for name, value in session.get_weights().items() if name in weights
        }
    else:
        with pytest.raises(CallboardError, match="actor/0: the actor has no weights: an inference node acts for it"):
            session.for_each_actor(lambda actor: actor.weights())
    with pytest.raises(CallboardError, match="actor/0: ValueError: there is no such thing"):
        session.for_each_actor(fail)


def test_an_inline_session_does_all_that_it_can(experiment, said):
    with Session(experiment, "inline", Quiet(said)) as session:
        assert session.result.environment_steps == 0 and session.run_directory == pathlib.Path(experiment.run_dir)
        use(session)
        seen = []
        for result in session:
            seen.append(result.environment_steps)
            if len(seen) == 3:
                break
        assert seen == sorted(set(seen)) and session.result.environment_steps == seen[-1]
        # With no time between them, commands do not make the run continue.
        time.sleep(0.05)
        assert session.result.environment_steps == seen[-1]
        last = session.get_weights()
    assert session.outcome.exit_code == 0 and session.outcome.reason == "its session has ended"
    directory = RunDirectory(session.run_directory)
    names, values, _ = read_policy(Checkpoints(directory).latest() / "policy.npz")
    assert {name: value.tobytes() for name, value in zip(names, values, strict=True)} == {
        name: value.tobytes() for name, value in last.items()
    }
    assert not directory.temporary.exists() and session.result.over
    with pytest.raises(SessionEnded, match="the run has ended .its session has ended"):
        session.train(steps=1)


@pytest.mark.slow
def test_training_in_pieces_gives_the_same_weights_as_in_one_piece(experiment, tmp_path, said):
    weights = []
    for name, pieces in (("whole", [2000]), ("pieces", [1008, 16, 496, 480]), ("run", [])):
        given = dataclasses.replace(experiment, run_dir=tmp_path / name, max_steps=2000)
        if pieces:
            with Session(given, "inline", Quiet(said)) as session:
                for steps in pieces:
                    assert session.get_weights()
                    result = session.train(steps=steps)
                assert result.environment_steps >= 2000
        else:
            run(given, "inline", Quiet(said))
        latest = Checkpoints(RunDirectory(tmp_path / name)).latest()
        weights.append([value.tobytes() for value in read_policy(latest / "policy.npz").values])
        steps = latest.name
    assert weights[0] == weights[1] == weights[2], steps


@pytest.mark.slow
def test_a_session_in_another_thread_is_iterated_over_to_the_end_of_the_run(experiment, said):
    experiment = dataclasses.replace(experiment, max_steps=2500)

    def train():
        with Session(experiment, "inline", Quiet(said)) as session:
            begun = time.monotonic()
            session.train(seconds=0.1)
            assert time.monotonic() - begun >= 0.1
            results = list(session)
            # What needs no running node is still there.
            assert len(session.evaluate(2).returns) == 2 and session.save().is_dir()
            return results, session.outcome

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        results, outcome = pool.submit(train).result(120)
    assert [result.over for result in results[:-1]] == [False] * (len(results) - 1)
    assert results[-1].over and 2500 <= results[-1].environment_steps < 2500 + 16
    assert outcome.score is not None and results[-1].score == outcome.score


@pytest.mark.slow("daily")
def test_changes_of_settings_survive_the_session(experiment, said):
    with Session(experiment, "inline", Quiet(said)) as session:
        session.update(entropy_cost=0.5, **{"optimizer.learning_rate": 1e-30})
        session.train(steps=500)
        weights = session.get_weights()
    with Session(experiment, "inline", Quiet(said), resume=True) as session:
        session.train(learner_steps=3)
        for name, value in session.get_weights().items():
            assert name.startswith("normalizer/") or np.abs(value - weights[name]).max() < 1e-20


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda session: session.train(), "name a limit: train.steps=...."),
        (lambda session: session.train(steps=0), "steps must be greater than 0, not 0"),
        (lambda session: session.train(steps="9"), "steps must be greater than 0, not '9'"),
        (lambda session: session.update(task={"size": 3}), "CartPole-v1 cannot be set to a task"),
        (lambda session: session.save(policy="red"), "the run has one policy, without a name: leave out policy='red'"),
        (
            lambda session: session.update(entropy_costs=1),
            "unknown setting 'entropy_costs'; did you mean 'entropy_cost'",
        ),
        (lambda session: session.update(discount=0.9), "discount cannot change while impala learns; what can is "),
        (
            lambda session: session.update(entropy_cost=-1),
            "agent.entropy_cost must be a number of at least 0 or a schedule",
        ),
        (lambda session: session.for_each_environment(3), "for_each_environment needs a function of an"),
        (lambda session: session.for_each_actor("weights"), "for_each_actor needs a function of an actor, not 'w"),
        (lambda session: session.for_each_environment(threading.Lock().acquire), "cannot be pickled .TypeError: "),
        (lambda session: session.evaluate(0), "episodes must be a whole number of at least 1, not 0"),
        (lambda session: session.evaluate("x"), "episodes must be a whole number of at least 1, not 'x'"),
        (lambda session: session.restore("/nowhere"), "/nowhere is not a checkpoint"),
        (lambda session: session.restore(None), "name the checkpoint by a path or a URL, not by a NoneType"),
        (lambda session: session.set_weights(None), "weights must be arrays by name, as get_weights returns them"),
        (lambda session: session.stop(""), "the reason to stop must be a text, such as 'solved', not ''"),
        (lambda session: session.stop(None), "the reason to stop must be a text, such as 'solved', not None"),
        (
            lambda session: session.start(),
            "the session has started its run already: continue with it, or close it first",
        ),
        (lambda session: session.set_weights({"torso/dense/bia": 1}), "unknown weight 'torso/dense/bia'; did you mean"),
    ],
)
def test_what_a_session_cannot_do_is_refused_and_changes_nothing(paused, call, message):
    before = paused.get_weights()
    with pytest.raises(CallboardError, match=message) as caught:
        call(paused)
    assert "\n" not in str(caught.value)
    for name, value in paused.get_weights().items():
        assert (value == before[name]).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda session: session.evaluate(1),
        lambda session: session.policy(),
        lambda session: session.save(),
        lambda session: session.restore("checkpoint"),
        lambda session: session.get_weights(),
        lambda session: session.set_weights({}),
        lambda session: session.update(entropy_cost=1),
        lambda session: session.for_each_environment(str),
        lambda session: session.for_each_actor(str),
        lambda session: session.stop(),
        lambda session: session.run_directory,
        lambda session: session.result,
        lambda session: next(iter(session)),
        lambda session: session.train(steps=1),
    ],
)
def test_what_needs_a_run_says_that_there_is_none(experiment, call):
    with pytest.raises(CallboardError, match="the session was not started: use it in a with block, or call start"):
        call(Session(experiment, "inline"))


@pytest.fixture(scope="module")
def paused(tmp_path_factory):
    run_dir = tmp_path_factory.mktemp("paused") / "run"
    with Session(parse_experiment("impala", {}, [*SMALL, f"--run-dir={run_dir}"]), "inline", Quiet([])) as session:
        yield session


def test_what_cannot_be_run_is_refused_at_the_start(experiment, said):
    for number in range(2):
        session = Session(dataclasses.replace(experiment, replay_shards=2), "inline", Quiet(said))
        with pytest.raises(CallboardError, match="set replay_shards to 1"):
            session.start()
        assert session.close().reason == "", number
    with pytest.raises(CallboardError, match=r"launcher must be a name, or a Launcher such as .*\(\), not <class"):
        Session(experiment, ThreadsLauncher)


@dataclasses.dataclass(frozen=True)
class AtItsEnd(Launcher):
    """Its run ends as soon as it has begun."""

    name = "at_its_end"

    def run(self, program, run, monitor):
        monitor.status({"environment_steps": 0, "time": 0.0})
        outcome = Outcome()
        outcome.reached_limit("it has begun")
        return outcome


def start_to_end(session):
    session.start()
    assert wait_until(lambda: session.outcome is not None, 20)
    session.close()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("first", [Session.run, start_to_end])
@pytest.mark.parametrize("second", [Session.run, Session.start, Session.__enter__])
def test_a_session_has_one_run_which_a_second_start_does_not_replace(experiment, said, overwrite, first, second):
    session = Session(experiment, AtItsEnd(), Quiet(said), overwrite=overwrite)
    first(session)
    kept = pathlib.Path(experiment.run_dir) / "checkpoints"
    kept.mkdir(parents=True, exist_ok=True)
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SessionEnded, match="continue it in Session.experiment, resume=True., or make a Session for"):
        second(session)
    assert kept.exists() and signal.getsignal(signal.SIGTERM) is handler
    session.close()


@dataclasses.dataclass(frozen=True)
class NeverReady(Launcher):
    """Its run fails before a node reports."""

    name = "never_ready"

    def run(self, program, run, monitor):
        outcome = Outcome()
        outcome.failed("replay/0", "no memory")
        return outcome


def test_a_run_that_fails_while_it_starts_leaves_its_directory_unlocked(experiment, said):
    for number in range(2):
        with pytest.raises(CallboardError, match="replay/0 failed: no memory"), Session(experiment, NeverReady()):
            pytest.fail(f"run {number} was started")
    session = Session(experiment, NeverReady())
    for _ in range(2):
        # A start that has failed may be repeated.
        with pytest.raises(CallboardError, match="replay/0 failed: no memory"):
            session.start()
    assert not (pathlib.Path(experiment.run_dir) / "lock").exists()


@pytest.mark.slow("daily")
def test_the_failure_of_a_node_is_raised(experiment, said, monkeypatch):
    monkeypatch.syspath_prepend(ENVIRONMENTS)
    # Nothing is learned before the step that gives it.
    agent = dataclasses.replace(experiment.agent, unroll_length=200)
    experiment = dataclasses.replace(experiment, agent=agent, env="broken_environments:GivesNaN", env_options={})
    session = Session(dataclasses.replace(experiment, evaluator=False), "inline", Quiet(said))
    with pytest.raises(CallboardError, match="actor/0 failed: the observation of environment .* is NaN"), session:
        session.train(steps=100_000)
    assert session.outcome.exit_code == 1


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["threads", "processes", "launchpad", "ray"])
@pytest.mark.parametrize("inference", ["local", "central"])
def test_a_session_does_the_same_under_every_launcher(experiment, said, launcher, inference):
    experiment = dataclasses.replace(experiment, inference=inference, max_steps=10**8)
    with Session(experiment, launcher, Quiet(said)) as session:
        use(session, inference)
        seen = []
        for result in session:
            seen.append(result.environment_steps)
            if len(seen) == 2:
                break
    assert session.outcome.exit_code == 0, session.outcome
    assert threading.active_count() < 100


@pytest.mark.slow
@pytest.mark.parametrize("launch_type", ["local_mt", "local_mp"])
def test_launchpad_sends_no_signal_to_a_program_whose_session_ends(experiment, said, launch_type):
    arrived = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: arrived.append(number))
    try:
        experiment = dataclasses.replace(experiment, max_steps=500)
        session = Session(experiment, make_launcher("launchpad", {"launch_type": launch_type}), Quiet(said)).start()
        assert session.train(steps=10_000).over
        assert session.close().reason.startswith("reached max_steps") and arrived == []
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["threads", "processes"])
def test_actors_are_at_rest_once_a_session_has_paused(experiment, said, launcher, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ENVIRONMENTS), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(ENVIRONMENTS)
    experiment = dataclasses.replace(experiment, env="slow_environments:SlowSteps", env_options={}, evaluator=False)
    with Session(experiment, launcher, Quiet(said)) as session:
        for pause in range(3):
            if pause:
                session.train(seconds=1.0)
            else:
                for result in session:
                    if result.learner_steps:
                        break
            steps = session.result.environment_steps
            time.sleep(1.0)
            assert session.result.environment_steps == steps > 0


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["processes", "hosts", "ray"])
def test_a_mixture_of_environments_shares_the_slots(experiment, said, launcher, launcher_named):
    short = WeightedEnvironment("CartPole-v1", options={"max_episode_steps": 9})
    mixture = (WeightedEnvironment("CartPole-v1", weight=3), short)
    evaluation = {"evaluation_envs": 4, "evaluation_episodes": 4}
    experiment = dataclasses.replace(experiment, env=mixture, env_options={}, **evaluation)
    with Session(experiment, launcher_named(launcher, experiment.actors), Quiet(said)) as session:
        session.train(learner_steps=2)
        assert sorted(session.for_each_environment(step_limit)) == [9] * 8 + [500] * 24


@pytest.mark.slow
@pytest.mark.parametrize("case", AGENT_CASES, ids=lambda case: case.name)
def test_a_session_trains_every_agent(case, said, tmp_path):
    options = [f"--run-dir={tmp_path / 'run'}", "--stop-return=null", "--agent.network.hidden-sizes=[4]"]
    experiment = parse_experiment(None, read_recipe(case.recipe), options)
    with Session(experiment, "processes", Quiet(said)) as session:
        session.train(learner_steps=2)
        weights = session.get_weights()
        session.set_weights(weights)
        session.update(learning_rate=1e-5)
        assert len(session.evaluate(2).returns) == 2
        session.restore(session.save())
        session.train(learner_steps=2)


@pytest.mark.slow
def test_a_session_survives_the_death_of_coordinator_learner_and_actor(experiment, said):
    with Session(dataclasses.replace(experiment, max_steps=10**8), "processes", Quiet(said)) as session:
        session.train(steps=1000)
        for node in ("coordinator/0", "learner/0", "actor/0"):
            log = RunDirectory(session.run_directory).log(node).read_text()
            os.kill(int(re.findall(r"begins, process (\d+)", log)[-1]), signal.SIGKILL)
            session.save()
            before = session.result.environment_steps
            assert session.train(steps=1000).environment_steps >= before + 1000
            assert any(f"{node}: killed by SIGKILL" in line for line in said)
    assert session.outcome.exit_code == 0
