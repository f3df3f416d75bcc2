"""The cluster file, and what every host derives from it."""

import json
import os
import pathlib
import socket
import subprocess
import threading

import pytest
import yaml

from callboard.data import CallboardError
from callboard.launch.cluster import read_cluster
from callboard.launch.cluster_check import check_reach, cluster_command, describe_problems
from callboard.launch.experiment import Run
from callboard.launch.program import make_program, nodes_of
from callboard.launch.run_directory import RunDirectory
from callboard.launch.settings import parse_experiment

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
    given = [address for own in addresses.values() for address in own] + [cluster().meeting_address]
    assert len(set(given)) == len(given)


def test_hosts_of_one_machine_share_its_ports(cluster):
    one_machine = cluster(hosts={"gpu-0": "10.9.0.1", "cpu-0": "10.9.0.1", "cpu-1": "10.9.0.1"})
    given = [address for own in one_machine.addresses(program_of(one_machine)).values() for address in own]
    assert len(set(given)) == len(given)


def test_an_ipv6_address_is_put_in_brackets(cluster):
    hosts = {**CONTENT["hosts"], "gpu-0": "fd00::1"}
    assert cluster(hosts=hosts).meeting_address == "[fd00::1]:20000"


def test_too_few_ports(cluster):
    small = cluster(ports="20000-20003")
    with pytest.raises(CallboardError, match=r"host gpu-0 need 6 ports, .* gives them 4: set ports to 20000-20005"):
        small.addresses(program_of(small))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"hosts": None}, "hosts is missing"),
        ({"actor": None}, "actor is missing"),
        ({"hosts": ["gpu-0"]}, "hosts must be names with addresses, such as `gpu-0: 10.0.0.1`"),
        ({"ports": 20000}, "ports must be a range between 1024 and 65535, such as 20000-20099"),
        ({"ports": "20099-20000"}, "ports must be a range"),
        ({"ports": "80-90"}, "ports must be a range"),
        ({"learner": ["gpu-1"]}, "learner is placed on 'gpu-1', which is not among hosts: gpu-0, cpu-0, cpu-1"),
        ({"actor": {"cpu-0": "two"}}, "actor at cpu-0 must be a number of nodes, not 'two'"),
        ({"actor": {"cpu-0": 0}}, "actor is placed nowhere"),
        ({"evaluator": ["gpu-0", "cpu-0"]}, "there is one evaluator at most, not 2"),
        ({"coordinator": "cpu-0"}, "the coordinator runs beside the first learner, on gpu-0: leave it out"),
        ({"actors": {"cpu-0": 2}}, "unknown key 'actors'"),
        ({"patience": "long"}, "patience must be seconds, not 'long'"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_in_one_line(cluster, changes, message):
    with pytest.raises(CallboardError, match=message) as raised:
        cluster(**changes)
    assert "\n" not in str(raised.value)


def test_a_number_that_contradicts_the_file_is_refused(cluster):
    experiment = parse_experiment("apex", {}, ["--env", "CartPole-v1", "--actors", "5"])
    with pytest.raises(CallboardError, match="actors is 5, and .* places 3: leave it out"):
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
def local(cluster):
    """A cluster whose hosts are all this machine, with ports that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        begin = free.getsockname()[1]
    return cluster(hosts={name: "127.0.0.1" for name in CONTENT["hosts"]}, ports=f"{begin}-{begin + 2}")


def test_hosts_find_out_who_reaches_whom(local):
    views = {}

    def check(host):
        views[host] = check_reach(local, host, seconds=20)

    threads = [threading.Thread(target=check, args=(host,)) for host in local.hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everybody = {one: {other: "yes" for other in local.hosts if other != one} for one in local.hosts}
    assert views == {host: everybody for host in local.hosts}
    assert describe_problems(local, "gpu-0", everybody) == []


def test_a_host_that_cannot_be_reached_is_named(local, capsys):
    with socket.create_server(("127.0.0.1", local.ports[1])) as stranger:
        threading.Thread(target=_greet, args=(stranger,), daemon=True).start()
        assert cluster_command(["check", str(local.path), "--host", "gpu-0", "--seconds", "0", "--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [line.partition(" at ")[0] for line in problems] == ["gpu-0 cannot reach cpu-0", "gpu-0 cannot reach cpu-1"]
    assert "another program answers at that port" in problems[0]
    assert "the host is up, but the check does not run there" in problems[1]


def _greet(stranger):
    connection, _ = stranger.accept()
    with connection:
        connection.sendall(b"SSH-2.0\r\n")


EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "hosts"


def test_the_examples_for_ssh_and_kubernetes_can_be_read(tmp_path):
    assert len(program_of(read_cluster(EXAMPLES / "cluster.yaml")).groups["actor"]) == 32
    parts = list(yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text()))
    (content,) = [part["data"]["cluster.yaml"] for part in parts if part["kind"] == "ConfigMap"]
    (pods,) = [part["spec"] for part in parts if part["kind"] == "StatefulSet"]
    path = tmp_path / "cluster.yaml"
    path.write_text(content)
    assert list(read_cluster(path).hosts) == [f"callboard-{number}" for number in range(pods["replicas"])]


def test_the_example_for_slurm_writes_a_cluster_file(tmp_path):
    """`scontrol` and `srun` belong to SLURM: here they are two lines of shell that do what the script asks of them."""
    for name, text in {"scontrol": "printf 'n1\\nn2\\nn3\\n'", "srun": 'echo "$RUN"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_NODELIST": "n[1-3]",
        "SLURM_JOB_ID": "7",
    }
    command = ["bash", EXAMPLES / "slurm.sbatch"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"{tmp_path}/runs/slurm"
    written = read_cluster(tmp_path / "cluster-7.yaml")
    assert written.first == "n1"
    assert list(written.placement["actor"]) == ["n2"] * 14 + ["n3"] * 14


def test_inference_nodes_are_placed_where_the_file_says(cluster):
    central = parse_experiment("apex", {}, ["--env", "CartPole-v1", "--inference", "central"])
    placed = cluster(inference=["gpu-0", "cpu-0"])
    assert placed.fit(central).inference_nodes == 2
    assert [placed.host_of(f"inference/{rank}") for rank in range(2)] == ["gpu-0", "cpu-0"]
    with pytest.raises(CallboardError, match="name hosts for inference in it"):
        cluster().fit(central)
    with pytest.raises(CallboardError, match="leave inference out of it"):
        placed.fit(parse_experiment("apex", {}, ["--env", "CartPole-v1"]))
