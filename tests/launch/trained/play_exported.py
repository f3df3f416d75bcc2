"""Plays exported policies on recorded timesteps.  Run as a program that cannot import Callboard.

    play_exported.py DIRECTORY...

Each directory holds `model`, and `timesteps.npz` of what the signature that acts is given, `[T, B, ...]`, by name.  Its
actions go to `actions.npz`: `batch` `[T, B, ...]`; `alone`, those of the first environment in batches of one; and
`forgetful`, those of a policy that begins anew at every timestep.
"""

import importlib.util
import pathlib
import sys

import numpy as np
import tensorflow as tf


def play(model, timesteps, remember=True):
    names, columns = zip(*timesteps.items(), strict=True)
    batch_size = columns[0].shape[1]
    initial_state = model.signatures["initial_state"](batch_size=tf.constant(batch_size))
    state, actions = initial_state, []
    for rows in zip(*columns, strict=True):
        timestep = {name: tf.constant(row) for name, row in zip(names, rows, strict=True)}
        outputs = model.signatures["serving_default"](**timestep, **state)
        actions.append(outputs.pop("action").numpy())
        state = outputs if remember else initial_state
    return np.stack(actions)


def main():
    assert importlib.util.find_spec("callboard") is None, "Callboard can be imported here"
    for directory in map(pathlib.Path, sys.argv[1:]):
        model = tf.saved_model.load(str(directory / "model"))
        timesteps = dict(np.load(directory / "timesteps.npz"))
        alone = play(model, {name: column[:, :1] for name, column in timesteps.items()})
        batch, forgetful = play(model, timesteps), play(model, timesteps, remember=False)
        np.savez(directory / "actions.npz", batch=batch, alone=alone, forgetful=forgetful)


if __name__ == "__main__":
    main()
