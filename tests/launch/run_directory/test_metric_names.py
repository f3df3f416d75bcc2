"""The registry of metrics: every name that a run writes is in it, and the reference page shows it."""

import ast
import pathlib
import re

from callboard.launch.run_directory.metric_names import METRICS, is_known, reference_tables

ROOT = pathlib.Path(__file__).resolve().parents[3]
NAME = re.compile(r"(actor|learner|evaluator|replay|inference)/[a-z_]+(_\d+)?")


def test_the_reference_page_is_up_to_date():
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert page.endswith(reference_tables()), "run make docs"


def test_no_metric_is_registered_twice():
    names = [metric.name for metrics in METRICS.values() for metric in metrics]
    assert len(names) == len(set(names))


def test_names_in_the_sources_are_registered():
    for path in (ROOT / "launch").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
                assert is_known(node.value) or is_known(f"{node.value.rstrip('_')}_0"), f"{path.name}: {node.value}"


def test_numbers_of_shards_are_part_of_no_name():
    assert is_known("replay/fill_0") and is_known("replay/fill_12")
    assert not is_known("replay/fill") and not is_known("learner/typo")
