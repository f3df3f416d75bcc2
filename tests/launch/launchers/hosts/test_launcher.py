"""Several hosts, as network namespaces with links that can be cut: one run, one end, and nothing is learned twice."""

import collections
import json
import os
import pathlib
import re
import signal
import time

import pytest
from learned_windows import check_priorities, learned_windows, saved, saves_again, settings, updated_windows

pytestmark = pytest.mark.slow

SESSION = pathlib.Path(__file__).parents[2] / "host_session.py"
PLACEMENT = dict(learner=["a"], replay=["a"], actor={"b": 1, "c": 1}, evaluator=["a"])
ENDLESS = ["--max-steps", 100_000_000, "--stop-return", 501]


def ends_everywhere(hosts, code=0, timeout=120):
    for name, run in hosts.runs.items():
        assert run.wait(timeout) == code, f"{name}: {run.text()}"
    assert hosts.leftovers() == []


def value(run, name):
    """The newest value of a metric."""
    return next((row[name] for row in reversed(run.rows()) if name in row), 0)


def grows(hosts, name, by, timeout=60):
    """Waits until a metric of host a has grown."""
    before = value(hosts.runs["a"], name)
    hosts.wait_until(lambda: value(hosts.runs["a"], name) >= before + by, timeout)


def steps_of(run, node):
    """Environment steps of a node in all of its lives, as in the newest checkpoint."""
    checkpoints = sorted((run.run_dir / "checkpoints").glob("0*"))
    sources = json.loads((checkpoints[-1] / "counters.json").read_text()) if checkpoints else {}
    return sum(counts.get("environment_steps", 0) for name, counts in sources.items() if name.startswith(f"{node}#"))


@pytest.mark.score
@pytest.mark.parametrize("share_directory", [True, False])
def test_impala_reaches_its_score_on_three_hosts(hosts, share_directory):
    hosts = hosts("a", "b", "c", share_directory=share_directory)
    hosts.write_cluster(**PLACEMENT)
    # In any order.
    for name in ("c", "a", "b"):
        hosts.start(name)
    ends_everywhere(hosts, timeout=400)
    for run in hosts.runs.values():
        # On a busy machine the evaluator may take longer than the run, whose score is then that of the final policy.
        assert re.match("The run is over: (the return .* has|reached max_steps)", run.end_line())
    last = hosts.runs["a"].rows()[-1]
    assert max(row.get("evaluator/return", 0) for row in hosts.runs["a"].rows()) >= 475
    assert last["learner/duplicate_items"] == 0


def test_a_session_on_the_first_host_controls_the_run(hosts):
    hosts = hosts("a", "b", share_directory=False)
    hosts.write_cluster(learner=["a"], replay=["a"], actor={"a": 1, "b": 1}, evaluator=["a"])
    session = hosts.start_program("a", SESSION, hosts.cluster)
    hosts.start("b")
    ends_everywhere(hosts, timeout=300)
    text = session.text()
    assert "paused at 0\n" in text and "saved True\n" in text and "environments 32\n" in text
    assert "its session has ended" in hosts.runs["b"].text()


def test_apex_learns_from_a_shard_on_each_of_two_hosts(hosts):
    hosts = hosts("a", "b", "c", share_directory=False)
    hosts.write_cluster(learner=["a"], replay=["b", "c"], actor={"b": 1, "c": 1}, evaluator=["a"])
    hosts.start_all("--stop-return", 150, "--evaluate-every", 5000, recipe="apex-cartpole")
    ends_everywhere(hosts, timeout=400)
    run = hosts.runs["a"]
    assert max(row.get("evaluator/return", 0) for row in run.rows()) >= 150
    assert min(value(run, f"replay/sampled_{shard}") for shard in (0, 1)) > 1000


def test_a_link_is_cut_for_half_a_minute_and_nothing_is_learned_from_twice(hosts):
    hosts = hosts("a", "b", "c", share_directory=False)
    hosts.write_cluster(**{**PLACEMENT, "evaluator": None})
    settings = ["--env", "numbered:Numbered", "--max-steps", 100_000_000, "--checkpoint-every", 2]
    settings += ["--agent.unroll-length", 5, "--agent.batch-size", 16, "--agent.optimizer.learning-rate", 1e-6]
    hosts.start_all(*settings, agent="numbered:LoggedImpala")
    run = hosts.runs["a"]
    hosts.wait_until(lambda: min(steps_of(run, "actor/0"), steps_of(run, "actor/1")) > 3000)
    pid = hosts.runs["c"].pid_of("actor/1")
    # What c sends now is taken, and it is not notified.
    hosts.network.lose_answers_to("c")
    time.sleep(1)
    hosts.network.cut("c")
    begun = time.monotonic()
    grows(hosts, "learner_steps", 50, timeout=30)
    hosts.wait_until(lambda: time.monotonic() - begun > 15)
    # What the newest checkpoint holds by now was counted after the cut.
    cut_off = steps_of(run, "actor/1")
    grows(hosts, "learner_steps", 50, timeout=30)
    hosts.wait_until(lambda: time.monotonic() - begun > 30)
    assert steps_of(run, "actor/1") == cut_off
    hosts.network.restore("c")
    hosts.wait_until(lambda: steps_of(run, "actor/1") > cut_off + 3000)
    assert hosts.runs["c"].pid_of("actor/1") == pid
    grows(hosts, "learner_steps", 100)
    run.interrupt()
    ends_everywhere(hosts, 130)
    learned = collections.Counter((hosts.runs["a"].directory / "learned.txt").read_text().splitlines())
    assert len(learned) > 10_000
    assert learned.most_common(1)[0][1] == 1
    assert {line.split()[-1] for line in learned} == {"-"}
    assert value(run, "learner/duplicate_items") >= 1


@pytest.mark.parametrize("learners", [["a"], ["a", "b"]], ids=len)
def test_windows_of_whole_batches_are_their_own_when_hosts_are_switched_off(hosts, tmp_path, learners):
    """Those with a shard and with the first learner; each window has its own priority, which outlives them."""
    hosts = hosts("a", "b", "c", share_directory=False)
    hosts.write_cluster(learner=learners, replay=["b", "c"], actor={"b": 1, "c": 1})
    log = tmp_path / "learned.txt"

    def start(name):
        hosts.start(name, *settings(log), agent="numbered:LoggedApex")
        return hosts.runs[name]

    for name in ("a", "b", "c"):
        start(name)
    kept = hosts.runs["c"].run_dir
    hosts.wait_until(lambda: value(hosts.runs["a"], "learner_steps") >= 100 and len(saved(kept, 1)) >= 2)
    before = updated_windows(kept, 1)
    os.kill(hosts.runs["c"].pid_of("replay/1"), signal.SIGKILL)
    hosts.wait_until(lambda: "replay/1: killed by SIGKILL; started again" in hosts.runs["c"].text())
    grows(hosts, "replay/sampled_1", 200, timeout=120)
    assert before <= (before := updated_windows(kept, 1))
    hosts.power_cut("c")
    grows(hosts, "learner_steps", 100)
    start("c")
    hosts.wait_until(lambda: "host c: rejoined the run" in hosts.runs["a"].text())
    saves_again(hosts.runs["c"], kept, 1)
    assert before <= updated_windows(kept, 1)
    grows(hosts, "replay/sampled_1", 200, timeout=120)
    hosts.wait_until(lambda: list((hosts.runs["a"].run_dir / "checkpoints").glob("0*")))
    hosts.power_cut("a")
    first = start("a")
    hosts.wait_until(lambda: "learner/0: continues from learner step" in first.text())
    grows(hosts, "learner_steps", 100)
    first.interrupt()
    ends_everywhere(hosts, 130)
    origins = learned_windows(log)
    check_priorities(origins, hosts.runs["b"].run_dir, 0)
    check_priorities(origins, kept, 1)


def test_the_host_of_the_learner_is_killed_and_started_again(hosts):
    hosts = hosts("a", "b", "c")
    hosts.write_cluster(**PLACEMENT)
    command = ["--checkpoint-every", 2, "--max-steps", 300_000, "--stop-return", 501]
    hosts.start_all(*command)
    run = hosts.runs["a"]
    hosts.wait_until(lambda: list((run.run_dir / "checkpoints").glob("0*")))
    hosts.wait_until(lambda: value(run, "environment_steps") >= 10_000)
    before = run.rows()[-1]
    hosts.power_cut("a")
    hosts.start("a", *command)
    ends_everywhere(hosts, timeout=300)
    run = hosts.runs["a"]
    assert "learner/0: continues from learner step" in run.text()
    for each in hosts.runs.values():
        assert "reached max_steps" in each.end_line()
    after = run.rows()[-1]
    assert after["environment_steps"] >= 300_000
    assert after["learner_steps"] > before["learner_steps"]
    for counter in ("environment_steps", "learner_steps"):
        counts = [row[counter] for row in run.rows()]
        assert counts == sorted(counts)


def test_who_joins_late_takes_part(hosts):
    hosts = hosts("a", "b", "c")
    hosts.write_cluster(**PLACEMENT)
    command = ["--checkpoint-every", 2, *ENDLESS]
    for name in ("a", "b"):
        hosts.start(name, *command)
    run = hosts.runs["a"]
    hosts.wait_until(lambda: value(run, "environment_steps") >= 20_000)
    assert steps_of(run, "actor/1") == 0
    for name in ("a", "b"):
        # A second start of a host that takes part.
        first = hosts.runs[name]
        assert hosts.start(name, *command).wait() == 2
        assert re.search(rf"a run is active in \S+, by process {first.process.pid} on ", first.text())
        hosts.runs[name] = first
    hosts.start("c", *command)
    hosts.wait_until(lambda: steps_of(run, "actor/1") > 2000)
    assert "host c: joined the run" in run.text()
    # And once more, after it was switched off.
    hosts.power_cut("c")
    grows(hosts, "learner_steps", 100)
    hosts.start("c", *command)
    hosts.wait_until(lambda: "host c: rejoined the run" in run.text())
    # What it did before it died is in a checkpoint by now.
    before = steps_of(run, "actor/1")
    hosts.wait_until(lambda: steps_of(run, "actor/1") > before + 3000)
    run.interrupt()
    ends_everywhere(hosts, 130)


def test_learners_on_two_hosts_restart_together(hosts):
    hosts = hosts("a", "b")
    hosts.write_cluster(learner=["a", "b"], replay=["a"], actor={"b": 1})
    command = ["--checkpoint-every", 2, "--max-steps", 100_000_000, "--stop-return", "null"]
    hosts.start_all(*command)
    first = hosts.runs["a"]
    hosts.wait_until(lambda: value(first, "learner_steps") >= 100)
    before = first.pid_of("learner/0")
    os.kill(hosts.runs["b"].pid_of("learner/1"), signal.SIGKILL)
    hosts.wait_until(lambda: first.pid_of("learner/0") != before)
    grows(hosts, "learner_steps", 50, timeout=120)
    before = first.pid_of("learner/0")
    hosts.power_cut("b")
    hosts.start("b", *command)
    hosts.wait_until(lambda: "host b: rejoined the run" in first.text() and first.pid_of("learner/0") != before)
    grows(hosts, "learner_steps", 50, timeout=120)
    first.interrupt()
    ends_everywhere(hosts, 130)


def test_a_run_that_has_ended_is_resumed_on_all_hosts(hosts):
    hosts = hosts("a", "b")
    hosts.write_cluster(learner=["a"], replay=["a"], actor={"b": 1}, evaluator=["a"])
    hosts.start_all("--max-steps", 5000)
    ends_everywhere(hosts)
    refused = hosts.start("a", "--max-steps", 9000)
    assert refused.wait(60) == 2 and "has ended (reached max_steps" in refused.text().splitlines()[-1]
    refused = hosts.start("a", "--resume", "--env", "Acrobot-v1", agent="impala")
    assert refused.wait(60) == 2 and "cannot change its environment" in refused.text().splitlines()[-1]
    assert (refused.run_dir / "ended").exists()
    # In any order: it is the first host that removes the mark.
    for name in ("b", "a"):
        hosts.start(name, "--resume", "--max-steps", 9000, agent="impala")
    ends_everywhere(hosts)
    assert hosts.runs["a"].rows()[-1]["environment_steps"] >= 9000


@pytest.mark.parametrize(
    "change, installed, names",
    [
        (["--seed", 2], {}, ["seed is 2 on b and 1 on a"]),
        (["--agent.entropy-cost", 0.5], {}, ["agent.entropy_cost is 0.5 on b and 0.01 on a"]),
        ([], {"gymnasium": "0.0.1"}, ["the version of gymnasium is 0.0.1 on b and 1."]),
    ],
)
def test_a_host_with_other_settings_is_refused_by_name_and_the_others_continue(
    hosts, tmp_path, change, installed, names
):
    hosts = hosts("a", "b", "c", share_directory=False)
    hosts.write_cluster(**PLACEMENT)
    for name in ("a", "c"):
        hosts.start(name, *ENDLESS)
    for package, version in installed.items():
        # Not the package, but what says that it is installed.
        metadata = tmp_path / "installed" / f"{package}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    hosts.start("b", *ENDLESS, *change, python_path=tmp_path / "installed")
    refused = hosts.runs.pop("b")
    assert refused.wait(120) == 2, refused.text()
    (line,) = [line for line in refused.text().splitlines() if line.startswith("callboard:")]
    assert all(name in line for name in names), line
    assert refused.end_line() == line
    run = hosts.runs["a"]
    hosts.wait_until(lambda: value(run, "environment_steps") >= 5000)
    (line,) = [line for line in run.text().splitlines() if "host b" in line and "refused" in line]
    assert all(name in line for name in names), line
    hosts.start("b", *ENDLESS)
    hosts.wait_until(lambda: "host b: joined the run" in run.text())
    run.interrupt()
    ends_everywhere(hosts, 130)


@pytest.mark.parametrize(
    "content, host, says",
    [
        (dict(ports="20000-20002"), "a", "the nodes at host a need"),
        ({}, "unknown", "has no host 'unknown'; choose from a, b, c"),
        (dict(patience=4), "b", "the host a does not answer at"),
        (dict(actor={"b": 1, "elsewhere": 1}), "a", "actor is placed on 'elsewhere'"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(hosts, content, host, says):
    hosts = hosts("a", "b", "c")
    hosts.write_cluster(**{**PLACEMENT, **content})
    run = hosts.start("b" if host == "b" else "a", as_host=host)
    assert run.wait(60) == 2, run.text()
    line = run.end_line()
    assert line.startswith("callboard: ") and says in line and "Traceback" not in run.text()
    assert hosts.leftovers() == []


def test_a_host_with_another_module_of_the_user_is_refused(hosts, tmp_path):
    hosts = hosts("a", "b", share_directory=False)
    hosts.write_cluster(learner=["a"], replay=["a"], actor={"b": 1}, evaluator=["a"])
    for name, number in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own_env.py").write_text(
            "import gymnasium\nimport own_size\n\ndef make(): return gymnasium.make('CartPole-v1')\n"
        )
        (tmp_path / name / "own_size.py").write_text(f"SIZE = {number}\n")
    for name in ("a", "b"):
        hosts.start(name, "--env", "own_env:make", *ENDLESS, agent="impala")
    assert hosts.runs["b"].wait(120) == 2
    assert "the file own_size.py on b differs from that on a" in hosts.runs["b"].end_line()
    (tmp_path / "b" / "own_size.py").write_text("SIZE = 1\n")
    hosts.start("b", "--env", "own_env:make", *ENDLESS, agent="impala")
    grows(hosts, "learner_steps", 1, 200)
    hosts.runs["a"].interrupt()
    ends_everywhere(hosts, code=130)
