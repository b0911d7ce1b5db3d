"""A report in a real headless browser: rendering, reported errors, and refused fetches."""

import json
import re
import shutil
import subprocess
from collections import Counter

import pytest
from PIL import Image

from tests.report.pages import FAILED, page_of
from tests.tui import scenes

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--enable-logging=stderr",
)
DARK, LIGHT = "--blink-settings=preferredColorScheme=0", "--blink-settings=preferredColorScheme=1"
LOOK = """<script>
const boxes = (what) =>
  [...document.querySelectorAll(what)].map((one) => [one, one.getBoundingClientRect()]);
const apart = (a, b) =>
  a.right <= b.left || b.right <= a.left || a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
const labels = boxes(".label, .tick"), scrolls = ".scrolling, figure";
const found = {
  wide: boxes("main *")
    .filter(([one, box]) => box.right > innerWidth + 1 && !one.closest(scrolls))
    .map(([one]) => one.outerHTML.slice(0, 80)),
  overlapping: labels.flatMap(([one, box], index) => labels.slice(index + 1)
    .filter(([other, its]) => one.closest("svg") === other.closest("svg") && !apart(box, its))
    .map(([other]) => one.textContent + " / " + other.textContent)),
  empty: boxes("svg").filter(([, box]) => box.width < 20 || box.height < 10).length,
  charts: boxes("svg").length,
};
document.documentElement.dataset.found = JSON.stringify(found);
</script>"""

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f"there is no browser here: none of {', '.join(BROWSERS)}"
)


def browse(folder, html, *flags, width=1100):
    """Return the page as the browser renders it, and the browser's errors."""
    path = folder / "page.html"
    path.write_text(html, encoding="utf-8")
    command = [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}"]
    done = subprocess.run(
        [*command, f"--window-size={width},2400", *flags, path.as_uri()],
        capture_output=True,
        timeout=110,
        check=True,
    )
    said = done.stderr.decode("utf-8", "replace").splitlines()
    return done.stdout.decode(), [line for line in said if "CONSOLE" in line]


@pytest.fixture(scope="module")
def page():
    return page_of(scenes.decided(), failures=(FAILED,))


def test_the_page_is_rendered_without_browser_errors(tmp_path, page):
    dom, complaints = browse(tmp_path, page, "--dump-dom")
    assert "<h1>encdec on NVIDIA H200</h1>" in dom
    assert complaints == []


def test_the_browser_refuses_and_reports_what_would_be_fetched_or_run(tmp_path, page):
    """This shows that the browser would report an error on the real page."""
    evil = '<img src="https://example.org/x.png"><script>document.title = "ran"</script></body>'
    dom, complaints = browse(tmp_path, page.replace("</body>", evil), "--dump-dom")
    assert len(complaints) == 2
    assert all("Content Security Policy" in line for line in complaints)
    assert "<title>ran</title>" not in dom


@pytest.mark.parametrize("width", [1100, 520])
def test_charts_have_a_size_no_label_overlaps_and_nothing_is_wider_than_the_page(tmp_path, width):
    html = page_of(scenes.running(), failures=(FAILED,))
    html = re.sub("<meta[^>]*Content-Security-Policy[^>]*>", "", html)
    dom, _ = browse(tmp_path, html.replace("</body>", f"{LOOK}</body>"), "--dump-dom", width=width)
    found = json.loads(re.search('data-found="([^"]*)"', dom)[1].replace("&quot;", '"'))
    assert found["charts"] >= 10
    assert (found["wide"], found["overlapping"], found["empty"]) == ([], [], 0)


@pytest.mark.parametrize(
    ("scheme", "background", "curve"),
    [(LIGHT, (246, 247, 249), (31, 111, 208)), (DARK, (15, 18, 22), (90, 165, 245))],
)
def test_light_and_dark_are_drawn(tmp_path, page, scheme, background, curve):
    picture = tmp_path / "page.png"
    browse(tmp_path, page, scheme, f"--screenshot={picture}")
    with Image.open(picture) as image:
        found = image.convert("RGB").getcolors(maxcolors=1 << 24)
    pixels = Counter({colour: count for count, colour in found})
    assert pixels[background] > 10_000
    assert pixels[curve] > 100
    assert len(pixels) > 200
