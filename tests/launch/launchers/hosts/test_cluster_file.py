"""The cluster file, and what every host derives from it."""

import contextlib
import os
import pathlib
import re
import runpy
import shlex
import signal
import subprocess
import sys

import pytest
import yaml

from callboard.cli.command import main
from callboard.errors import CallboardError
from callboard.launch.experiments.checked_run import Run
from callboard.launch.experiments.settings import parse_experiment
from callboard.launch.launchers.hosts.cluster_file import read_cluster
from callboard.launch.program import make_program
from callboard.launch.program_nodes import nodes_of
from callboard.launch.run_directory.layout import RunDirectory
from callboard.runtime.deadlines import wait_until

CONTENT = {
    "hosts": {"gpu-0": "10.9.0.1", "cpu-0": "10.9.0.2", "cpu-1": "10.9.0.3"},
    "ports": "20000-20099",
    "learner": ["gpu-0"],
    "replay": ["gpu-0", "cpu-1"],
    "actor": {"cpu-0": 2, "cpu-1": 1},
    "evaluator": "gpu-0",
}


@pytest.fixture
def cluster(tmp_path):
    """Reads a cluster file with some keys changed; None removes one."""

    def read(**changes):
        content = {key: value for key, value in {**CONTENT, **changes}.items() if value is not None}
        path = tmp_path / "cluster.yaml"
        path.write_text(yaml.safe_dump(content, sort_keys=False))
        return read_cluster(path)

    return read


def program_of(cluster):
    experiment = cluster.fit(parse_experiment("apex", {}, ["--env", "CartPole-v1"]))
    return make_program(Run(experiment, experiment.layout(), RunDirectory("run")))


def test_the_file_says_how_many_nodes_there_are_and_where(cluster):
    places = {node.name: cluster().host_of(node.name) for _, node in nodes_of(program_of(cluster()))}
    assert places == {
        "coordinator/0": "gpu-0",
        "replay/0": "gpu-0",
        "replay/1": "cpu-1",
        "learner/0": "gpu-0",
        "actor/0": "cpu-0",
        "actor/1": "cpu-0",
        "actor/2": "cpu-1",
        "evaluator/0": "gpu-0",
    }
    assert "evaluator/0" not in {node.name for _, node in nodes_of(program_of(cluster(evaluator=None)))}


def test_every_address_is_its_host_s_and_none_is_given_twice(cluster):
    addresses = cluster().addresses(program_of(cluster()))
    assert addresses == cluster().addresses(program_of(cluster()))
    for node, own in addresses.items():
        assert {address.partition(":")[0] for address in own} == {CONTENT["hosts"][cluster().host_of(node)]}
    given = [address for own in addresses.values() for address in own] + [cluster().membership_address]
    assert len(set(given)) == len(given)


def test_hosts_of_one_machine_share_its_ports(cluster):
    one_machine = cluster(hosts={"gpu-0": "10.9.0.1", "cpu-0": "10.9.0.1", "cpu-1": "10.9.0.1"})
    given = [address for own in one_machine.addresses(program_of(one_machine)).values() for address in own]
    assert len(set(given)) == len(given)


def test_an_ipv6_address_is_put_in_brackets(cluster):
    hosts = {**CONTENT["hosts"], "gpu-0": "fd00::1"}
    assert cluster(hosts=hosts).membership_address == "[fd00::1]:20000"


def test_too_few_ports(cluster):
    small = cluster(ports="20000-20003")
    with pytest.raises(CallboardError, match=r"host gpu-0 need 7 ports, .* gives them 4; set ports to 20000-20006"):
        small.addresses(program_of(small))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hosts": None}, "hosts is missing"),
        ({"hosts": {"gpu-0": "0.0.0.0"}}, "the address of host 'gpu-0' must be an IP address or the name of a machine"),
        ({"hosts": {"gpu-0": "ff02::1"}}, "the address of host 'gpu-0' must be an IP address or the name of a machine"),
        ({"actor": None}, "actor is missing"),
        ({"hosts": ["gpu-0"]}, "hosts must be names with addresses, such as `gpu-0: 10.0.0.1`"),
        (
            {"hosts": {"a\x1b[2J": "10.9.0.1"}},
            "cannot be the name of a host: take letters, digits and signs",
        ),
        ({"tunnel": "tls"}, "tunnel must be ssh, or be left out, not 'tls'"),
        ({"ports": 20000}, "ports must be a range between 1024 and 65535, such as 20000-20099"),
        ({"ports": "20099-20000"}, "ports must be a range"),
        ({"ports": "80-90"}, "ports must be a range"),
        ({"learner": ["gpu-1"]}, "learner is placed on 'gpu-1', which is not among hosts: gpu-0, cpu-0, cpu-1"),
        ({"actor": {"cpu-0": "two"}}, "actor at cpu-0 must be a number of nodes up to 10,000, not 'two'"),
        ({"actor": {"cpu-0": 0}}, "actor is not placed on any host"),
        ({"evaluator": ["gpu-0", "cpu-0"]}, "there can be one evaluator, not 2"),
        ({"coordinator": "cpu-0"}, "the coordinator runs beside the first learner, on gpu-0; leave it out"),
        ({"actors": {"cpu-0": 2}}, "unknown key 'actors'"),
        ({"patience": "long"}, "patience must be seconds, not 'long'"),
    ],
)
def test_what_is_wrong_with_a_file_is_refused_in_one_line(cluster, changes, message):
    with pytest.raises(CallboardError, match=message) as raised:
        cluster(**changes)
    assert "\n" not in str(raised.value)


def test_a_number_that_contradicts_the_file_is_refused(cluster):
    experiment = parse_experiment("apex", {}, ["--env", "CartPole-v1", "--actors", "5"])
    with pytest.raises(CallboardError, match="actors is 5, and .* places 3; leave it out"):
        cluster().fit(experiment, given=["actors"])
    assert cluster().fit(experiment).actors == 3


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888"])
def test_public_addresses_are_refused_by_name(cluster, address):
    public = cluster(hosts={**CONTENT["hosts"], "cpu-0": address})
    with pytest.raises(CallboardError, match=f"the host cpu-0 has a public address \\({address}\\).*--allow-public"):
        public.check_addresses()
    cluster().check_addresses()
    cluster(hosts={**CONTENT["hosts"], "cpu-0": "192.168.1.5", "cpu-1": "fd00::5"}).check_addresses()


@pytest.fixture
def stand_ins(tmp_path):
    """Writes programs that stand in for others, and gives a `PATH` that begins with them."""

    def write(**programs):
        folder = tmp_path / "stand ins"
        folder.mkdir()
        for name, text in programs.items():
            (folder / name).write_text(f"#!/bin/bash\n{text}\n")
            (folder / name).chmod(0o755)
        return f"{folder}:{os.environ['PATH']}"

    return write


EXAMPLES = pathlib.Path(__file__).parents[4] / "examples" / "hosts"


def test_the_examples_for_ssh_and_kubernetes_can_be_read(tmp_path):
    assert len(program_of(read_cluster(EXAMPLES / "cluster.yaml")).groups["actor"]) == 32
    parts = list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()))
    (content,) = [part["data"]["cluster.yaml"] for part in parts if part["kind"] == "ConfigMap"]
    path = tmp_path / "cluster.yaml"
    path.write_text(content)
    cluster = read_cluster(path)
    jobs = [part for part in parts if part["kind"] == "Job"]
    names = [f"{job['metadata']['name']}-{number}" for job in jobs for number in range(job["spec"]["completions"])]
    assert list(cluster.hosts) == names and cluster.first == "callboard-learner-0"
    (service,) = [part for part in parts if part["kind"] == "Service"]
    assert list(cluster.hosts.values()) == [f"{name}.{service['metadata']['name']}" for name in names]


def test_pods_end_with_the_run_and_are_alike(tmp_path, stand_ins):
    parts = list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()))
    jobs = [part["spec"] for part in parts if part["kind"] == "Job"]
    assert (EXAMPLES / "kubernetes.yaml").read_text().count("image: REGISTRY/callboard\n") == len(jobs) == 2
    path = stand_ins(callboard='[[ "$*" == *"--launcher hosts"*"--host callboard-learner-0 "* ]] && exit 3')
    for job in jobs:
        assert job["completionMode"] == "Indexed" and job["parallelism"] == job["completions"]
        pod = job["template"]["spec"]
        assert pod["restartPolicy"] == "OnFailure" and pod["subdomain"] == "callboard"
        (container,) = pod["containers"]
        first = jobs[0]["template"]["spec"]["containers"][0]
        assert container["command"] == first["command"] and container["image"] == first["image"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    # The pod is `callboard train`, so that it is signaled, and ends with its exit code.
    environment = {"PATH": path, "HOSTNAME": "callboard-learner-0"}
    assert subprocess.run(jobs[0]["template"]["spec"]["containers"][0]["command"], env=environment).returncode == 3


def test_the_example_for_slurm_writes_a_cluster_file_and_starts_every_host(tmp_path, stand_ins):
    """`scontrol` and `srun` belong to SLURM: here they are lines of shell that do what the script needs."""
    path = stand_ins(
        scontrol="printf 'n1\\nn2\\nn3\\n'",
        srun="""while [[ $1 == --* ]]; do echo "$1"; shift; done; SLURMD_NODENAME=n2 exec "$@" """,
    )
    environment = {
        "PATH": path,
        "CALLBOARD": "echo",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_PER_TASK": "16",
    }
    command = ["bash", EXAMPLES / "slurm.sbatch"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    *options, started = done.stdout.splitlines()
    assert options == ["--kill-on-bad-exit=0", "--cpus-per-task=16"]
    assert started == (
        f"train --recipe impala-cartpole --launcher hosts --cluster {tmp_path}/cluster-7.yaml --host n2 "
        f"--run-dir {tmp_path}/runs/slurm"
    )
    written = read_cluster(tmp_path / "cluster-7.yaml")
    assert written.first == "n1"
    assert list(written.placement["actor"]) == ["n2"] * 14 + ["n3"] * 14
    assert (written.ports.start, len(written.ports)) == (10_700, 100)


def test_the_example_for_slurm_is_what_the_command_writes(tmp_path, monkeypatch, capsys):
    assert main(["cluster", "sbatch", "--recipe", "impala-cartpole"]) == 0
    written = capsys.readouterr().out
    command = shlex.quote(f"{os.path.dirname(sys.executable)}/callboard")
    assert written.replace(command, "$SLURM_SUBMIT_DIR/.venv/bin/callboard") == (EXAMPLES / "slurm.sbatch").read_text()
    monkeypatch.chdir(tmp_path)
    options = ["--nodes", "2", "--cpus", "4", "--gpus", "1", "--time", "1-00:00:00", "--output", "job.sbatch"]
    assert main(["cluster", "sbatch", "ppo", "--env", "it's:Env", "--run-dir", "runs/a b", *options]) == 0
    script = (tmp_path / "job.sbatch").read_text()
    assert subprocess.run(["bash", "-n", tmp_path / "job.sbatch"]).returncode == 0
    asked = re.findall("^#SBATCH (.*)", script, re.MULTILINE)
    assert asked[1:6] == [
        "--nodes=2",
        "--ntasks-per-node=1",
        "--cpus-per-task=4",
        "--gpus-per-node=1",
        "--time=1-00:00:00",
    ]
    assert f"RUN=${{RUN:-'{tmp_path}/runs/a b'}}" in script and "ACTORS_PER_HOST=${ACTORS_PER_HOST:-2}" in script
    assert shlex.split(script[script.index("callboard ppo") :]) == ["callboard", "ppo", "--env", "it's:Env"]


@pytest.mark.parametrize(
    "options, message",
    [
        (["--nodes", "1"], "--nodes must be 2 to 10,000"),
        (["--time", "soon"], "--time must be a time as Slurm writes it"),
        (["--seeds", "1,2"], "--seeds is for runs on one machine"),
        (["--launcher", "ray"], "leave --launcher ray out"),
        (["--time", "99:99:99"], "--time must be a time as Slurm writes it"),
        (["--nodes", "9" * 20], "--nodes must be 2 to 10,000"),
        (["--max-steps", "-1"], "max"),
        (["--actors", "5"], "actors is 5, and the job places 28; leave it out"),
        (["--learners", "2"], "learners is 2, and the job places 1; leave it out"),
        (["--inference", "central"], "the job places 0 inference node(s)"),
        (["--run-dir", "s3://bucket/x"], "hosts"),
        (["--cpus", "30000"], "29,998 actors are too many per machine"),
        (["--output", "/proc"], "/proc cannot be written"),
        (["--output", "/no/such/file"], "cannot be written: No such file"),
    ],
)
def test_a_job_that_cannot_run_is_refused(options, message, capsys):
    assert main(["cluster", "sbatch", "ppo", "--env", "CartPole-v1", *options]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_job_is_not_written_in_place_of_a_pipe(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert main(["cluster", "sbatch", "ppo", "--env", "CartPole-v1", "--output", str(tmp_path / "pipe")]) == 2
    assert "pipe cannot be written: not a regular file" in capsys.readouterr().err
    assert (tmp_path / "pipe").is_fifo() and len(list(tmp_path.iterdir())) == 1


def test_a_job_has_a_port_for_each_actor(capsys):
    assert main(["cluster", "sbatch", "impala", "--env", "CartPole-v1", "--cpus", "256"]) == 0
    script = capsys.readouterr().out
    assert "port=$((10000 + SLURM_JOB_ID % 73 * 300))" in script and "$port-$((port + 299))" in script


def test_a_job_whose_actors_come_and_go_continues_without_a_machine(capsys):
    command = ["cluster", "sbatch", "impala", "--env", "CartPole-v1"]
    assert main([*command, "--actors", "2..20"]) == 2
    assert "the job places 28; give the fewest and all of them: --actors 2..28" in capsys.readouterr().err
    assert main([*command, "--actors", "2..28"]) == 0
    script = capsys.readouterr().out
    assert "#SBATCH --no-kill" in script and '[[ $SLURMD_NODENAME != "$first" ]] || scancel' in script


@pytest.mark.parametrize("elastic, host", [(False, "n1"), (False, "n2"), (True, "n1"), (True, "n2")])
@pytest.mark.parametrize("code, ends", [(0, False), (143, False), (2, True)])
def test_a_host_that_fails_ends_the_job_of_slurm(code, ends, elastic, host, tmp_path, stand_ins, capsys):
    path = stand_ins(
        scontrol="printf 'n1\\nn2\\n'",
        srun="""while [[ $1 == --* ]]; do shift; done; SLURMD_NODENAME=""" + host + """ exec "$@" """,
        scancel='echo "scancel $*"',
        callboard=f"exit {code}",
    )
    environment = {
        "PATH": path,
        "CALLBOARD": "callboard",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_NODELIST": "n1",
        "SLURM_JOB_ID": "300",
        "SLURM_CPUS_PER_TASK": "16",
    }
    script = tmp_path / "job.sbatch"
    of_actors = ["--actors", "2..28"] if elastic else []
    assert main(["cluster", "sbatch", "--recipe", "impala-cartpole", *of_actors, "--output", str(script)]) == 0
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True)
    # An elastic run continues: only the first host's failure ends it.
    ends = ends and (host == "n1" or not elastic)
    assert (done.returncode, done.stdout) == (code, "scancel --signal=TERM 300\n" if ends else "")


def test_the_example_for_ssh_starts_every_host_once_and_ends_the_first(tmp_path, stand_ins, monkeypatch, capsys):
    """`ssh` stands for this machine, and `callboard` for a run that writes down its command and waits to be ended."""
    path = stand_ins(
        ssh="""[[ "$1 $2" == "-o BatchMode=yes" ]] || exit 255; shift 3; exec bash -c "$*" """,
        python=f"""cat > {tmp_path}/hosts.py; printf %s "$2" > {tmp_path}/argument; echo cpu-0 gpu-0 cpu-1""",
        callboard="""sleep 60 & trap 'kill $!; echo ended; exit' TERM; IFS=,; echo "$*"; wait""",
    )
    here = tmp_path / "one folder"
    here.mkdir()
    file, run = here / "cluster.yaml", here / "runs" / "x y"
    file.write_text(yaml.safe_dump({**CONTENT, "learner": ["cpu-0"]}, sort_keys=False))
    content = file.read_text()
    environment = {"PATH": path, "CALLBOARD": str(tmp_path / "stand ins" / "callboard")}

    def example(action, *arguments):
        command = ["bash", EXAMPLES / "ssh.sh", action, "cluster.yaml", "runs/x y", *arguments]
        return subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=True).stdout

    def said_by(host, lines):
        path = run / f"{host}.out"
        assert wait_until(lambda: path.exists() and len(path.read_text().splitlines()) >= lines, 20.0, 0.01)
        return path.read_text().splitlines()

    train = f"train,apex,--env,A B,--launcher,hosts,--cluster,{file},--run-dir,runs/x y,--host"
    started = ("start", "apex", "--env", "A B")
    try:
        assert example(*started) == "cpu-0: started\ngpu-0: started\ncpu-1: started\n"
        for host in CONTENT["hosts"]:
            assert said_by(host, 1) == [f"{train},{host}"]
        assert file.read_text() == content
        pids = {path: path.read_text() for path in run.glob("*.pid")}
        assert example(*started) == "cpu-0: runs already\ngpu-0: runs already\ncpu-1: runs already\n"
        assert {path: path.read_text() for path in run.glob("*.pid")} == pids
        assert example("log") == "".join(f"== {h}\n{train},{h}\n" for h in ("cpu-0", "gpu-0", "cpu-1"))
        example("stop")
        assert said_by("cpu-0", 2)[1] == "ended"
        (run / "cpu-0.pid").unlink()
        assert example(*started) == "cpu-0: started\ngpu-0: runs already\ncpu-1: runs already\n"
        assert said_by("cpu-0", 3) == [f"{train},cpu-0", "ended", f"{train},cpu-0"]
        assert said_by("gpu-0", 1) == [f"{train},gpu-0"]
    finally:
        for pid in run.glob("*.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid.read_text()), signal.SIGTERM)
    # What the script needs of Python: here, since a process of its own would import everything once more.
    monkeypatch.setattr(sys, "argv", ["-", (tmp_path / "argument").read_text()])
    runpy.run_path(str(tmp_path / "hosts.py"))
    assert capsys.readouterr().out == "cpu-0 gpu-0 cpu-1\n"


def test_inference_nodes_are_placed_where_the_file_says(cluster):
    central = parse_experiment("apex", {}, ["--env", "CartPole-v1", "--inference", "central"])
    placed = cluster(inference=["gpu-0", "cpu-0"])
    assert placed.fit(central).inference_nodes == 2
    assert [placed.host_of(f"inference/{rank}") for rank in range(2)] == ["gpu-0", "cpu-0"]
    with pytest.raises(CallboardError, match="name hosts for inference in it"):
        cluster().fit(central)
    with pytest.raises(CallboardError, match="leave inference out of it"):
        placed.fit(parse_experiment("apex", {}, ["--env", "CartPole-v1"]))
