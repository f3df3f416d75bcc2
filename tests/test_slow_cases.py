"""Pairs of which every value of each side is in some."""

from slow_cases import checkered


def test_half_of_a_product_has_every_value_with_half_of_the_others():
    pairs = checkered("abcd", range(5))
    assert len(pairs) == len(set(pairs)) == 10
    assert all({number for one, number in pairs if one == letter} in ({0, 2, 4}, {1, 3}) for letter in "abcd")
    assert {number for _, number in pairs} == set(range(5))
