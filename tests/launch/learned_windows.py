"""What `numbered.LoggedApex` has learned from, and the priorities that its windows have in checkpoints of replay."""

import numpy as np

SHARDS = (0, 1)


def own_weights(environments, steps):
    """The weights of windows that were updated, by what they begin with."""
    return (2 + (environments + 7 * steps) % 101 / 101) ** 0.6


def settings(log):
    """Arguments of a run with prioritized items of whole batches, which soon learns, and saves all it has."""
    return [
        *("--env", "numbered:Numbered", "--agent.learned-log", log, "--agent.updates-per-call", 1),
        *("--agent.replay.min-size", 500, "--agent.replay.samples-per-insert", 32, "--agent.batch-size", 128),
        *("--envs-per-actor", 16, "--checkpoint-replay", "--replay-checkpoint-every", 3, "--checkpoint-every", 3),
        *("--max-steps", 100_000_000, "--stop-return", "null", "--evaluator", "false"),
    ]


def saved(run_dir, shard):
    """The checkpoints of a shard, the newest last."""
    return sorted(path.parent for path in run_dir.glob(f"replay/{shard}/checkpoints/[0-9]*/DONE"))


def saves_again(run, run_dir, shard):
    """Waits for a checkpoint of a shard that begins after this call."""
    newest = int(saved(run_dir, shard)[-1].name)
    # The next one may have begun.
    run.wait_until(lambda: int(saved(run_dir, shard)[-1].name) > newest + 1, timeout=60)


def weights_of_windows(run_dir, shard):
    """The weights `[N, B]` of windows in the newest checkpoint of a shard, and the keys of their items."""
    with np.load(saved(run_dir, shard)[-1] / "window_weights.npz") as file:
        return file["weights"], file["keys"].tolist()


def updated_windows(run_dir, shard):
    """The windows `(shard, key, window)` in the newest checkpoint of a shard whose priorities were updated."""
    weights, keys = weights_of_windows(run_dir, shard)
    return {(shard, keys[item], window) for item, window in np.argwhere(weights > 1).tolist()}


def learned_windows(log):
    """The origin `(environment, step)` of each window `(shard, key, window)` that was learned from.

    Each was whole whenever it was learned from, and always the same; and all of an item are of one step, since all
    environments of an actor have made as many.
    """
    origins, steps, lines = {}, {}, log.read_text().splitlines()
    for line in lines:
        *numbers, fault = line.split()
        assert fault == "-", line
        environment, step, key, shard, place = map(int, numbers)
        window, origin = (shard, key, place), (environment, step)
        assert origins.setdefault(window, origin) == origin
        assert steps.setdefault(window[:2], origin[1]) == origin[1]
    assert {shard for shard, *_ in origins} == set(SHARDS) and len(origins) < len(lines)
    return origins


def check_priorities(origins, run_dir, shard):
    """Checks the windows' weights in the newest checkpoint of a shard: first ones, or their own."""
    weights, keys = weights_of_windows(run_dir, shard)
    assert np.isin(weights[weights <= 1], (0, 1)).all()
    updated = updated_windows(run_dir, shard)
    # None is updated that was not learned from.
    found = np.array([origins[window] for window in updated], np.int64)
    rows = {key: row for row, key in enumerate(keys)}
    own = [weights[rows[key], window] for _, key, window in updated]
    np.testing.assert_allclose(own, own_weights(*found.T), rtol=1e-5)
    # An update is only lost with a shard, or where it is away.
    learned = {window for window in origins if window[0] == shard and window[1] in rows}
    assert len(updated) > 0.5 * len(learned)
