"""The report of real runs, opened in a real browser."""

import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

import cantons as ct
from cantons.reporting import write_report
from cantons.reporting.style import PALETTE

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --hide-scrollbars "
         "--disable-component-update --disable-sync --disable-quic --enable-logging=stderr").split()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    data = ct.digits(clients=12, new=2)
    problem = ct.logistic(data)
    for seed in (0, 1):
        for recipe in (ct.fedavg(batch_size=8), ct.independent(batch_size=8)):
            ct.run(problem, data, recipe, rounds=4, cohort=4, seed=seed, evaluate_every=2,
                   out=folder / f"{recipe.name}-{seed}")
    return write_report(sorted(folder.iterdir()), folder / "report.html")


@pytest.fixture
def opened(tmp_path):
    """`opened(page, width)`: what the browser shows, as pixels, and what it says on its console; maybe in dark mode."""
    if BROWSER is None:
        pytest.skip("no browser to open the report with: apt-get install chromium")

    def open_(page, width, dark=False):
        shot = tmp_path / "shot.png"
        scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
        done = subprocess.run([BROWSER, *FLAGS, *scheme, f"--user-data-dir={tmp_path / 'profile'}",
                               f"--screenshot={shot}", f"--window-size={width},9000", page.as_uri()],
                              capture_output=True, text=True, timeout=60, check=True)
        with Image.open(shot) as image:
            pixels = np.array(image.convert("RGB"))
        return pixels, [line for line in done.stderr.splitlines() if "CONSOLE" in line]

    return open_


def test_runs_of_two_methods_and_two_seeds_make_one_report(report):
    page = report.read_text("utf-8")
    assert "fedavg and independent with 2 seeds each: 4 rounds on digits, 10 clients" in page
    assert "new clients" in page


def rows_with(pixels, colour):
    """The rows of pixels in which a colour is seen."""
    rgb = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return np.flatnonzero((pixels == rgb).all(axis=2).any(axis=1))


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, False), (1200, True)])
def test_the_plots_are_there_and_nothing_complains(report, opened, width, dark):
    pixels, complaints = opened(report, width, dark)
    assert complaints == []
    for place in range(2):
        rows = rows_with(pixels, PALETTE[f"line-{place}"][dark])
        assert len(rows) > 300, "the line of a method is seen in one figure after another"
        assert np.ptp(rows) > 1500
        assert len(rows_with(pixels, PALETTE[f"line-{place}"][not dark])) == 0
    paper = [int(PALETTE["paper"][dark][place : place + 2], 16) for place in (1, 3, 5)]
    assert (pixels[:, -12:] == paper).all(), "nothing is cut off at the right"
    hint = rows_with(pixels, PALETTE["notice"][dark])
    assert bool(len(hint)) == (width < 500), "a table that is wider than the page says that it can be scrolled"


def test_the_browser_refuses_what_does_not_stand_in_the_page(report, opened, tmp_path):
    """It also shows that complaints would be heard."""
    changed = tmp_path / "changed.html"
    text = report.read_text("utf-8")
    changed.write_text(text.replace("</body>", "<script>1</script><img src='file:///x.png'></body>"), "utf-8")
    _, complaints = opened(changed, 700)
    assert len(complaints) == 2
    assert all("Content Security Policy" in complaint for complaint in complaints)
