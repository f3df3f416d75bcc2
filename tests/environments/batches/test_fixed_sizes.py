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


PLACE, POINT = spaces.Discrete(3, start=-1), spaces.Box(-1, 1, (2,), np.float32)
ELEMENTS = (
    POINT,
    spaces.Box(0, 255, (3, 8, 8), np.uint8),
    PLACE,
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[1, 0], [0, 1]])),
    spaces.Dict(
        {"z": POINT, "a": PLACE, "pair": spaces.Tuple((spaces.MultiBinary(2), spaces.Box(0, 9, (), np.int16)))}
    ),
    spaces.OneOf((PLACE, POINT)),
)


@pytest.mark.parametrize("element", ELEMENTS, ids=lambda space: type(space).__name__)
def test_elements_are_flattened_as_gymnasium_does(element):
    element.seed(3)
    given = [element.sample() for _ in range(5)]
    environment = wrapped(spaces.Sequence(element), sequence_length=7)
    seen = environment.observation(tuple(given))
    np.testing.assert_allclose(seen["elements"][:5], [spaces.flatten(element, one) for one in given], rtol=1e-6)
    assert seen["elements"].dtype == environment.observation_space["elements"].dtype and not seen["elements"][5:].any()


def sequence(*elements):
    return {"mission": "", "pose": np.zeros(2, np.float32), "seen": elements}


@pytest.mark.parametrize(
    ("space", "given", "message"),
    [
        (SPACE, {**sequence(), "mission": "az"}, "at 'mission' contains 'z', which is not among the characters of its"),
        (SPACE, {**sequence(), "mission": 3}, "the observation at 'mission' is an int, not text"),
        (SPACE, {"pose": 0, "seen": ()}, "an observation without the part 'mission' of its space"),
        (SPACE, None, "an observation without the part 'mission' of its space"),
        (SPACE, {**sequence(), "seen": 3}, "the observation at 'seen' is an int, not a sequence"),
        (
            SPACE,
            sequence({"at": np.ones(3), "kind": 0}),
            "an observation of shape .3,. at 'seen/at' where its spec says",
        ),
        (SPACE, sequence({"at": np.ones((2, 1)), "kind": 0}), "an observation of shape .2, 1. at 'seen/at' where"),
        (SPACE, sequence({"at": np.ones(2)}), "an observation without the part 'kind' of its space"),
        (SPACE, sequence({"at": "ab", "kind": 1}), "the observation at 'seen/at' is of type <U2, not of numbers"),
        (SPACE, sequence({"at": np.ones(2), "kind": 3}), "at 'seen/kind' is 3, which is outside of its space, 0 to 2"),
        (
            SPACE,
            sequence({"at": np.ones(2), "kind": -1}),
            "at 'seen/kind' is -1, which is outside of its space, 0 to 2",
        ),
        (spaces.Sequence(PLACE), (0, 5), "the observation is 5, which is outside of its space, -1 to 1"),
        (spaces.Sequence(POINT, stack=True), 3, "the observation is an int, not a sequence"),
        (spaces.Sequence(ELEMENTS[-1]), ((0, 8),), "has an element that is not in its space: correct the space"),
        (spaces.Tuple((SPACE["seen"], PLACE)), ((),), "an observation without the part 1 of its space"),
    ],
)
def test_values_outside_of_the_space_are_refused_in_one_line(space, given, message):
    environment = wrapped(space, **(SIZES if space is SPACE else {"sequence_length": 3}))
    with pytest.raises(CallboardError, match=message) as caught:
        environment.observation(given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("tokens, given", [([0.5], "0.5"), (["a"], "'a'"), ([None], "None")])
def test_tokens_that_are_no_whole_numbers_are_refused(tokens, given):
    environment = wrapped(spaces.Text(9), tokenizer=lambda text: tokens, text_tokens=26, text_length=3)
    with pytest.raises(CallboardError, match=f"the tokenizer gives {given}: let it give a list of whole numbers$"):
        environment.observation("a")


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
