"""The documentation's site in a browser: nothing is wider than its column, names stay whole, and search finds pages.

The site is opened from disk, at the width of a laptop and of a phone.  This needs the packages of `make docs`, and
Chromium, on the path or at `CALLBOARD_CHROMIUM`.
"""

import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
CHROMIUM = os.environ.get("CALLBOARD_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
WIDTHS = (1280, 390)
SCRIPT = """
const found = [];
const wait = ms => new Promise(done => setTimeout(done, ms));
const text = element => `${element.tagName}.${element.className} ${(element.innerText || '').slice(0, 60)}`;

async function opened(page, width) {
  const frame = document.createElement('iframe');
  frame.style = `width: ${width}px; height: 800px; border: 0`;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = `${SITE}/${page}`;
  document.body.append(frame);
  await loaded;
  await wait(50);
  return frame;
}

async function measure(page, width) {
  const frame = await opened(page, width), root = frame.contentDocument.documentElement;
  const report = (what, element) => found.push(`${page} at ${width}: ${what}: ${text(element)}`);
  if (root.scrollWidth > width) found.push(`${page} at ${width}: the page is ${root.scrollWidth} wide`);
  const column = root.querySelector('.md-content__inner');
  // Names in sentences have some pixels around them; on a phone, code extends to the edges of the screen.
  const right = width > 1000 ? column.getBoundingClientRect().right + 10 : width;
  for (const element of column.querySelectorAll('*')) {
    const box = element.getBoundingClientRect();
    // What scrolls in a box of its own is measured by that box.
    if (!element.closest('.md-typeset__scrollwrap, pre > code') && box.width && box.right > right)
      report('wider than its column', element);
  }
  for (const name of column.querySelectorAll('td code'))
    if (name.getClientRects().length > 1) report('a name in two lines', name);
  if (width > 1000)
    for (const code of column.querySelectorAll('pre > code'))
      if (code.scrollWidth > code.clientWidth + 1) report('code that is cut', code);
  frame.remove();
}

async function search() {
  const frame = await opened('index.html', 1280), doc = frame.contentDocument;
  const input = doc.querySelector('.md-search__input');
  let results = 0;
  for (let tries = 0; tries < 100 && !results; tries++) {
    input.focus();
    input.value = 'Reverb';
    input.dispatchEvent(new frame.contentWindow.Event('keyup', { bubbles: true }));
    await wait(100);
    results = doc.querySelectorAll('.md-search-result__item').length;
  }
  if (!results) found.push('search finds nothing');
  frame.remove();
}

(async () => {
  for (const page of PAGES) for (const width of WIDTHS) await measure(page, width);
  await search();
  const output = document.createElement('pre');
  output.id = 'found';
  output.textContent = JSON.stringify(found);
  document.body.append(output);
})();
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")
def test_pages_fit_and_can_be_searched(tmp_path):
    pytest.importorskip("mkdocs")
    configuration = str(ROOT / "docs" / "site" / "mkdocs.yml")
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", configuration, "--site-dir"]
    subprocess.run([*build, str(tmp_path / "site")], check=True, timeout=300)
    assert problems(tmp_path / "site", tmp_path) == []


def problems(site, folder):
    """Returns what a browser finds wrong in the pages of a site."""
    pages = sorted(str(page.relative_to(site)) for page in site.rglob("*.html") if page.name != "404.html")
    pages = [page for page in pages if not page.startswith("examples/")]
    values = {"SITE": f"file://{site}", "PAGES": pages, "WIDTHS": WIDTHS}
    constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
    (folder / "measure.html").write_text(f"<!doctype html><body><script>{constants}{SCRIPT}</script>")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-web-security",
        "--allow-file-access-from-files",
    ]
    options += [f"--user-data-dir={folder}/profile", "--window-size=1400,900", "--virtual-time-budget=900000"]
    done = subprocess.run(
        [CHROMIUM, *options, "--dump-dom", f"file://{folder}/measure.html"], capture_output=True, text=True, timeout=600
    )
    output = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert output, done.stderr
    return json.loads(html.unescape(output[1]))
