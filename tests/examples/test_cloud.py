"""The files for clusters in a cloud: Ray takes the one, the other names what there is, and their commands are accepted.

No cloud is reached.
"""

import json
import pathlib
import re
import shlex

import pytest
import yaml

from callboard.cli.command import main

ray = pytest.importorskip("ray")
jsonschema = pytest.importorskip("jsonschema")

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "cloud"


def kuberay():
    return yaml.safe_load((FOLDER / "kuberay.yaml").read_text())


@pytest.mark.parametrize("name", ["aws.yaml", "gcp.yaml"])
def test_ray_up_takes_the_file(name):
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((FOLDER / name).read_text())
    schema = pathlib.Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    jsonschema.validate(config, json.loads(schema.read_text()))
    validate_config(prepare_config(config))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**config, "idle_timeout": 10}, json.loads(schema.read_text()))


def test_the_pods_have_one_image_and_the_locked_ray():
    spec = kuberay()["spec"]["rayClusterSpec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    containers = [container for group in groups for container in group["template"]["spec"]["containers"]]
    assert {container["image"] for container in containers} == {"REGISTRY/callboard"}
    assert all(container["envFrom"] == [{"secretRef": {"name": "callboard-s3"}}] for container in containers)
    assert all(container["resources"]["limits"] == container["resources"]["requests"] for container in containers)
    locked = re.search(r'^name = "ray"\nversion = "(.*)"', (ROOT / "uv.lock").read_text(), re.MULTILINE)
    assert spec["rayVersion"] == locked[1]
    worker = spec["workerGroupSpecs"][0]
    assert worker["minReplicas"] <= worker["replicas"] <= worker["maxReplicas"]


class Accepted(Exception):
    """The command would start now."""


@pytest.mark.parametrize("name", ["aws.yaml", "gcp.yaml", "kuberay.yaml"])
def test_the_commands_are_accepted(name, tmp_path, monkeypatch):
    def stop(*arguments, **options):
        raise Accepted

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("callboard.cli.train.environments.check", stop)
    text = (FOLDER / name).read_text()
    command = (
        re.search(r"'cd callboard && (callboard .*)'", text)[1]
        if name != "kuberay.yaml"
        else kuberay()["spec"]["entrypoint"]
    )
    url = "gs://BUCKET" if name == "gcp.yaml" else "s3://BUCKET"
    assert f"{url}/runs/x" in command
    with pytest.raises(Accepted):
        main(shlex.split(command.replace(url, str(tmp_path)))[1:])


def test_all_machines_of_aws_have_an_image_and_the_same_profile():
    kinds = yaml.safe_load((FOLDER / "aws.yaml").read_text())["available_node_types"].values()
    nodes = [kind["node_config"] for kind in kinds]
    assert all("ubuntu/server/22.04" in node["ImageId"] for node in nodes)
    assert [node["IamInstanceProfile"] for node in nodes] == [{"Name": "callboard"}] * 2


def test_all_machines_of_google_have_an_image_and_an_account():
    config = yaml.safe_load((FOLDER / "gcp.yaml").read_text())
    kinds = {name: kind["node_config"] for name, kind in config["available_node_types"].items()}
    images = [disk["initializeParams"]["sourceImage"] for kind in kinds.values() for disk in kind["disks"]]
    assert images == ["projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"] * 2
    # Ray makes the account of the first machine, and writes it into the configuration of that one alone.
    source = (pathlib.Path(ray.__file__).parent / "autoscaler" / "_private" / "gcp" / "config.py").read_text()
    assert 'DEFAULT_SERVICE_ACCOUNT_ID = RAY + "-sa-" + VERSION' in source
    of_ray, version = (re.search(f'^{name} = "(.*)"', source, re.MULTILINE)[1] for name in ("RAY", "VERSION"))
    account = f"{of_ray}-sa-{version}@{config['provider']['project_id']}.iam.gserviceaccount.com"
    assert [each["email"] for each in kinds["actors"]["serviceAccounts"]] == [account]


def test_the_job_of_kuberay_ends_its_pods_and_needs_one_edit():
    assert kuberay()["spec"]["shutdownAfterJobFinishes"] is True
    settings = [line for line in (FOLDER / "kuberay.yaml").read_text().splitlines() if not line.startswith("#")]
    for name in ("REGISTRY", "BUCKET"):
        assert sum(name in line for line in settings) == 1
