"""Plays ONNX policies on recorded timesteps, as `play_exported.py`, with onnxruntime and NumPy alone.

    play_onnx.py DIRECTORY...

Each directory holds `onnx`, and `timesteps.npz` as there.  Its actions go to `actions.npz`.
"""

import json
import pathlib
import sys

import numpy as np
import onnxruntime


def play(directory, timesteps, remember=True):
    session = onnxruntime.InferenceSession(directory / "policy.onnx", providers=["CPUExecutionProvider"])
    about = json.loads((directory / "policy.json").read_text(encoding="utf-8"))
    batch = timesteps["first"].shape[1]
    state = {}
    for leaf in about["state"]:
        start = np.array(leaf["start"], leaf["dtype"])
        state[leaf["name"]] = np.broadcast_to(start, (batch, *leaf["shape"][1:])).copy()
    initial, actions = state, []
    for index in range(len(timesteps["first"])):
        inputs = {leaf["name"]: timesteps[leaf["name"]][index] for leaf in about["inputs"]}
        names = [leaf["name"] for leaf in about["outputs"]] + [leaf["output"] for leaf in about["state"]]
        outputs = dict(zip(names, session.run(names, {**inputs, **state}), strict=True))
        actions.append(outputs["action"])
        state = {leaf["name"]: outputs[leaf["output"]] for leaf in about["state"]} if remember else initial
    return np.stack(actions)


def main():
    for directory in map(pathlib.Path, sys.argv[1:]):
        timesteps = dict(np.load(directory / "timesteps.npz"))
        alone = play(directory / "onnx", {name: column[:, :1] for name, column in timesteps.items()})
        batch, forgetful = (play(directory / "onnx", timesteps, remember) for remember in (True, False))
        np.savez(directory / "actions.npz", batch=batch, alone=alone, forgetful=forgetful)
    assert not {"tensorflow", "callboard"} & set(sys.modules)


if __name__ == "__main__":
    main()
