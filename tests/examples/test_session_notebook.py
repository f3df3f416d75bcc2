"""The notebook of the examples runs from top to bottom in a kernel."""

import os
import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = pathlib.Path(__file__).parents[2] / "examples" / "session.ipynb"


@pytest.mark.slow
def test_a_session_works_in_a_notebook(tmp_path, monkeypatch):
    # The kernel inherits the path of the package that is tested.
    paths = [str(pathlib.Path(__file__).parents[3]), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    *_, last = (cell for cell in notebook.cells if cell.cell_type == "code")
    assert "'its session has ended'" in last.outputs[-1].data["text/plain"]
    printed = [
        output for cell in notebook.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"
    ]
    assert not printed, printed
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert list((run_dir / "checkpoints").glob("0*")) and not (run_dir / "tmp").exists()
