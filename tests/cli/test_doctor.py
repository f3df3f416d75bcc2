"""`callboard doctor`: what it finds, and what it advises."""

import json
import shutil

import pytest
import stub_cuda

from callboard.cli import doctor
from callboard.cli.command import main


@pytest.mark.slow
def test_doctor_finds_this_installation_healthy(capsys):
    assert main(["doctor", "--json"]) == 0
    findings = {finding["name"]: finding for finding in json.loads(capsys.readouterr().out)}
    assert findings["tensorflow"]["found"] == "2.12.0"
    assert findings["TensorFlow, Reverb and Launchpad load together"]["ok"]


@pytest.mark.slow("daily")
def test_a_package_of_another_version_is_wrong_and_the_advice_names_the_right_one(monkeypatch):
    monkeypatch.setitem(doctor.PINS, "tensorflow", "1.0")
    monkeypatch.setitem(doctor.PINS, "no-such-package", "3.1")
    findings = {finding.name: finding for finding in doctor._packages()}
    assert not findings["tensorflow"].ok and "needs exactly tensorflow==1.0" in findings["tensorflow"].advice
    assert findings["no-such-package"].found == "missing" and not findings["no-such-package"].ok
    assert findings["dm-reverb"].ok and findings["dm-reverb"].advice == ""


@pytest.mark.slow("daily")
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


@pytest.mark.slow("daily")
def test_a_package_whose_library_cannot_be_loaded_is_wrong(tmp_path, monkeypatch):
    assert doctor._other("procgen", doctor._OTHERS["procgen"]).ok
    assert doctor._other("no-such-package", "import no_such_package").ok
    (tmp_path / "procgen.py").write_text("raise OSError('cannot load library libenv.so: libglib-2.0.so.0')")
    monkeypatch.syspath_prepend(tmp_path)
    broken = doctor._other("procgen", doctor._OTHERS["procgen"])
    assert not broken.ok and "libglib-2.0.so.0" in broken.found and "apt-get install libglib2.0-0" in broken.advice


def gpu_findings(folder, **others):
    code = "from callboard.cli import doctor; import json; print(json.dumps([f._asdict() for f in doctor._gpus()]))"
    (line,) = stub_cuda.run_with(code, folder, **others)
    return json.loads(line)


@pytest.mark.slow
def test_each_cuda_library_has_a_line_with_its_file_and_version(tmp_path):
    stub_cuda.install_driver(tmp_path, gpus=2, major=8)
    stub_cuda.install_wheels(tmp_path, left_out=["libcudnn.so.8"])
    inside = tmp_path / "site" / "nvidia"
    (inside / "cufft/lib/libcufft.so.10").write_bytes(b"no library")
    found = gpu_findings(tmp_path)
    by_name = {finding["name"]: finding for finding in found}
    assert by_name["NVIDIA driver"]["found"] == "for CUDA 12.4, 2 GPU(s)"
    assert [finding["advice"] for finding in found if finding["name"] == "GPU"] == ["", ""]
    assert by_name["libcublas.so.11"]["found"] == f"11.99.1, {inside / 'cublas/lib/libcublas.so.11'}"
    missing, damaged = by_name["libcudnn.so.8"], by_name["libcufft.so.10"]
    assert not missing["ok"] and missing["found"] == "missing from nvidia-cudnn-cu11 8.6.0.163"
    # pip would say that the package is there.
    assert "remove nvidia-cudnn-cu11, and install it again" in missing["advice"]
    assert not damaged["ok"] and "too short" in damaged["found"] and "again" in damaged["advice"]
    assert {finding["name"] for finding in found if not finding["ok"]} == {"libcudnn.so.8", "libcufft.so.10", "GPUs"}
    assert by_name["GPUs"]["found"] == "0 seen by TensorFlow"


@pytest.mark.slow
def test_a_library_that_prints_or_ends_its_process_spoils_no_other_line(tmp_path):
    stub_cuda.install_driver(tmp_path, code=999)
    stub_cuda.install_wheels(tmp_path, left_out=["libcusparse.so.11"])
    inside, elsewhere = tmp_path / "site" / "nvidia", tmp_path / "driver" / "libcusparse.so.11"
    at_load = (
        "#include <stdio.h>\n#include <stdlib.h>\n__attribute__((constructor)) static void f() { %s; fflush(stdout); }"
    )
    stub_cuda.compile_library(inside / "cublas/lib/libcublas.so.11", at_load % 'printf("hello")')
    stub_cuda.compile_library(inside / "cufft/lib/libcufft.so.10", at_load % "abort()")
    stub_cuda.compile_library(elsewhere, "")
    shutil.rmtree(next((tmp_path / "site").glob("nvidia_cusparse*")))
    found = {finding["name"]: finding for finding in gpu_findings(tmp_path)}
    assert {name for name, finding in found.items() if not finding["ok"]} == {"NVIDIA driver", "libcufft.so.10"}
    assert "the process that loads it has failed" in found["libcufft.so.10"]["found"]
    assert found["libcusparse.so.11"]["found"] == f"of no package, {elsewhere}"


def test_a_library_of_a_version_that_tensorflow_does_not_take_is_wrong():
    pins = {"nvidia-cudnn-cu11": "8.6.0.163"}
    assert doctor._pinned_versions()["nvidia-cudnn-cu11"] == "8.6.0.163"
    for version, fits in (("8.6.0.163", True), ("8.9.4.25", True), ("8.5.0.96", False), ("9.1.0", False), ("", True)):
        library = doctor.CudaLibrary("libcudnn.so.8", "nvidia-cudnn-cu11", version, "/file")
        finding = doctor._cuda_library(library, "/file", "", pins)
        assert finding.ok == fits, version
        assert finding.advice == "" if fits else "installs nvidia-cudnn-cu11 8.6.0.163" in finding.advice


def test_a_check_that_does_not_end_has_failed(monkeypatch):
    monkeypatch.setattr(doctor, "_SECONDS", 0.01)
    assert doctor._error_of("import time; time.sleep(60)") == "it has not ended for 0 s"


def test_gpus_that_a_variable_hides_are_mentioned(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1,0")
    hidden = doctor._driver(doctor.Driver((12, 4), []))
    assert hidden.ok and "CUDA_VISIBLE_DEVICES='-1,0' hides the GPUs" in hidden.advice
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert "must list a GPU" in doctor._driver(doctor.Driver((12, 4), [])).advice


@pytest.mark.parametrize(
    "cuda, major, code, found, advice",
    [
        ((10, 2), 7, "", "too old: for CUDA 10.2", "TensorFlow needs release 450.80.02 or later"),
        ((11, 4), 9, "", "too old: for CUDA 11.4", "TensorFlow needs release 520.61.05 or later"),
        ((0, 0), 8, "refused", "refused", "install the driver again; `nvidia-smi` must list the GPUs"),
    ],
)
def test_a_driver_that_does_not_fit_is_wrong(cuda, major, code, found, advice):
    driver = doctor.Driver(cuda, [doctor.Gpu("Stub GPU", (major, 0), 80 * 10**9)], code)
    assert doctor._driver(driver) == doctor.Finding("NVIDIA driver", False, found, advice)


def test_a_gpu_without_machine_code_names_the_cache(monkeypatch):
    monkeypatch.setenv("CUDA_CACHE_PATH", "/scratch/cache")
    monkeypatch.delenv("CUDA_CACHE_MAXSIZE", raising=False)
    new = doctor._gpu(doctor.Gpu("Stub GPU", (9, 0), 80 * 10**9))
    assert new.ok and new.found == "Stub GPU, 80 GB, compute capability 9.0"
    assert "compiles each kernel at its first use" in new.advice and "up to 4 GB in /scratch/cache" in new.advice
    assert doctor._gpu(doctor.Gpu("Stub GPU", (8, 9), 24 * 10**9)).advice == ""


@pytest.mark.parametrize("variable, value", [("CUDA_CACHE_DISABLE", "1"), ("CUDA_CACHE_MAXSIZE", "0")])
def test_a_gpu_without_machine_code_is_wrong_without_a_cache(variable, value, monkeypatch):
    monkeypatch.setenv(variable, value)
    found = doctor._gpu(doctor.Gpu("Stub GPU", (9, 0), 80 * 10**9))
    assert not found.ok and found.advice.endswith("unset CUDA_CACHE_DISABLE and CUDA_CACHE_MAXSIZE")
