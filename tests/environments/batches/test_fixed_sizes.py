"""Texts and sequences of fixed sizes: what agents see of them, and what is refused."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from callboard.environments import factory
from callboard.environments.batches.fixed_sizes import FixedSizeObservations
from callboard.errors import CallboardError
from callboard.specs import MultiDiscreteArray

SPACE = spaces.Dict(
    {
        "mission": spaces.Text(20, charset="abc "),
        "pose": spaces.Box(-1, 1, (2,), np.float32),
        "seen": spaces.Sequence(spaces.Dict({"at": spaces.Box(1, 5, (2,), np.float32), "kind": spaces.Discrete(3)})),
    }
)
SIZES = {"text_length": 4, "sequence_length": 3}


class Talking(gymnasium.Env):
    """Shows a text and a sequence that grow, and ends after four steps; the third of them ends nothing."""

    def __init__(self, space=SPACE):
        self.observation_space, self.action_space = space, spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self._time = 0
        return self._observation(), {}

    def step(self, action):
        self._time += 1
        return self._observation(), 1.0, False, self._time == 4, {}

    def _observation(self):
        time = self._time
        seen = tuple({"at": np.full(2, 1 + index, np.float32), "kind": index % 3} for index in range(time))
        return {"mission": "abc ab"[: 2 * time], "pose": np.full(2, time / 4, np.float32), "seen": seen}


def first_letters(text):
    return [ord(letter) - ord("a") for letter in text if letter != " "]


def wrapped(space, **sizes):
    return FixedSizeObservations(Talking(space), **sizes)


def made(space, sizes):
    wrappers = [{"name": "FixedSizeObservations", **sizes}] if sizes else []
    return factory.make(lambda: Talking(space), 2, [0, 1], {"env_wrappers": wrappers})


def test_texts_and_sequences_are_padded_and_cut(caplog):
    environment = made(SPACE, SIZES)
    assert environment.spec.observation["mission"] == MultiDiscreteArray([5] * 4)
    assert environment.spec.observation["seen"]["elements"].shape == (3, 5)
    assert environment.spec.observation["seen"]["elements"].minimum.min() == 0
    timesteps = [environment.reset(), *(environment.step(np.zeros(2, np.int32)) for _ in range(5))]
    missions = [timestep.observation["mission"][0].tolist() for timestep in timesteps]
    assert missions[:4] == [[0] * 4, [sorted(" abc").index(c) + 1 for c in "ab"] + [0, 0], missions[2], missions[2]]
    assert len(set(missions[2])) == 4 and missions[5] == [0] * 4 and timesteps[5].first.all()
    masks = [timestep.observation["seen"]["mask"][1].tolist() for timestep in timesteps]
    assert masks == [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 1], [0, 0, 0]]
    elements = timesteps[2].observation["seen"]["elements"][0]
    np.testing.assert_array_equal(elements, [[1, 1, 1, 0, 0], [2, 2, 0, 1, 0], [0] * 5])
    assert [record.message for record in caplog.records if "longer" in record.message] == [
        "a text in an observation is longer than text_length (4): its end is cut off",
        "a sequence in an observation is longer than sequence_length (3): its end is cut off",
    ]
    environment.close()


def test_a_tokenizer_of_the_users():
    space = spaces.Dict({"mission": spaces.Text(9)})
    environment = wrapped(space, tokenizer=f"{__name__}:first_letters", text_tokens=26, text_length=3)
    assert environment.observation({"mission": "b ad"})["mission"].tolist() == [2, 1, 4]
    assert environment.observation_space["mission"].nvec.tolist() == [27] * 3
    with pytest.raises(CallboardError, match="gives the tokens 25 to 25, and text_tokens is 20"):
        wrapped(space, tokenizer=f"{__name__}:first_letters", text_tokens=20, text_length=3).observation(
            {"mission": "z"}
        )


def test_sequences_whose_elements_come_stacked():
    environment = wrapped(spaces.Sequence(spaces.Box(-1, 1, (2, 2)), stack=True), sequence_length=3)
    seen = environment.observation(np.arange(8, dtype=np.float32).reshape(2, 2, 2))
    np.testing.assert_array_equal(seen["elements"], [[0, 1, 2, 3], [4, 5, 6, 7], [0] * 4])
    assert seen["mask"].tolist() == [1, 1, 0] and environment.observation_space.contains(seen) is False
    assert environment.observation_space["elements"].shape == (3, 4)


def test_a_space_of_texts_of_another_library():
    class Missions(spaces.Space):
        """Texts without a set of characters."""

    environment = wrapped(Missions(), tokenizer=f"{__name__}:first_letters", text_tokens=26, text_length=2)
    assert environment.observation("cab").tolist() == [3, 1]


@pytest.mark.parametrize(
    ("space", "options", "message"),
    [
        (SPACE, {}, "the observation space Text at 'mission' is not supported.*FixedSizeObservations, text_length: 16"),
        (SPACE, {"text_length": 4}, "a sequence at 'seen': give FixedSizeObservations a sequence_length"),
        (SPACE, {"sequence_length": 4}, "a text at 'mission': give FixedSizeObservations a text_length"),
        (SPACE["pose"], {"text_length": 4}, "the observation space has no text: leave out"),
        (SPACE, {**SIZES, "tokenizer": "a:b"}, "tokenizer and text_tokens, .* go together: give both or none"),
        (SPACE, {"sequence_length": 3, "tokenizer": f"{__name__}:SIZES", "text_tokens": 3}, "is not a function but"),
        (SPACE, {**SIZES, "tokenizer": "no_such_module:b", "text_tokens": 3}, "No module named 'no_such_module'"),
        (SPACE, {**SIZES, "text_length": 0}, "text_length must be a whole number of at least 1"),
        (spaces.Sequence(spaces.Graph(SPACE["pose"], None)), {"sequence_length": 2}, "are not arrays of a fixed size"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(space, options, message):
    with pytest.raises(CallboardError, match=message) as caught:
        made(space, options)
    assert "\n" not in str(caught.value)
