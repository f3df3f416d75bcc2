"""Local directories of nodes, to be stored at a URL, and what is stored there."""

import json

from callboard.files.manifest import write_manifest
from callboard.launch.run_directory.layout import RunDirectory


def directory_of(tmp_path, node):
    directory = RunDirectory(tmp_path / node.replace("/", "-"))
    directory.create()
    directory.log(node).write_text("begins\n")
    return directory


def write_checkpoint(directory, step, content="weights"):
    folder = directory.checkpoints / f"{step:012d}"
    folder.mkdir(parents=True)
    (folder / "policy.npz").write_text(f"{content} {step}")
    (folder / "counters.json").write_text(json.dumps({"learner/0#a": {"learner_steps": step}}))
    (folder / "learner.index").write_text("state")
    write_manifest(folder)
    return folder


def stored_in(bucket):
    return sorted(str(path.relative_to(bucket)) for path in bucket.rglob("*") if path.is_file())
