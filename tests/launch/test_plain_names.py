"""Names for other libraries: their letters, and that no two are the same."""

import pytest

from callboard.launch.plain_names import in_command, plain_names


def test_a_path_in_a_command_is_no_option():
    assert [in_command(path) for path in ("runs/x", "-dash", "--seeds", "/-x")] == [
        "runs/x",
        "./-dash",
        "./--seeds",
        "/-x",
    ]


def test_names_that_differ_stay_short():
    assert plain_names(["learner/loss", "a b", "größe", "日本", ""]) == [
        "learner_loss",
        "a_b",
        "gr_xf6__xdf_e",
        "_x65e5__x672c_",
        "",
    ]
    assert plain_names(["episode/a-b.c d"], also="/-") == ["episode/a-b_c_d"]


@pytest.mark.parametrize(
    "names",
    [
        ["a b", "a/b", "a_b", "a\tb"],
        ["a b", "a/b", "a_x20_b", "a_x2f_b", "a_b_"],
        ["ö", "_xf6_"],
        ["A", "a", "a_", "A_", "A b", "a/b"],
        ["", "", ""],
        ["\x1b[2J", "\n[2J", "\x00" * 300],
    ],
)
def test_no_two_are_the_same(names):
    found = plain_names(names)
    assert len({name.lower() for name in found}) == len(names) and all(
        name.isascii() and f"x{name}".isidentifier() for name in found
    )
    assert plain_names(names) == found
