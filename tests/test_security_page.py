"""Every line of the page about security that promises something names tests, and those exist."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text()
NAMED = re.compile(r"<!-- (tests/\S+\.py)::(\w+) -->")
PROMISES = [
    part for part in re.split(r"^- ", PAGE.split("## What is defended")[1].split("\n## ")[0], flags=re.MULTILINE)[1:]
]


def test_there_are_promises():
    assert len(PROMISES) > 20


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise[:50])
def test_a_promise_names_its_tests(promise):
    assert NAMED.search(promise)


@pytest.mark.parametrize("path, name", sorted(set(NAMED.findall(PAGE))))
def test_the_tests_exist(path, name):
    functions = ast.parse((ROOT / path).read_text()).body
    assert name in {function.name for function in functions if isinstance(function, ast.FunctionDef)}


def test_nothing_else_looks_like_the_name_of_a_test():
    assert PAGE.count("<!--") == len(NAMED.findall(PAGE))
