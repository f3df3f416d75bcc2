"""Every agent on one GPU, on two parts of it, and on the processor; the same tests run here on two processors."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tree
from agent_cases import SMALL_UPDATES
from device_kinds import KINDS, require
from slow_cases import values_in_session

PROGRAM = pathlib.Path(__file__).with_name("update_on_kind.py")
pytestmark = pytest.mark.timeout(3000)  # One program computes for all cases of the session.
FOLDERS = [str(PROGRAM.parents[1]), str(PROGRAM.parent)]


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    require(request.param)
    return request.param


@pytest.fixture(scope="module")
def outcomes(request, kind):
    path = os.pathsep.join([*FOLDERS, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, PROGRAM, kind, ",".join(values_in_session(request, "name"))]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", SMALL_UPDATES)
def test_an_update_is_that_of_the_processor(outcomes, name):
    updates = outcomes[name]["updates"]
    expected = updates["processor"]
    assert np.linalg.norm(expected["weights"]) > 1e-3
    for where in ("one", "two"):
        for part in ("weights", "statistics"):
            difference = np.subtract(updates[where][part], expected[part])
            assert np.linalg.norm(difference) <= 1e-6 * np.linalg.norm(expected[part]), (where, part)
        assert updates[where]["metrics"] == pytest.approx(expected["metrics"], rel=1e-6, abs=1e-9)
        assert updates[where]["unordered"] == []


@pytest.mark.parametrize("name", SMALL_UPDATES)
def test_a_step_in_float32_is_made_on_the_device(outcomes, kind, name):
    step = outcomes[name]["step"]
    assert step["change"] > 1e-6 and np.isfinite(list(step["metrics"].values())).all()
    assert step["devices"] == [f"{kind}:1"]


@pytest.mark.parametrize("name", SMALL_UPDATES)
def test_an_inference_node_acts_as_an_actor_does(outcomes, name):
    local, central = outcomes[name]["acts"].values()
    for here, there in zip(tree.flatten(local), tree.flatten(central), strict=True):
        assert there == pytest.approx(here, rel=1e-4, abs=1e-5)
