"""A run whose newest checkpoints are damaged is evaluated and resumed from those before them."""

import pytest

from callboard.launch.run_directory.checkpoints import step_of

pytestmark = pytest.mark.slow


def test_a_damaged_run_continues_from_the_checkpoints_before(start, tmp_path):
    run_dir = tmp_path / "run"
    recipe = ["train", "--recipe", "apex-cartpole", "--checkpoint-replay", "--run-dir", run_dir]
    begun = start(*recipe, "--max-steps", 3000)
    assert begun.wait() == 0, begun.text()
    resumed = start("train", "--resume", "--run-dir", run_dir, "--max-steps", 6000)
    assert resumed.wait() == 0, resumed.text()
    kept, newest = sorted((run_dir / "checkpoints").glob("0*"))[-2:]
    _, replay = sorted((run_dir / "replay" / "0" / "checkpoints").glob("0*"))
    (newest / "policy.npz").write_bytes(b"")
    chunks = replay / "chunks.tfrecord"
    chunks.write_bytes(chunks.read_bytes()[:-1000])
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write('{"environment_steps": 60')

    evaluated = start("evaluate", run_dir, "--episodes", 2, "--checkpoint", "latest")
    assert evaluated.wait() == 0, evaluated.text()
    text = evaluated.text()[evaluated.text().rindex("the checkpoint ") :]
    assert text.startswith(f"the checkpoint {newest.name} is damaged (policy.npz has 0 bytes")
    again = start("train", "--resume", "--run-dir", run_dir, "--max-steps", 9000)
    assert again.wait() == 0, again.text()
    assert f"learner/0: continues from learner step {step_of(kept):,}" in again.text()
    assert f"the checkpoint {replay.name} of replay shard 0 is damaged (chunks.tfrecord has" in again.text()
    assert "replay/0: continues with" in again.text() and "Traceback" not in again.text()
    assert again.rows()[-1]["environment_steps"] >= 9000
    assert (newest.parent / f"damaged-{newest.name}").exists() and (replay.parent / f"damaged-{replay.name}").exists()
