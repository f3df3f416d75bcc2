"""The peers: what is counted from outside, what is made of it, and that nothing is left running."""

import ast
import dataclasses
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from callboard.agents.impala import Impala
from callboard.benchmarks.command import main
from callboard.benchmarks.peers import ours, rounds
from callboard.benchmarks.peers.inside import work
from callboard.benchmarks.peers.inside.work import REPLAY
from callboard.benchmarks.peers.program import (
    VENVS,
    Counts,
    Episode,
    ProgramFailed,
    Tally,
    interpreter,
    moment_of,
    rates,
    seconds_to,
    started,
)
from callboard.benchmarks.peers.rounds import PEERS, Contest, Figure, Peer, contests, takes_part
from callboard.benchmarks.results import load
from callboard.benchmarks.side import SideFailed
from callboard.errors import CallboardError
from callboard.launch.experiments.settings import parse_experiment, read_recipe


@pytest.fixture
def tally(tmp_path, monkeypatch):
    monkeypatch.setenv(work.TALLY, str(tmp_path))
    return Tally(tmp_path)


def test_counts_of_several_processes_add_up(tally):
    first, second = work.Trained(), work.Trained()
    first.update(640)
    first.update(600)
    second.update(160)
    work.Played().steps(7)
    work.Played().steps(5)
    counts = tally.counts()
    assert (counts.steps, counts.frames, counts.updates) == (12, 1400, 3)


def test_nothing_was_counted_yet(tally, tmp_path):
    # Made, but not as long as it will be.
    (tmp_path / "trained-x").touch()
    assert tally.counts()[1:] == (0, 0, 0)
    assert tally.episodes() == []


def test_episodes_are_read_once_and_in_order(tally, tmp_path):
    (tmp_path / "episodes-a").write_text("3.5 10.0 10\n9.0 30.0 30\n")
    (tmp_path / "episodes-b").write_text("4.5 20.0 20\n12.0 40")
    assert [episode.episode_return for episode in tally.episodes()] == [10.0, 20.0, 30.0]
    with (tmp_path / "episodes-b").open("a") as file:
        file.write(".5 40\n")
    assert tally.episodes()[2:] == [Episode(9.0, 30.0), Episode(12.0, 40.5)]


def test_an_environment_counts(tally):
    environment = work.make("cartpole")
    steps, lengths = 0, []
    for seed in range(5):
        environment.reset(seed=seed)
        over, length = False, 0
        while not over:
            _, _, terminated, truncated, _ = environment.step(0)
            over, length = terminated or truncated, length + 1
        steps += length
        lengths.append(float(length))
    environment.reset(seed=9)
    environment.step(0)
    assert tally.counts().steps == steps + 1
    # The reward of CartPole is 1 a step; the last episode has not ended.
    assert [episode.episode_return for episode in tally.episodes()] == lengths


def test_our_batch_counts_steps_but_no_resets(tally):
    batch = ours.cartpole(3, [1, 2, 3])
    batch.reset()
    steps, returns, lengths = 0, np.zeros(3), []
    for _ in range(60):
        timestep = batch.step(np.zeros(3, np.int32))
        for env in range(3):
            if timestep.first[env]:
                continue
            steps += 1
            returns[env] += 1.0
            if timestep.last[env]:
                lengths.append(returns[env])
                returns[env] = 0.0
    assert tally.counts().steps == steps < 180
    assert sorted(episode.episode_return for episode in tally.episodes()) == sorted(lengths)
    assert len(lengths) >= 12


def test_an_environment_with_several_agents_counts_its_own_steps_on_both_sides(tally):
    pytest.importorskip("mpe2.simple_spread_v3")
    theirs, own = work.make("spread"), ours.spread()
    for environment in (theirs, own):
        environment.reset(seed=1)
        for _ in range(25):
            environment.step(dict.fromkeys(own.agents, 1))
    assert tally.counts().steps == 50
    first, second = (episode.episode_return for episode in tally.episodes())
    assert first == pytest.approx(second) and first < -20


def test_several_agents_learn_with_the_settings_of_all_sides(tmp_path):
    _, _, _, _, agent, *options = ours.command("spread", "rate", 3, str(tmp_path))
    run = parse_experiment(agent, {}, options)
    assert isinstance(run.agent, ours.CountedPpo)
    assert (run.agent.unroll_length, run.agent.epochs, run.agent.minibatches) == (50, 10, 8)
    assert run.agent.batch_size == run.actors * run.envs_per_actor == 32
    assert run.agent.network.hidden_sizes == work.HIDDEN and not run.agent.network.shared
    assert run.agent.network.head_sizes == ()


def test_pong_is_learned_with_the_settings_and_the_environments_of_the_peer(tmp_path, monkeypatch):
    _, _, _, _, agent, *options = ours.command("pong", "rate", 3, str(tmp_path))
    run = parse_experiment(agent, {}, options)
    assert isinstance(run.agent, ours.CountedPpo)
    assert (run.agent.unroll_length, run.agent.epochs, run.agent.minibatches) == (128, 4, 4)
    assert run.agent.batch_size == run.actors * run.envs_per_actor == 8
    assert run.agent.network.torso == "nature" and run.agent.network.head_sizes == ()
    assert run.agent.frame_stack == 4 and run.agent.optimizer.learning_rate == 2.5e-4
    monkeypatch.setenv(VENVS, str(tmp_path))
    with pytest.raises(CallboardError, match=re.escape(str(tmp_path / "cleanrl" / "bin" / "python"))):
        ours.pong(2, [1, 2])


@pytest.mark.parametrize("task, hidden", [("cartpole", work.HIDDEN), ("images", ())])
def test_policy_and_value_share_all_layers_where_rates_are_measured(task, hidden, tmp_path):
    _, _, _, _, agent, *options = ours.command(task, "rate", 3, str(tmp_path))
    network = parse_experiment(agent, {}, options).agent.network
    assert network.hidden_sizes == hidden and network.head_sizes == ()


@pytest.mark.parametrize("task", REPLAY)
def test_the_networks_of_replay_are_those_of_the_peers(task, tmp_path):
    _, _, _, _, agent, *options = ours.command(task, "rate", 3, str(tmp_path))
    network = parse_experiment(agent, {}, options).agent.network
    assert network.hidden_sizes == REPLAY[task].hidden
    if task == "dqn":
        assert network.stream_size == 0 and not network.dueling


def test_we_run_for_the_score_as_our_recipe_says(tmp_path):
    _, _, _, _, agent, *options = ours.command("cartpole", "score", 3, str(tmp_path))
    run = parse_experiment(agent, {}, options)
    recipe = parse_experiment(None, read_recipe("impala-cartpole"), [])
    fields = {field.name for field in dataclasses.fields(recipe.agent)}
    same = {name: value for name, value in dataclasses.asdict(run.agent).items() if name in fields}
    assert same == dataclasses.asdict(recipe.agent) and same != dataclasses.asdict(Impala())
    for name in ("actors", "envs_per_actor", "max_steps"):
        assert getattr(run, name) == getattr(recipe, name)


def test_images_are_of_the_shape_and_cost_of_procgen(tally):
    environment = work.make("images")
    observation, _ = environment.reset()
    assert observation.shape == (64, 64, 3) and observation.dtype == np.uint8
    begun = time.thread_time()
    outcomes = [environment.step(3) for _ in range(1000)]
    assert time.thread_time() - begun >= 1000 * 60e-6
    assert [outcome[3] for outcome in outcomes] == [False] * 999 + [True]
    assert len(tally.episodes()) == 1


def test_the_moment_when_the_mean_is_reached():
    returns = [10.0, 500.0, 490.0, 460.0, 480.0, 500.0]
    ended = [Episode(float(index), one) for index, one in enumerate(returns)]
    # Means of three: -, -, 333, 483, 477, 480.
    assert moment_of(ended, 475.0, 3) == 3.0
    assert moment_of(ended, 483.5, 3) is None
    assert moment_of(ended[:2], 0.0, 3) is None
    # 450 is what the first ones reach; without those that have left the window it would be later.
    assert moment_of(ended, 490.0, 1) == 1.0


class Scripted:
    """A program whose counts are known at each look; no time passes."""

    def __init__(self, *counts):
        self._counts = list(counts)
        self.tally = self
        self.looks = 0

    def counts(self):
        self.looks += 1
        return self._counts[min(self.looks, len(self._counts)) - 1]

    def wait(self, condition, seconds):
        for _ in self._counts:
            if condition():
                return True
        return False

    def log(self):
        return "its last line"


def test_rates_are_taken_from_update_to_update():
    program = Scripted(
        Counts(0.0, 100, 0, 0),
        Counts(1.0, 200, 100, 1),  # The first update: from here on it warms up.
        Counts(2.0, 900, 300, 2),
        Counts(4.0, 1000, 500, 3),  # Warm.
        Counts(9.0, 1600, 900, 4),
        Counts(13.0, 9999, 900, 4),  # Long enough, but no update: what was played since has not been learned from.
        Counts(14.0, 2000, 1500, 5),
        Counts(20.0, 9999, 9999, 6),
    )
    # From 4 s to 14 s, the first update at least 8 s later.
    assert rates(program, warm_up=3.0, seconds=8.0, patience=1e9) == (100.0, 100.0)
    assert program.looks == 7


def test_too_few_updates_are_a_failure():
    with pytest.raises(ProgramFailed, match="its last line"):
        rates(Scripted(Counts(0.0, 0, 0, 0), Counts(1.0, 9, 9, 1)), warm_up=1.0, seconds=1.0, patience=9.0)


def python(code):
    return lambda directory: [sys.executable, "-c", code]


def alive(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


ORPHAN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN) if STUBBORN else None
sleep = [sys.executable, "-c", "import time; time.sleep(100)"]
child = subprocess.Popen(sleep)
# One that knows no parent, and is in a session of its own.
code = f"import subprocess; print(subprocess.Popen({sleep}, start_new_session=True, stdout=2).pid)"
orphan = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True).stdout.strip()
open(f"/dev/shm/torch_{os.getpid()}_1_0", "w").close()
open("pids", "w").write(f"{os.getpid()} {child.pid} {orphan}\\n")
time.sleep(100)
"""


@pytest.mark.parametrize("stubborn", [pytest.param(False, marks=pytest.mark.slow), True])
def test_nothing_is_left_running(stubborn, monkeypatch):
    monkeypatch.setattr("callboard.benchmarks.peers.program._END_SECONDS", 0.5)
    with started(python(ORPHAN.replace("STUBBORN", str(stubborn)))) as program:
        path = pathlib.Path(program._log.parent, "pids")
        assert program.wait(lambda: path.exists() and path.read_text().endswith("\n"), 30.0)
        pids = [int(pid) for pid in path.read_text().split()]
        assert len(pids) == 3 and all(alive(pid) for pid in pids)
        shared = pathlib.Path(f"/dev/shm/torch_{pids[0]}_1_0")
        assert shared.exists()
    assert not any(alive(pid) for pid in pids)
    assert not path.parent.exists() and not shared.exists()


def test_a_program_that_ends_shows_its_last_lines():
    with (
        pytest.raises(ProgramFailed, match="code 3:\nno such thing"),
        started(python("import sys; print('no such thing'); sys.exit(3)")) as program,
    ):
        rates(program, 0.0, 1.0, 30.0)


def test_seconds_count_from_the_command():
    code = (
        "import os, time; time.sleep(0.3)\n"
        "file = open(os.environ['CALLBOARD_PEERS_TALLY'] + '/episodes-x', 'w')\n"
        "file.write(''.join(f'{time.monotonic()} {episode_return} 9\\n' for episode_return in (100.0, 480.0, 470.0)))\n"
        "file.close(); time.sleep(60)"
    )
    with started(python(code)) as program:
        assert 0.3 <= seconds_to(program, 475.0, 2, limit=30.0) < 30.0
        assert seconds_to(program, 476.0, 2, limit=0.1) is None


A, B = Peer("A", "a", "a", target=3.0), Peer("B", "b", "b")


@pytest.fixture
def measured(monkeypatch):
    """Figures by name; what was measured, in turn."""
    turns = []

    def measure_side(contest, peer, seed, notify):
        name = peer.name if peer else "ours"
        turns.append((name, seed))
        return figures[name][seed - 1]

    figures = {"ours": [Figure(10.0), Figure(20.0), Figure(30.0)]}
    monkeypatch.setattr(rounds, "_measure_side", measure_side)
    return figures, turns


def contest(**changes):
    one = Contest("cartpole", "cartpole", "rate", "steps/s", None, lambda peer: peer.target)
    return one._replace(**changes)


def test_all_sides_have_their_turn_in_each_round(measured):
    figures, turns = measured
    figures |= {"A": [Figure(5.0), Figure(5.0), Figure(5.0)], "B": [Figure(10.0), None, Figure(10.0)]}
    a, b = rounds._measure_contest(contest(), [A, B], 3, lambda line: None)
    assert [name for name, _ in turns] == ["ours", "A", "B", "B", "A", "ours", "ours", "A", "B"]
    assert [seed for _, seed in turns] == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert (a.name, a.ratios, a.target, a.reached) == ("cartpole, A", [2.0, 4.0, 6.0], 3.0, True)
    # The second round of B has failed: it is no ratio, and the others have theirs.
    assert (b.ratios, b.target, b.note) == ([1.0, 3.0], None, "")


def test_what_was_given_up_says_so_and_what_fails_is_left_out(measured):
    figures, _ = measured
    figures |= {"A": [Figure(150.0, ended=True), Figure(40.0), Figure(150.0, ended=True)], "B": [None] * 3}
    (case,) = rounds._measure_contest(
        contest(higher_is_better=False, target=lambda peer: 1.0), [A, B], 3, lambda line: None
    )
    assert case.note == "the peer not there in 2 of 3"
    assert case.reached and case.limit == [150.0, 40.0, 150.0]


def test_a_side_that_fails_is_named(monkeypatch):
    lines = []
    broken = [sys.executable, "-c", "print('broken'); 1 / 0"]
    monkeypatch.setattr(Peer, "command", lambda *arguments: broken)
    monkeypatch.setattr(ours, "command", lambda *arguments: broken)
    one = contest(measure=lambda program: Figure(rates(program, 0.0, 1.0, 30.0).steps))
    for side, name in ((A, "A"), (None, "ours")):
        assert rounds._measure_side(one, side, 1, lines.append) is None
        assert f"{name} has failed" in lines[-1] and "ZeroDivisionError" in lines[-1]


def test_no_figure_at_all_is_a_failure(monkeypatch, measured):
    figures, _ = measured
    figures |= {"A": [None], "ours": [None]}
    monkeypatch.setattr(rounds, "PEERS", (A,))
    monkeypatch.setattr(Peer, "python", lambda peer: pathlib.Path(sys.executable))
    with pytest.raises(SideFailed):
        rounds.measure(1, quick=True, only="images", notify=lambda line: None)
    # No weights were requested.
    assert rounds.measure(1, quick=True, only="no such case", notify=lambda line: None) == []


def test_a_peer_that_is_not_there_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setenv(VENVS, str(tmp_path))
    lines = []
    assert rounds.measure(1, quick=True, only="", notify=lines.append) == []
    assert [line.split(" is left out")[0] for line in lines] == [peer.name for peer in PEERS]


def test_what_runs_inside_knows_nothing_of_ours():
    inside = pathlib.Path(rounds.__file__).parent / "inside"
    scripts = sorted(inside.glob("*.py"))
    assert {peer.script for peer in PEERS} <= {script.stem for script in scripts}
    for script in scripts:
        for node in ast.walk(ast.parse(script.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0 and not (node.module or "").startswith("callboard"), script
            if isinstance(node, ast.Import):
                assert not any(alias.name.startswith("callboard") for alias in node.names), script


def test_setup_is_a_script_and_knows_every_peer():
    setup = pathlib.Path(rounds.__file__).parent / "setup"
    subprocess.run(["bash", "-n", str(setup)], check=True)
    assert setup.stat().st_mode & 0o111
    for peer in PEERS:
        assert f"    {peer.venv}) make_peer {peer.venv} " in setup.read_text()
        assert (setup.parent / "requirements" / f"{peer.venv}.txt").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "task, goal",
    [
        ("cartpole", "rate"),
        ("cartpole", "score"),
        ("images", "rate"),
        ("spread", "rate"),
        ("pong", "rate"),
        ("dqn", "rate"),
        ("sac", "rate"),
    ],
)
def test_ours_is_counted(task, goal):
    if task == "spread":
        pytest.importorskip("mpe2.simple_spread_v3")
    if task == "pong" and not interpreter("cleanrl").exists():
        pytest.skip(f"{interpreter('cleanrl')} does not exist: benchmarks/peers/setup makes it")
    with started(lambda directory: ours.command(task, goal, 1, directory), signal.SIGINT) as program:
        # Beside other work, the steps of images come in batches that are seconds apart.
        found = rates(program, warm_up=0.0, seconds=20.0 if task in ("images", "pong") else 3.0, patience=240.0)
        episodes = program.tally.episodes()
    # A queue lets the learner lag a little; no frame is learned from twice, and none is left out for long.
    each = REPLAY[task].updates_per_step if task in REPLAY else 3 if task == "spread" else 1
    assert found.frames == pytest.approx(each * found.steps, rel=0.5)
    if task == "cartpole":
        assert all(1 <= episode.episode_return <= 500 for episode in episodes) and len(episodes) > 20


def measured_pairs():
    """Every contest with every peer that takes part in it."""
    for contest in contests(quick=True):
        for peer in PEERS:
            if takes_part(peer, contest):
                yield pytest.param(contest.name, peer, id=f"{contest.name}-{peer.script}")


@pytest.mark.slow
@pytest.mark.parametrize("contest, peer", measured_pairs())
def test_a_peer_is_measured_beside_us(contest, peer, tmp_path):
    if not peer.python().exists():
        pytest.skip(f"{peer.python()} does not exist: benchmarks/peers/setup makes it")
    name = f"{contest}, {peer.name}"
    arguments = ["run", "peers", "--quick", "--repeats", "1", "--only", name, "--output", str(tmp_path)]
    assert main(arguments) == 0
    (result,) = load(tmp_path / "peers.json")
    (case,) = result.cases
    assert case.name == name and case.ours[0] > 0 and case.limit[0] > 0
