"""YAML: plain values come back as they were written, and reading has bounds."""

import math
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.errors import CallboardError
from callboard.launch.experiments.yaml_files import format_yaml, parse_yaml, read_yaml

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "1e3",
        "1:30",
        "010",
        "yes",
        "null",
        "2020-01-01",
        "0x1",
        "1_0",
        ".inf",
        "~",
        "<<",
        "=",
        "*a",
        "&a",
        "!a",
        "-",
        "...",
    ]
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None, database=None, derandomize=True)
@given(plain)
def test_what_is_written_is_read_as_the_same(value):
    read = parse_yaml(format_yaml(value))
    assert read == value and repr(read) == repr(value)


@pytest.mark.parametrize(
    "text, value",
    [
        ("1e-3", 0.001),
        ("1:30", "1:30"),
        ("010", "010"),
        ("2020-01-01", "2020-01-01"),
        ("1_000", 1000),
        ("yes", True),
        ("", None),
        ("!!str 1", "1"),
        ("!!int 1", 1),
        ("[a, {b: }]", ["a", {"b": None}]),
        ("-.INF", -math.inf),
    ],
)
def test_numbers_are_what_they_look_like(text, value):
    assert parse_yaml(text) == value


@pytest.mark.parametrize(
    "text, message",
    [
        ("a: &a [1]\nb: *a", "line 2: \\*a: aliases are not read"),
        ("[" * 20_000, "nested too deeply"),
        ("".join(f"{' ' * depth}a:\n" for depth in range(100)), "nested too deeply"),
        ("a: 1\na: 2", "the key 'a' stands here twice"),
        ("yes: 1", "the key 'yes' is not text: put it in quotes"),
        ("1: 1", "the key '1' is not text"),
        ("[a]: 1", "line 1: the key 'here' is not text"),
        ("a: 1\n---\nb: 1", "several documents"),
        ("--- !!map\na: !!set {b}", "line 2: the tag tag:yaml.org,2002:set is not one of"),
        ("!!python/object/apply:os.system [ls]", "line 1: the tag"),
        ("[a", "line 1: "),
        ("a: !!python/name:os.system", "line 1"),
        ("a: !!int x", "a value is not what its tag says"),
        ("a: " + "9" * 5000, "too long"),
    ],
)
def test_what_is_not_plain_is_refused(text, message):
    begin = time.process_time()
    with pytest.raises(ValueError, match=message):
        parse_yaml(text)
    assert time.process_time() - begin < 10


def test_only_regular_files_of_settings_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b" " * 2**21)
    (tmp_path / "latin").write_bytes("ä: 1".encode("latin-1"))
    for name, message in [
        ("pipe", "is no regular file"),
        ("device", "is no regular file"),
        (".", "is a directory"),
        ("large", "has more than 1,048,576 bytes"),
        ("latin", "is not UTF-8 text"),
        ("missing", "cannot be read: No such file"),
    ]:
        with pytest.raises(CallboardError, match=message):
            read_yaml(tmp_path / name)
