"""The ray launcher on a cluster of several Ray nodes, of which some die."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import tempfile

import psutil
import pytest
import ray
import tensorflow  # noqa: F401  (must come before `ray.init`)
from ended import still_running
from learned_windows import SHARDS, check_priorities, learned_windows, saved, settings, updated_windows
from ray.util.placement_group import placement_group_table
from ray_clusters import ray_cluster

from callboard.cli.command import main
from callboard.launch.run_directory.checkpoints import step_of
from callboard.launch.run_directory.layout import RunDirectory

pytestmark = pytest.mark.slow

NODES = ("coordinator/0", "replay/0", "learner/0", "actor/0", "actor/1", "evaluator/0")


@pytest.fixture(scope="module")
def cluster():
    """Three machines, each with room for all nodes of a small run."""
    with ray_cluster(machines=3, processors=6) as started:
        yield started


@pytest.fixture
def train_on(train):
    def start_training(cluster, *arguments, recipe="impala-cartpole"):
        return train("--launcher", "ray", "--ray-address", cluster.address, *arguments, recipe=recipe)

    return start_training


def left_behind(cluster, run):
    """Actors, placement groups and processes of a run that are still there."""
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    try:
        actors = ray.util.list_named_actors(all_namespaces=True)
        groups = [group["state"] for group in placement_group_table().values() if group["state"] != "REMOVED"]
    finally:
        ray.shutdown()
    logs = (run.run_dir / "logs").glob("*.log")
    pids = [int(pid) for log in logs for pid in re.findall(r"begins, process (\d+)", log.read_text())]
    alive = still_running([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=10)
    return actors + groups + alive + run.leftovers()


def machine_of(cluster, run, node):
    """The Ray node on which a node of the program lives now."""
    log = run.run_dir / "logs" / f"{node.replace('/', '-')}.log"
    (found,) = [
        machine
        for machine in cluster.list_all_nodes()
        if machine.node_id == re.findall(r"on Ray node (\w+)", log.read_text())[-1]
    ]
    return found


def lives(run, node):
    return len(re.findall("begins, process", (run.run_dir / "logs" / f"{node.replace('/', '-')}.log").read_text()))


def test_reaches_its_score_and_leaves_nothing(train_on, cluster):
    run = train_on(cluster, "--ray-strategy", "SPREAD")
    assert run.wait(timeout=400) == 0, run.text()
    assert "has reached 475" in run.end_line()
    assert len({machine_of(cluster, run, node).node_id for node in NODES}) >= 3
    assert (run.run_dir / "checkpoints" / "best.npz").exists()
    assert left_behind(cluster, run) == []


def test_ctrl_c_ends_the_run_with_a_checkpoint(train_on, cluster):
    run = train_on(cluster, "--max-steps", 10_000_000, "--stop-return", 501)
    run.wait_until(lambda: run.rows() and run.rows()[-1]["learner_steps"] > 20, timeout=300)
    run.interrupt()
    assert run.wait(timeout=60) == 130, run.text()
    assert run.end_line().startswith("The run is over: stopped by SIGINT. ")
    assert "Traceback" not in run.text()
    assert list((run.run_dir / "checkpoints").glob("0*"))
    assert left_behind(cluster, run) == []


def test_the_run_outlives_every_process_in_turn(train_on, cluster):
    """Each comes back with a new address, which all others find."""
    run = train_on(cluster, "--checkpoint-every", 2, "--max-steps", 10_000_000, "--stop-return", 501)

    def continues():
        before = run.rows()[-1]
        names = ("learner_steps", "environment_steps")
        run.wait_until(lambda: all(run.rows()[-1][name] > before[name] + 50 for name in names), timeout=100)

    run.wait_until(lambda: list((run.run_dir / "checkpoints").glob("0*")))
    for node in ("replay/0", "learner/0", "coordinator/0", "actor/0"):
        os.kill(run.pid_of(node), signal.SIGKILL)
        run.wait_until(lambda node=node: lives(run, node) == 2, timeout=100)
        continues()
        assert f"{node}: its process or its machine has died; started again (1 of 3 within 600 s)" in run.text()
    evaluations = [row["evaluator/learner_step"] for row in run.rows() if "evaluator/learner_step" in row]
    run.wait_until(
        lambda: any(row.get("evaluator/learner_step", 0) > max(evaluations, default=0) for row in run.rows())
    )
    run.interrupt()
    assert run.wait(timeout=60) == 130, run.text()
    assert left_behind(cluster, run) == []


def test_learners_find_each_other_again(train_on, cluster):
    run = train_on(cluster, "--learners", 2, "--checkpoint-every", 2, "--max-steps", 10_000_000, "--stop-return", 501)
    run.wait_until(lambda: list((run.run_dir / "checkpoints").glob("0*")))
    os.kill(run.pid_of("learner/1"), signal.SIGKILL)
    run.wait_until(lambda: "learner/0: continues from learner step" in run.text(), timeout=200)
    before = run.rows()[-1]["learner_steps"]
    run.wait_until(lambda: run.rows()[-1]["learner_steps"] > before + 20, timeout=100)
    run.interrupt()
    assert run.wait(timeout=100) == 130, run.text()
    assert left_behind(cluster, run) == []


@pytest.mark.parametrize("learners", [1, 2])
def test_windows_of_whole_batches_are_their_own_when_processes_and_a_machine_die(start, tmp_path, learners):
    """Each window has its own priority, which outlives them."""
    log, run_dir = tmp_path / "learned.txt", tmp_path / "run"
    with ray_cluster(machines=3, processors=6) as cluster:
        command = ["--launcher", "ray", "--ray-address", cluster.address, "--ray-strategy", "SPREAD"]
        command += ["--actors", 2, "--replay-shards", 2, "--learners", learners, "--run-dir", run_dir]
        run = start("train", "numbered:LoggedApex", *command, *settings(log))
        run.wait_for_steps(100, "learner_steps")
        run.wait_until(lambda: len(saved(run_dir, 1)) >= 2 and list((run_dir / "checkpoints").glob("0*")))
        before = updated_windows(run_dir, 1)
        assert before

        def continues(node, begun):
            run.wait_until(lambda: lives(run, node) > begun, timeout=100)
            run.wait_for_steps(run.rows()[-1]["learner_steps"] + 100, "learner_steps")

        for node in ("replay/1", f"learner/{learners - 1}"):
            os.kill(run.pid_of(node), signal.SIGKILL)
            continues(node, 1)
        assert before <= (before := updated_windows(run_dir, 1))
        begun = lives(run, "replay/1")
        cluster.remove_node(machine_of(cluster, run, "replay/1"), allow_graceful=False)
        continues("replay/1", begun)
        assert before <= updated_windows(run_dir, 1)
        run.interrupt()
        assert run.wait(timeout=100) == 130, run.text()
        assert left_behind(cluster, run) == []
    origins = learned_windows(log)
    for shard in SHARDS:
        check_priorities(origins, run_dir, shard)


def own_cluster(run):
    """The directory of the cluster that the launcher has started for a run."""
    run.look()
    commands = []
    for process in run.seen.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            commands.append(" ".join(process.cmdline()))
    (found,) = set(re.findall(r"/tmp/ray-\w+", " ".join(commands)))
    return pathlib.Path(found)


def test_sigterm_while_it_waits_for_room_ends_it_with_143(train_on, cluster):
    run = train_on(cluster, "--ray-cpus.learner", 40, "--ray-wait", 300)
    run.wait_until(lambda: "waits up to 300 s for room" in run.text(), timeout=100)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait(timeout=60) == 143, run.text()
    assert run.end_line().startswith("The run is over: stopped by SIGTERM. ")
    assert left_behind(cluster, run) == []


def test_what_could_not_be_stored_last_is_kept_and_fails_the_run(start, cluster, tmp_path):
    stored = tmp_path / "bucket" / "run"
    fresh = ["--recipe", "impala-cartpole", "--max-steps", 10_000_000, "--stop-return", 501]
    run = start("train", "--launcher", "ray", "--ray-address", cluster.address, "--run-dir", f"file://{stored}", *fresh)
    run.run_dir = stored
    run.wait_until(lambda: run.rows() and run.rows()[-1]["learner_steps"] > 20, timeout=300)
    shutil.rmtree(stored)
    stored.write_text("in the way")
    run.interrupt()
    assert run.wait(timeout=100) == 1, run.text()
    said = re.findall(r"what learner/0 wrote last could not be stored at \S+: it is in (\S+) on ", run.text())
    kept = pathlib.Path(said[0])
    try:
        assert list(kept.glob("checkpoints/0*/policy.npz"))
    finally:
        for path in kept.parent.glob("callboard-kept-*"):
            if str(path) in run.text():
                shutil.rmtree(path)


def test_a_cluster_of_its_own_ends_with_the_run(train):
    run = train("--launcher", "ray", "--ray-address", "local", "--max-steps", 10_000_000, "--stop-return", 501)
    run.wait_until(lambda: run.rows() and run.rows()[-1]["learner_steps"] > 20, timeout=300)
    cluster = own_cluster(run)
    assert cluster.exists()
    run.interrupt()
    assert run.wait(timeout=60) == 130, run.text()
    assert run.end_line().startswith("The run is over: stopped by SIGINT. ")
    assert list((run.run_dir / "checkpoints").glob("0*"))
    assert run.leftovers() == []
    assert not cluster.exists()


def test_a_cluster_of_its_own_does_not_outlive_a_driver_that_is_killed(train, start):
    run = train("--launcher", "ray", "--max-steps", 10_000_000, "--stop-return", 501)
    run.wait_until(lambda: run.rows() and run.rows()[-1]["learner_steps"] > 20, timeout=300)
    second = start("train", "--resume", "--run-dir", run.run_dir, "--launcher", "ray", "--ray-address", "local")
    assert second.wait() == 2
    # The first command writes to the same file.
    assert f"by process {run.process.pid} on" in second.text()
    cluster = own_cluster(run)
    assert cluster.exists()
    run.process.kill()
    run.process.wait()
    run.wait_until(lambda: not run.leftovers() and not cluster.exists(), timeout=15)


def test_nothing_outlives_a_driver_that_is_killed(train_on, cluster):
    run = train_on(cluster, "--max-steps", 10_000_000, "--stop-return", 501)
    run.wait_until(lambda: run.rows() and run.rows()[-1]["learner_steps"] > 20, timeout=300)
    run.process.kill()
    run.process.wait()
    # A process of its own removes temporary files, for some seconds.
    run.wait_until(lambda: not run.leftovers(), timeout=15)
    assert not (run.run_dir / "tmp").exists()
    assert left_behind(cluster, run) == []


def test_an_environment_that_fails_ends_the_run_with_its_traceback(train_on, cluster):
    run = train_on(cluster, "--env", "broken_environments:RaisesOnReset", "--check-env", "false", recipe=None)
    assert run.wait(timeout=300) == 1
    assert run.end_line() == "RuntimeError: the simulator is not there"
    assert "in reset" in run.text()
    assert left_behind(cluster, run) == []


def test_a_run_that_is_kept_at_a_url(start, cluster, tmp_path, capsys):
    before = set(pathlib.Path(tempfile.gettempdir()).glob("callboard-*"))
    url = f"file://{tmp_path}/bucket/run"
    stored = tmp_path / "bucket" / "run"
    arguments = ["train", "--launcher", "ray", "--ray-address", cluster.address, "--run-dir", url]
    fresh = ["--recipe", "impala-cartpole", "--checkpoint-every", 2, "--max-steps", 10_000_000, "--stop-return", 501]
    run = start(*arguments, *fresh)
    run.run_dir = stored
    run.wait_until(lambda: len(list(stored.glob("checkpoints/0*/DONE"))) == 2, timeout=300)
    # The node's own files are gone with its process: what it continues from comes from the storage.
    os.kill(run.pid_of("learner/0"), signal.SIGKILL)
    run.wait_until(lambda: "learner/0: continues from learner step" in run.text(), timeout=100)
    run.interrupt()
    assert run.wait(timeout=200) == 130, run.text()
    newest = max(stored.glob("checkpoints/0*/DONE")).parent
    assert newest.name == f"{run.rows()[-1]['learner/step']:012d}"
    assert len(list(stored.glob("checkpoints/0*"))) <= 2
    assert left_behind(cluster, run) == []

    resumed = start(*arguments, "--resume", "--max-steps", run.rows()[-1]["environment_steps"] + 1500)
    resumed.run_dir = stored
    assert resumed.wait(timeout=300) == 0, resumed.text()
    assert f"learner/0: continues from learner step {step_of(newest):,}" in resumed.text()
    steps = [row["environment_steps"] for row in resumed.rows()]
    assert steps[-1] >= max(steps) > 1500
    assert left_behind(cluster, resumed) == []
    assert set(pathlib.Path(tempfile.gettempdir()).glob("callboard-*")) <= before

    assert main(["evaluate", url, "--episodes", "4", "--checkpoint", "latest", "--json"]) == 0
    evaluation = json.loads(capsys.readouterr().out)
    assert len(evaluation["returns"]) == 4
    newest = max(stored.glob("checkpoints/0*"))
    assert evaluation["policy"] == f"{url}/checkpoints/{newest.name}/policy.npz"


def test_a_cluster_that_is_too_small_is_named_in_one_line(train_on, cluster):
    run = train_on(cluster, "--actors", 30, "--ray-cpus.learner", 4, "--ray-wait", 2)
    assert run.wait(timeout=60) == 2
    last = run.end_line()
    assert "the Ray cluster has no room for the run: its 34 nodes need 36 CPU and 0 GPU (placed by PACK)" in last
    assert "and 4 machine(s) have 18 CPU and 0 GPU, of which 18 CPU and 0 GPU are free; take fewer actors" in last
    assert left_behind(cluster, run) == []


def test_a_learner_and_two_actors_share_a_gpu_that_no_other_node_sees(train_on):
    """Ray's resources and the visible devices, on a machine that claims a GPU."""
    with ray_cluster(machines=1, processors=6, gpus=1) as cluster:
        gpus = ["--ray-gpus.learner", "0.5", "--ray-gpus.actor", "0.25"]
        run = train_on(cluster, *gpus, "--actors", 2, "--max-learner-steps", 3, "--stop-return", "null")
        assert run.wait(timeout=500) == 0
    logs = {node: RunDirectory(run.run_dir).log(node).read_text() for node in NODES}
    seen = {node: re.findall(r"GPUs (\w+)$", log, re.MULTILINE)[-1] for node, log in logs.items()}
    assert seen == {**dict.fromkeys(NODES, "none"), "learner/0": "0", "actor/0": "0", "actor/1": "0"}


@pytest.mark.parametrize(
    "options, message",
    [
        (["--ray-address", "ray://head:10001"], "must run on a machine of the cluster, not reach it through ray://"),
        (["--ray-cpus.actors", "1"], "unknown kind of node in ray_cpus 'actors'; did you mean 'actor'?"),
        (["--ray-gpus.replay", "1"], "unknown kind of node in ray_gpus 'replay'; choose from actor, evaluator"),
        (["--ray-gpus.learner", "0.5", "--learner-devices", "2"], "ray_gpus.learner is 0.5, but each learner has 2"),
        (["--ray-gpus.learner", "1", "--learner-devices", "CPU:0"], "learner_devices names CPU:0: leave one out"),
        (["--ray-cpus", "actor:1"], "ray_cpus must be settings by name, such as {size: 5}, not 'actor:1'"),
        (["--ray-cpus.actor", "1.5"], "ray_cpus.actor must be a fraction of 1, or a whole number, not 1.5"),
        (
            ["--ray-strategy", "random"],
            "ray_strategy must be PACK, SPREAD, STRICT_PACK or STRICT_SPREAD, not 'random'",
        ),
        (["--launcher", "threads", "--ray-strategy", "PACK"], "--ray-strategy is an option of --launcher ray"),
        (["--launcher", "inline", "--run-dir", "s3://bucket/run"], "the inline launcher needs a run directory that is"),
        (["--run-dir", "s4://bucket/run"], "the run directory s4://bucket/run cannot be used: Protocol not known: s4"),
        (["--learner-devices", "all"], "on its machine; set it to a number"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--recipe", "impala-cartpole", "--launcher", "ray", *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not list(tmp_path.iterdir())


def test_the_run_outlives_the_machines_of_an_actor_and_of_the_learner(train_on):
    with ray_cluster(machines=3, processors=6) as cluster:
        check_that_it_outlives_machines(train_on, cluster)


def check_that_it_outlives_machines(train_on, cluster):
    settings = ["--ray-strategy", "SPREAD", "--checkpoint-every", 2, "--max-steps", 10_000_000]
    # Few environments, and a late first evaluation: the run shall not be over before its machines have died.
    run = train_on(cluster, *settings, "--stop-return", 475, "--envs-per-actor", 4, "--evaluate-every", 250_000)
    run.wait_until(lambda: list((run.run_dir / "checkpoints").glob("0*")))
    learners = machine_of(cluster, run, "learner/0")
    actors = [machine_of(cluster, run, node) for node in ("actor/0", "actor/1")]
    nodes = [node for node in NODES if node != "learner/0"]
    killed = next(machine for machine in actors if machine is not learners)
    moving = [node for node in nodes if machine_of(cluster, run, node) is killed]
    cluster.remove_node(killed, allow_graceful=False)
    run.wait_until(lambda: all(lives(run, node) == 2 for node in moving), timeout=300)
    before = run.rows()[-1]["learner_steps"]
    run.wait_until(lambda: run.rows()[-1]["learner_steps"] > before + 20, timeout=100)
    moving = [node for node in nodes if machine_of(cluster, run, node) is learners]
    counts = {node: lives(run, node) for node in moving}
    cluster.remove_node(learners, allow_graceful=False)
    run.wait_until(lambda: "learner/0: continues from learner step" in run.text(), timeout=300)
    assert run.wait(timeout=600) == 0, run.text()
    assert "has reached 475" in run.end_line()
    assert all(lives(run, node) == counts[node] + 1 for node in moving)
    assert machine_of(cluster, run, "learner/0") not in (killed, learners)
    assert left_behind(cluster, run) == []
