"""The pages: their links lead somewhere, and the site's navigation shows all of them."""

import pathlib
import re

import pytest
import yaml

from callboard.agents.agent_names import AGENTS

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)")
PACKAGES = "agents|benchmarks|docs|environments|examples|launch|networks|replay|tests"
PATH = re.compile(rf"`((?:{PACKAGES})/(?:[\w./-]*[./]\w*)?)`")
METRIC = re.compile(r"`((?:actor|evaluator|learner)/[a-z_]+)`")
IN_ROOT = {"index.md", "contributing.md", "changelog.md"}


def anchors(page):
    """The anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.slow("daily")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for path, anchor in LINK.findall(re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        if anchor:
            assert anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page):
    if page.name != "CHANGELOG.md":
        missing = [path for path in PATH.findall(page.read_text()) if not (ROOT / path).exists()]
        assert not missing


def test_metrics_that_are_named_exist():
    known = set(METRIC.findall((ROOT / "docs" / "metrics.md").read_text()))
    for page in PAGES:
        if page.name != "CHANGELOG.md":
            assert set(METRIC.findall(page.read_text())) <= known, page


def test_modules_of_the_reference_exist():
    for page in (ROOT / "docs" / "api").glob("*.md"):
        for module in re.findall(r"^::: callboard\.(.+)$", page.read_text(), re.MULTILINE):
            assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists(), module


def test_the_readme_names_every_agent_and_its_class():
    text = (ROOT / "README.md").read_text()
    names = {name for path in AGENTS.items() for name in (path[0], path[1].partition(":")[2])}
    assert not sorted(name for name in names if f"`{name}`" not in text)


def test_the_navigation_shows_every_page():
    def pages(entry):
        if isinstance(entry, str):
            return [entry]
        return [page for value in (entry.values() if isinstance(entry, dict) else entry) for page in pages(value)]

    shown = pages(yaml.safe_load((ROOT / "docs" / "site" / "mkdocs.yml").read_text())["nav"])
    written = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(shown) == sorted(written | IN_ROOT)


@pytest.mark.parametrize(
    "page", ["README.md", "docs/ppo.md", "docs/appo.md", "docs/a2c.md", "docs/impala.md", "docs/apex.md"]
)
def test_pages_have_pictures_that_exist(page):
    pictures = re.findall(r"!\[.+\]\((\S+)\)", (ROOT / page).read_text())
    assert pictures and all((ROOT / page).parent.joinpath(path).is_file() for path in pictures)
