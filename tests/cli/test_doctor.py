"""`callboard doctor`: what it finds, and what it advises."""

import json

import pytest

from callboard.cli import doctor
from callboard.cli.command import main


@pytest.mark.slow
def test_doctor_finds_this_installation_healthy(capsys):
    assert main(["doctor", "--json"]) == 0
    findings = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert findings["tensorflow"]["found"] == "2.12.0"
    assert findings["TensorFlow, Reverb and Launchpad load together"]["ok"]


def test_a_package_of_another_version_is_wrong_and_the_advice_names_the_right_one(monkeypatch):
    monkeypatch.setitem(doctor.PINS, "tensorflow", "1.0")
    monkeypatch.setitem(doctor.PINS, "no-such-package", "3.1")
    findings = {finding.name: finding for finding in doctor._packages()}
    assert not findings["tensorflow"].ok and "needs exactly tensorflow==1.0" in findings["tensorflow"].advice
    assert findings["no-such-package"].found == "missing" and not findings["no-such-package"].ok
    assert findings["dm-reverb"].ok and findings["dm-reverb"].advice == ""


def test_a_tensorboard_that_cannot_start_is_wrong(tmp_path, monkeypatch):
    (healthy,) = doctor._tensorboard()
    assert healthy.ok and healthy.found.startswith("2.12")
    # As beside setuptools 82 and later.
    (tmp_path / "pkg_resources.py").write_text("raise ModuleNotFoundError(\"No module named 'pkg_resources'\")")
    monkeypatch.syspath_prepend(tmp_path)
    (broken,) = doctor._tensorboard()
    assert not broken.ok and "pkg_resources" in broken.found and "pip install 'setuptools<81'" in broken.advice


def test_a_kernel_that_refuses_packet_filters_is_wrong(monkeypatch):
    (closed,) = doctor._ports()
    assert closed.ok and "closed to other machines" in closed.found
    monkeypatch.setattr(doctor, "refusal", lambda: "Operation not permitted")
    (open_to_all,) = doctor._ports()
    assert not open_to_all.ok and "refuses packet filters: Operation not permitted" in open_to_all.found


def test_a_disk_with_little_space_is_wrong(monkeypatch):
    (enough,) = doctor._disk()
    assert "GB free here" in enough.found
    monkeypatch.setattr(doctor, "_MIN_FREE_GB", 1e9)
    (little,) = doctor._disk()
    assert not little.ok and "free some space" in little.advice


def test_a_finding_that_is_wrong_gives_exit_code_1_and_its_advice(monkeypatch, capsys):
    findings = [doctor.Finding("ports", True, "a free port"), doctor.Finding("disk", False, "0.1 GB", "free some")]
    monkeypatch.setattr(doctor, "examine", lambda: findings)
    assert main(["doctor"]) == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["ok", "ports", "a", "free", "port"], ["WRONG", "disk", "0.1", "GB", "free", "some"]]
    findings.pop()
    assert main(["doctor"]) == 0


def test_a_package_whose_library_cannot_be_loaded_is_wrong(tmp_path, monkeypatch):
    assert doctor._other("procgen", doctor._OTHERS["procgen"]).ok
    assert doctor._other("no-such-package", "import no_such_package").ok
    (tmp_path / "procgen.py").write_text("raise OSError('cannot load library libenv.so: libglib-2.0.so.0')")
    monkeypatch.syspath_prepend(tmp_path)
    broken = doctor._other("procgen", doctor._OTHERS["procgen"])
    assert not broken.ok and "libglib-2.0.so.0" in broken.found and "apt-get install libglib2.0-0" in broken.advice
