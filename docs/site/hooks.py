"""Additions to MkDocs: pages in the repository's root, modules for the API reference, and the tables of metrics."""

import pathlib
import posixpath
import re
import shutil
import sys
from typing import Any

from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "build" / "docs" / "package" / "callboard"
ROOT_PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages outside `docs`, and their names on the site."""
_METRICS = "<!-- generated from launch/run_directory/metric_names.py by make docs -->\n\n"
_FOREIGN_NAMES = "<!-- generated from messages/foreign_names.yaml by make docs -->\n\n"
_PATH = re.compile(r"\[`?[\w/]+\.md`?\]\(([^)#:\s]+\.md)(?=[)#])")
"""Links whose text is the path of a page, which has a title."""
_INLINE = re.compile(r"(?<!</span>)(?<!<pre>)<code>([^<]*)</code>")
_OPTION = re.compile(r"--[\w.-]+")
_WHOLE = 32
"""The most characters of code in a sentence that no line break divides."""
_BOOSTS = {
    "benchmark_notes.md": 0.2,
    "benchmarks.md": 0.5,
    "changelog.md": 0.2,
    "coming_from.md": 0.5,
    "curves_": 0.5,
    "api/": 0.5,
}
"""Pages, or beginnings of their names, that search shows after others."""
_LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")


@event_priority(100)
def on_config(config: Any) -> Any:
    """Prepares what the pages are made from, before mkdocstrings reads its settings."""
    _copy_packages()
    _write_tables()
    config.plugins["mkdocstrings"].config["handlers"]["python"]["paths"] = [str(PACKAGE.parent)]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages of the root, the style sheet and script, and the examples, to which pages link."""
    for source, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for name, source in (("site.css", "site.css"), ("iframe-worker.js", "file_worker.js")):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / "docs" / "site" / source)))
    for path in sorted((ROOT / "examples").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Names pages in links by their titles, and adapts links to where the pages are on the site."""
    boosts = [boost for name, boost in _BOOSTS.items() if page.file.src_uri.startswith(name)]
    if boosts:
        page.meta.setdefault("search", {})["boost"] = boosts[0]
    sources = {page: source for source, page in ROOT_PAGES.items()}
    here = sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def on_site(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[1]))
        target = ROOT_PAGES.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(target, posixpath.dirname(page.file.src_uri) or ".")

    def titled(match: re.Match[str]) -> str:
        source = ROOT / posixpath.normpath(posixpath.join(posixpath.dirname(here), match[1]))
        heading = re.match(r"# (.+)\n", source.read_text()) if source.is_file() else None
        return f"[{heading[1]}]({match[1]}" if heading else match[0]

    return _LINK.sub(on_site, _PATH.sub(titled, markdown))


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Keeps short code in sentences, and each option, on one line: browsers break lines after `--`."""

    def whole(match: re.Match[str]) -> str:
        if len(match[1]) <= _WHOLE:
            return f'<code class="whole">{match[1]}</code>'
        options = _OPTION.sub(r'<span class="whole">\g<0></span>', match[1])
        return f"<code>{options}</code>"

    return _INLINE.sub(whole, html)


def _copy_packages() -> None:
    """Copies the modules to a directory without virtual environments and links, which griffe would search."""
    shutil.rmtree(PACKAGE, ignore_errors=True)
    directories = [ROOT]
    while directories:
        directory = directories.pop()
        target = PACKAGE / directory.relative_to(ROOT)
        target.mkdir(parents=True)
        for path in (*directory.glob("*.py"), *directory.glob("*.yaml")):
            shutil.copy(path, target)
        directories += [path.parent for path in directory.glob("*/__init__.py") if not path.parent.is_symlink()]


def _write_tables() -> None:
    """Rewrites the tables of the pages that show a registry, if it has changed."""
    sys.path.insert(0, str(PACKAGE.parent))
    from callboard.launch.run_directory import metric_names
    from callboard.messages import foreign_names

    for name, mark, tables in (
        ("metrics.md", _METRICS, metric_names.reference_tables()),
        ("coming_from.md", _FOREIGN_NAMES, foreign_names.foreign_name_tables()),
    ):
        page = ROOT / "docs" / name
        before = page.read_text()
        after = before.partition(mark)[0] + mark + tables
        if after != before:
            page.write_text(after)
