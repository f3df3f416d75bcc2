"""The replay node: what it reports of its tables, and that it continues with what it has saved."""

import os

import numpy as np
import pytest
from local_nodes import small_run

from callboard.errors import CallboardError

KEPT = ("--evaluator", "false", "--checkpoint-replay", "true", "--agent.replay.min-size", 1000)
REPLAY_ALONE = ("coordinator/0", "replay/0")


def values(node):
    return {name.removeprefix("replay/"): value for name, value in node.collect().values.items()}


def test_an_empty_server_reports_its_tables(tmp_path):
    messages = []
    with small_run("impala-cartpole", tmp_path, only=REPLAY_ALONE, messages=messages) as nodes:
        replay = nodes["replay/0"]
        assert values(replay) == {"fill_0": 0.0, "items_0": 0, "inserted_0": 0, "sampled_0": 0}
        assert set(replay.tables_at_start) == set(replay.tables())
        assert replay.context.progress.heartbeat().activity == "serving"
        replay.finish()
    assert not (tmp_path / "replay").exists() or not list((tmp_path / "replay").rglob("DONE"))
    assert not [content for _, kind, content in messages if kind == "message"]


@pytest.mark.slow("daily")
def test_a_server_that_saves_continues_with_its_items(tmp_path):
    with small_run("apex-cartpole", tmp_path, *KEPT) as nodes:
        replay, actor = nodes["replay/0"], nodes["actor/0"]
        for _ in range(10):
            actor.step()
        found = values(replay)
        assert found["items_0"] == found["inserted_0"] == actor.items_written > 0
        # An item is of both environments.
        assert found["fill_0"] == pytest.approx(2 * found["items_0"] / 100_000)
        replay.finish()
    messages = []
    with small_run("apex-cartpole", tmp_path, *KEPT, only=REPLAY_ALONE, messages=messages) as nodes:
        assert values(nodes["replay/0"])["items_0"] == found["items_0"]
    assert ("replay/0", "message", f"continues with {found['items_0']} items") in messages


@pytest.mark.slow("daily")
def test_priorities_of_windows_survive_the_server(tmp_path):
    def weights(replay):
        samples = replay._client.sample("replay", 200, emit_timesteps=False)
        found = {sample.info.key: sample.info.priority for sample in samples}
        keys = np.array(sorted(found), np.uint64)
        return keys, replay.window_weights(keys.tobytes(), np.zeros((len(keys), 2), np.float32).tobytes()), found

    settings = (*KEPT, "--agent.replay.min-size", 2, "--agent.replay.error-buffer", 1e6)
    with small_run("apex-cartpole", tmp_path, *settings) as nodes:
        replay, actor = nodes["replay/0"], nodes["actor/0"]
        for _ in range(40):
            actor.step()
        assert actor._actors[""]._writer.ready(10, max_pending=0)
        keys, _, _ = weights(replay)
        envs, priorities = np.ones(len(keys), np.int32), np.arange(1, len(keys) + 1, dtype=np.float32)
        replay.update_windows(keys.tobytes(), envs.tobytes(), priorities.tobytes())
        replay.finish()
    with small_run("apex-cartpole", tmp_path, *settings, only=REPLAY_ALONE) as nodes:
        now, found, sampled = weights(nodes["replay/0"])
        # By chance an item may be sampled here for the first time.
        updated = np.isin(now, keys)
        now, found = now[updated], found[updated]
        assert len(now) > 10
        # The first weights of the others are those of the learner's reader, where it was here before.
        np.testing.assert_allclose(found[:, 1], [(1 + list(keys).index(key)) ** 0.6 for key in now], rtol=1e-6)
        np.testing.assert_allclose([sampled[key] for key in now.tolist()], found.sum(axis=1), rtol=1e-6)


def test_a_server_that_has_ended_reports_nothing_and_leaves_no_threads(tmp_path):
    with small_run("impala-cartpole", tmp_path, only=REPLAY_ALONE) as nodes:
        replay = nodes["replay/0"]
        before = len(os.listdir("/proc/self/task"))
        replay.release()
        assert len(os.listdir("/proc/self/task")) < before - 20
        assert replay.collect().values == {}


def test_a_last_checkpoint_that_cannot_be_written_fails_the_run_with_one_line(tmp_path, monkeypatch):
    with small_run("apex-cartpole", tmp_path, *KEPT, only=REPLAY_ALONE) as nodes:
        replay = nodes["replay/0"]
        directory = tmp_path / "replay" / "0"
        directory.rename(tmp_path / "away")
        directory.write_text("in the way")
        with pytest.raises(CallboardError, match="the last checkpoint of replay could not be written: ") as raised:
            replay.finish()
        assert "\n" not in str(raised.value)
