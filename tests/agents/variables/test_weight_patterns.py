"""Patterns for parts of a network."""

import pytest

from callboard.agents.variables.weight_names import matching, parts_of
from callboard.errors import CallboardError

NAMES = [
    "online/core/lstm/bias",
    "online/torso/layers/0/bias",
    "online/torso/layers/1/bias",
    "target/torso/layers/0/bias",
]


@pytest.mark.parametrize(
    "patterns, expected",
    [
        ([], []),
        (["torso"], NAMES[1:]),
        (["torso/*"], NAMES[1:]),
        (["online/torso/"], NAMES[1:3]),
        (["online/*/0/bias", "core"], NAMES[:2]),
        (["bias"], NAMES),
        (["layers/[0]"], [NAMES[1], NAMES[3]]),
        (["*"], NAMES),
    ],
)
def test_patterns(patterns, expected):
    assert matching(NAMES, patterns, "freeze") == expected


@pytest.mark.parametrize(
    "pattern, message",
    [
        ("tors/*", r"freeze 'tors/\*' matches no weights of the network; did you mean 'torso/\*'\?"),
        ("online/trso", "did you mean 'online/torso'"),
        ("zzz", "the network has online, target"),
        ("Torso", "did you mean 'torso'"),
        ("rso", "matches no weights"),
    ],
)
def test_a_pattern_that_matches_nothing_is_refused(pattern, message):
    with pytest.raises(CallboardError, match=message):
        matching(NAMES, ["core", pattern], "freeze")


def test_parts():
    assert parts_of(NAMES) == ["online", "online/core", "online/torso", "target", "target/torso"]
