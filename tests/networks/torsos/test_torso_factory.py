"""Torsos by name, for whole observations and for their parts."""

import numpy as np
import pytest
from dm_env import specs
from slow_cases import slow_but

from callboard.errors import CallboardError
from callboard.networks.torsos import MLPTorso, NatureTorso
from callboard.networks.torsos.residual import ImpalaResNet
from callboard.networks.torsos.torso_factory import check_torso, make_torso
from callboard.specs import EnvironmentSpec, zeros

VECTOR = specs.BoundedArray((4,), np.float32, -1, 1)
IMAGE = specs.BoundedArray((40, 40, 3), np.uint8, 0, 255)
NESTED = {"camera": IMAGE, "robot": {"arm": VECTOR, "hand": (specs.DiscreteArray(3), VECTOR)}, "map": IMAGE}


def spec_of(observation):
    return EnvironmentSpec(observation, specs.DiscreteArray(6))


def test_choice_of_torso():
    def kinds(observation, name):
        torso = make_torso(spec_of(observation), name)
        return {type(module) for module in (torso, *torso.submodules)} & {MLPTorso, NatureTorso, ImpalaResNet}

    assert kinds(VECTOR, "auto") == kinds(VECTOR, "mlp") == kinds(IMAGE, "mlp") == {MLPTorso}
    assert kinds(IMAGE, "auto") == kinds(IMAGE, "impala") == {ImpalaResNet}
    assert kinds(IMAGE, "nature") == {NatureTorso}
    assert kinds({"eye": IMAGE, "body": VECTOR}, "auto") == {MLPTorso, ImpalaResNet}


@pytest.mark.slow
@pytest.mark.parametrize(
    "torso, dtype, high",
    slow_but(
        [(torso, *kind) for torso in ("impala", "nature", "mlp") for kind in ((np.uint8, 255), (np.uint8, 1))]
        + [("nature", np.int32, 255), ("nature", np.float32, 255)],
        ("mlp", np.uint8, 255),
        ("nature", np.uint8, 1),
        ("nature", np.float32, 255),
    ),
)
def test_images_are_scaled_by_their_bounds(torso, dtype, high):
    """Pixels scaled by the bounds of their spec, and the same image in floats from 0 to 1, give the same output."""
    image = np.random.default_rng(0).integers(0, high + 1, (2, 40, 40, 3)).astype(dtype)
    layers = [
        make_torso(spec_of(spec), torso)
        for spec in (specs.BoundedArray((40, 40, 3), dtype, 0, high), specs.BoundedArray((40, 40, 3), np.float32, 0, 1))
    ]
    floats = (image / high).astype(np.float32)
    layers[0](image), layers[1](floats)
    layers[1].set_weights(layers[0].get_weights())
    np.testing.assert_allclose(layers[0](image), layers[1](floats), atol=1e-5)


def test_images_whose_channels_may_be_first_are_refused():
    for shape in ((16, 8, 8), (5, 9, 20), (4, 84, 84)):
        spec = spec_of({"map": specs.Array(shape, np.float32)})
        with pytest.raises(CallboardError, match=r"may be its channels: move them last") as caught:
            check_torso(spec, "auto")
        assert "\n" not in str(caught.value)
        check_torso(spec, "mlp")
    check_torso(spec_of(IMAGE), "auto")


@pytest.mark.parametrize("check", [check_torso, make_torso])
def test_images_that_are_too_small_are_refused_in_one_line_before_a_network_is_built(check):
    small = {"map": specs.Array((12, 12, 1), np.uint8), "body": VECTOR}
    with pytest.raises(CallboardError) as caught:
        check(spec_of(small), "nature")
    assert str(caught.value) == "torso 'nature' needs images of at least 36x36, not 12x12; use 'impala'"
    check(spec_of(small), "impala")


def test_stacks_of_images_are_refused():
    stacked = spec_of(specs.BoundedArray((4, 84, 84, 3), np.uint8, 0, 255))
    with pytest.raises(CallboardError, match="may be a stack of images: .* set agent.frame_stack, or use torso 'mlp'"):
        check_torso(stacked, "auto")
    check_torso(stacked, "mlp")
    check_torso(spec_of(specs.Array((4, 8, 8, 3), np.float32)), "auto")


# Parts of observations.


def kinds_of(torso):
    return [type(one).__name__ for one in torso._torsos], type(torso._rest).__name__


@pytest.mark.slow("daily")
def test_parts_have_torsos_of_their_own_and_share_one_for_the_rest():
    spec = spec_of(NESTED)
    torsos = {"camera": "nature", "robot/hand": "mlp"}
    check_torso(spec, "auto", torsos=torsos)
    torso = make_torso(spec, "auto", (8, 5), image_features=16, torsos=torsos)
    assert kinds_of(torso) == (["ObservationTorso", "MLPTorso"], "ObservationTorso")
    features = torso(zeros(NESTED, 2)).numpy()
    # Nature's, the hand's, and of the rest those of the map and the arm.
    assert features.shape == (2, 16 + 5 + 16 + 5)

    def changed(part, number):
        observation = zeros(NESTED, 2)
        target = observation["robot"] if part == "arm" else observation
        if part == "hand":
            observation["robot"]["hand"] = (observation["robot"]["hand"][0] + 1, observation["robot"]["hand"][1])
        else:
            target[part] = target[part] + target[part].dtype.type(number)
        return np.abs(torso(observation).numpy() - features).max(axis=0) > 1e-7

    places = {"camera": slice(0, 16), "hand": slice(16, 21), "map": slice(21, 37), "arm": slice(37, 42)}
    for part, own in places.items():
        reached = changed(part, 100)
        assert reached[own].any() and not np.delete(reached, np.r_[own]).any(), part


def test_every_part_may_have_a_torso():
    observation = (IMAGE, VECTOR)
    torsos = {"0": "impala", "1": "mlp"}
    check_torso(spec_of(observation), "auto", torsos=torsos)
    torso = make_torso(spec_of(observation), "auto", (7,), torsos=torsos)
    assert kinds_of(torso) == (["ObservationTorso", "MLPTorso"], "NoneType")
    assert torso(zeros(observation, 3)).shape == (3, 256 + 7)


@pytest.mark.parametrize(
    ("observation", "torso", "torsos", "message"),
    [
        (NESTED, "auto", {"camra": "mlp"}, "unknown part of the observation 'camra'; did you mean 'camera'"),
        (NESTED, "auto", {"xyz": "mlp"}, "torsos may be for camera, map, robot, robot/arm, robot/hand, robot/hand/0"),
        (NESTED, "auto", {"robot": "mlp", "robot/arm": "mlp"}, "has both 'robot' and 'robot/arm', a part of it"),
        (NESTED, "auto", {"robot": "nature"}, "torso 'nature' is for images"),
        (NESTED, "auto", {"camera": "natur"}, "unknown torso 'natur'; did you mean 'nature'"),
        (
            (IMAGE,),
            "nature",
            {"0": "mlp"},
            "every part of the observation has a torso of its own: leave",
        ),
        (VECTOR, "auto", {"camera": "mlp"}, r"parts of an observation, but it is float32\(4,\): give torso alone"),
    ],
)
def test_wrong_torsos_of_parts_are_refused_in_one_line(observation, torso, torsos, message):
    with pytest.raises(CallboardError, match=message) as caught:
        check_torso(spec_of(observation), torso, torsos=torsos)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name, precision",
    [
        ("conv", "float32"),
        ("nature", "bfloat16"),
        pytest.param("conv", "bfloat16", marks=pytest.mark.slow),
        pytest.param("nature", "float32", marks=pytest.mark.slow),
        pytest.param("impala", "float32", marks=pytest.mark.slow),
        pytest.param("impala", "bfloat16", marks=pytest.mark.slow),
    ],
)
def test_all_kernels_of_a_torso_for_images_begin_as_the_initializer_says(name, precision):
    filters = ((4, 8, 4),) if name == "conv" else ()

    def kernels(initializer):
        torso = make_torso(
            spec_of(IMAGE), name, (), "relu", filters, precision=precision, image_initializer=initializer
        )
        torso(np.zeros((1, 40, 40, 3), np.uint8))
        return [np.reshape(each, (-1, each.shape[-1])) for each in torso.get_weights() if each.ndim > 1]

    def is_orthogonal(kernel):
        smaller = kernel if kernel.shape[0] < kernel.shape[1] else kernel.T
        return np.allclose(smaller @ smaller.T, np.eye(len(smaller)), atol=1e-4)

    assert kernels("orthogonal") and all(map(is_orthogonal, kernels("orthogonal")))
    assert not any(map(is_orthogonal, kernels(None)))


@pytest.mark.parametrize(
    "name", ["conv", *(pytest.param(name, marks=pytest.mark.slow) for name in ("nature", "impala", "resnet8"))]
)
def test_torsos_for_images_have_relus_or_the_activation_that_is_given(name):
    filters = ((4, 8, 4),) if name == "conv" else ()
    image = np.random.default_rng(0).integers(256, size=(4, 40, 40, 3)).astype(np.uint8)

    def features(activation, image_activation):
        torso = make_torso(spec_of(IMAGE), name, (), activation, filters, image_activation=image_activation)
        return torso(image).numpy()

    given = features("relu", "softplus")
    assert given.min() > 0 and features("relu", "tanh").min() < 0
    default = features("tanh", None)
    assert (default.min() < 0) == (name == "conv") and np.isfinite(default).all()
