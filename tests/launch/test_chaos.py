"""Runs in which two things go wrong at once, again and again, chosen by a seed.

A test lasts for `CALLBOARD_CHAOS_SECONDS` (120 by default) with the seed `CALLBOARD_CHAOS_SEED` (0 by default).  The
agent is IMPALA, which learns from each sequence once, on an environment that numbers its timesteps.
"""

import collections
import json
import os
import shutil
import signal
import subprocess
import time

import pytest
import tensorflow as tf
from faults import NODES, Scene, Schedule, cut, disturb, fill, freeze, kill, lose_machine, stop
from ray_clusters import ray_cluster

from callboard.files.manifest import damage

pytestmark = pytest.mark.slow

SECONDS = float(os.environ.get("CALLBOARD_CHAOS_SECONDS", "120"))
SEED = int(os.environ.get("CALLBOARD_CHAOS_SEED", "0"))
NODE_TIMEOUT = 12
RAY_NODE_TIMEOUT = 60
"""Processes that Ray starts send no heartbeat for long on a busy machine, and no node may die often there."""
OF_NODES = [(fault, node) for fault in (kill, stop) for node in NODES]
OF_HOSTS = [(fault, host) for fault in (cut, disturb, freeze) for host in ("a", "b")]


@pytest.fixture
def small_disk(tmp_path):
    """The run directory on a disk of its own, which is quickly full."""
    path = tmp_path / "run"
    path.mkdir(mode=0o700)
    mounted = os.geteuid() == 0 and shutil.which("mount") is not None
    if not mounted or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "tmpfs", path]).returncode:
        pytest.skip("a disk of its own needs root")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


@pytest.fixture
def settings(tmp_path):
    return [
        *("--env", "numbered:Numbered", "--agent.learned-log", tmp_path / "learned.txt"),
        *("--agent.unroll-length", 5, "--agent.batch-size", 16, "--agent.optimizer.learning-rate", 1e-6),
        *("--checkpoint-every", 2, "--evaluate-every", 20_000, "--node-timeout", NODE_TIMEOUT),
        *("--max-steps", 1_000_000_000, "--stop-return", "null"),
    ]


class Invariants:
    """What must hold throughout a run, and at its end."""

    def __init__(self, run, learned):
        self.run = run
        self.learned = learned
        self._counted = {}

    def check(self, done):
        """Counters never decrease in the metrics, and every checkpoint is intact."""
        assert self.run.process.poll() is None, (done, self.run.text())
        before = {}
        for row in self.run.rows():
            for name in ("environment_steps", "learner_steps"):
                assert row[name] >= before.get(name, 0), (name, done)
                before[name] = row[name]
        for name, count in self._counted.items():
            assert before.get(name, 0) >= count, (name, done)
        self._counted = before
        for checkpoint in self.checkpoints():
            wrong = damage(checkpoint)
            assert not wrong or not checkpoint.exists(), (wrong, done)

    def check_end(self, done):
        """The counters agree; every checkpoint that is left can be read; no sequence was learned from twice."""
        counts = json.loads((self.run.run_dir / "counters.json").read_text())
        total = sum(of_source.get("environment_steps", 0) for of_source in counts.values())
        assert total == self.run.rows()[-1]["environment_steps"], done
        assert not list(self.run.run_dir.glob("checkpoints/damaged-*"))
        assert self.checkpoints()
        for checkpoint in self.checkpoints():
            assert not damage(checkpoint)
            reader = tf.train.load_checkpoint(str(checkpoint / "learner"))
            assert [reader.get_tensor(name) for name in reader.get_variable_to_shape_map()]
        learned = collections.Counter(self.learned.read_text().splitlines())
        assert len(learned) > 1000
        assert learned.most_common(1)[0][1] == 1, (learned.most_common(3), done)
        assert {line.split()[-1] for line in learned} == {"-"}
        return len(learned)

    def checkpoints(self):
        return list(self.run.run_dir.glob("checkpoints/[0-9]*"))


def survive(scene, schedule, invariants, end):
    """Strikes until the time is over; after each pair of faults the run must continue. Then it ends by SIGINT."""
    run = scene.run
    over = time.monotonic() + SECONDS
    while time.monotonic() < over:
        schedule.strike(scene)
        invariants.check(schedule.done)
        # What was struck continues.
        steps = run.rows()[-1]
        run.wait_for_steps(steps["environment_steps"] + 1)
        run.wait_for_steps(steps["learner_steps"] + 1, "learner_steps")
        # Long enough for the deaths of one node not to count as a failure of the run.
        time.sleep(schedule.chance.uniform(4.0, 8.0))
    invariants.check(schedule.done)
    run.signal(signal.SIGINT, "launcher")
    end()
    learned = invariants.check_end(schedule.done)
    last = run.rows()[-1]
    print(
        f"seed {SEED}, {SECONDS:.0f} s: {len(schedule.done)} pairs, {last.get('restarts', 0):.0f} restarts, "
        f"{last['environment_steps']} environment steps, {last['learner_steps']} learner steps, {learned} sequences "
        f"learned from once: {'; '.join(schedule.done)}"
    )


@pytest.mark.parametrize(
    "launcher, shards, faults",
    [
        ("processes", 1, [*OF_NODES, (fill, ""), (freeze, "")]),
        ("processes", 2, [*OF_NODES, *[(fault, "replay/1") for fault, node in OF_NODES if node == "replay/0"]]),
        ("threads", 1, [(fill, ""), (freeze, "")]),
    ],
)
def test_a_run_on_one_machine_survives_two_faults_at_once(
    launcher, shards, faults, small_disk, settings, start, tmp_path
):
    settings = ["--replay-shards", shards, *settings]
    run = start("train", "numbered:LoggedImpala", "--launcher", launcher, "--run-dir", small_disk, *settings)
    run.wait_for_steps(1, "learner_steps")
    schedule = Schedule(faults, SEED, longest=6, window=75)

    def end():
        assert run.wait(120) == 130, run.text()
        assert run.leftovers() == []

    survive(Scene(run, schedule.chance), schedule, Invariants(run, tmp_path / "learned.txt"), end)


def test_a_run_on_two_hosts_survives_two_faults_at_once(small_disk, settings, hosts, tmp_path):
    hosts = hosts("a", "b")
    hosts.write_cluster(learner=["a"], replay=["a"], actor={"a": 1, "b": 1}, evaluator=["b"])
    hosts.start_all(*settings, agent="numbered:LoggedImpala")
    run = hosts.runs["a"]
    hosts.wait_until(lambda: run.rows() and run.rows()[-1]["learner_steps"] >= 1)
    schedule = Schedule([*OF_NODES, *OF_HOSTS, (fill, "")], SEED, longest=15, window=75 + 3 * NODE_TIMEOUT)

    def end():
        assert [each.wait(120) for each in hosts.runs.values()] == [130, 130], [
            each.text() for each in hosts.runs.values()
        ]
        assert hosts.leftovers() == []

    survive(Scene(run, schedule.chance, hosts), schedule, Invariants(run, tmp_path / "learned.txt"), end)


def test_a_run_on_ray_survives_two_faults_at_once(small_disk, settings, start, tmp_path):
    with ray_cluster(machines=2, processors=6) as cluster:
        arguments = ["--launcher", "ray", "--ray-address", cluster.address, "--run-dir", small_disk]
        arguments += ["--node-timeout", RAY_NODE_TIMEOUT]
        run = start("train", "numbered:LoggedImpala", *settings, *arguments)
        run.wait_for_steps(1, "learner_steps")
        faults = [*OF_NODES, (lose_machine, ""), (fill, ""), (freeze, "")]
        schedule = Schedule(faults, SEED, longest=15, window=660)

        def end():
            assert run.wait(120) == 130, run.text()
            assert run.leftovers() == []

        survive(Scene(run, schedule.chance, cluster=cluster), schedule, Invariants(run, tmp_path / "learned.txt"), end)
