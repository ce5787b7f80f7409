"""What holds for every report, whatever is in it: its tables, its colours, its sections, its options."""

import re

import numpy as np
import pytest

from cantons import InputError
from cantons.reporting import write_report
from cantons.reporting.collect import collect, options_of
from cantons.reporting.figures import against
from cantons.reporting.sheet import SHEET
from cantons.reporting.style import PALETTE

LIARS = {"byzantine": {"attack": {"name": "sign_flip"}, "count": 1, "clients": ["eve"]}, "liars": ["eve"],
         "numbers": {"rule.rejected_uploads": 3, "rule.rejected_liars": 2, "rule.rejected_honest": 1}}
# What a run may have, and the one section that speaks of it.
KINDS = {
    "Asynchronous clients": {"numbers": {"clock.time": 1.5, "clock.delay.mean": 2.0, "clock.delay.max": 4}},
    "Online": {"numbers": {"online.personal.regret.mean": 0.5}},
    "Clients that lie": LIARS,
    "Diagnostics": {"numbers": {"clients.gradient_norm.mean": 0.25, "rule.rejected_uploads": 2}},
    "Lost on the way": {"rejected": ["eve"]},
}
ALWAYS = {"Results", "Learning curves", "Clients", "Communication", "The study as run", "Environment"}


@pytest.fixture
def written(make_run, tmp_path):
    def write(*runs):
        folders = [make_run(f"run{place}", **run) for place, run in enumerate(runs)]
        return write_report(folders, tmp_path / "report.html").read_text("utf-8")

    return write


def headings(page):
    return set(re.findall("<h2>(.*?)</h2>", page))


def brightness(colour):
    parts = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    """As the Web Content Accessibility Guidelines measure it."""
    low, high = sorted(map(brightness, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_a_plain_run_has_no_section_for_what_it_has_not(written):
    assert headings(written({})) == ALWAYS


@pytest.mark.parametrize("section", KINDS)
def test_what_a_run_has_makes_one_section_more(written, section):
    page = written(KINDS[section])
    assert headings(page) == ALWAYS | {section}
    shown = re.search(f"<h2>{section}</h2>(.*?)(<h2>|$)", page, re.DOTALL)[1]
    assert "<svg" in shown


def test_every_table_can_be_scrolled_and_every_colour_has_a_dark_one(written):
    page = written(*({**kind, "name": section, "algorithm": {"mu": place}}
                     for place, (section, kind) in enumerate(KINDS.items())))
    assert len(re.findall("<table", page)) == len(re.findall(
        r'<p class="hint" style="--letters: \d+; --columns: \d+">[^<]+</p>'
        r'<div class="scroll" tabindex="0" role="region" aria-label="[^"]+"><table', page)) > 5
    body = page.partition("</style>")[2]
    assert not re.findall(r"[:\s]#[0-9a-fA-F]{3,6}\b|rgba?\(|(?:fill|stroke|color): *(?:black|white)", body)
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w{6})", block)) for block in re.findall(r":root {(.*?)}", SHEET))
    assert set(re.findall(r"var\(--([\w-]+)\)", page)) - {"letters", "columns", "gap", "wide"} <= light.keys()
    assert light.keys() == dark.keys() == PALETTE.keys()
    assert all(light[name] != dark[name] for name in light)
    for page_colours in (light, dark):
        for name in ("ink", "faint", "faint-word", "notice"):
            assert contrast(page_colours[name], page_colours["paper"]) > 4.4, name
    for place in range(7):
        assert contrast(dark[f"line-{place}"], dark["paper"]) > 6, "lines and words are easy to see on a dark page"
        assert contrast(light[f"word-{place}"], light["paper"]) > contrast(light[f"line-{place}"], light["paper"])


def test_every_option_stands_in_one_table_and_what_differs_is_not_folded(written, make_run):
    first = {"algorithm": {"step_size": 0.1, "momentum": 0.9, "clip": None}, "clock": {"cohort": 2}}
    second = {"algorithm": {"step_size": 0.2, "mu": 1.0, "clip": 4}, "clock": {"cohort": 2}}
    page = written(first, second)
    groups = collect([make_run("a", **first), make_run("b", **second)])
    options = list(map(set, options_of([group.study for group in groups])))
    folded = re.findall("<details>.*?</details>", page, re.DOTALL)
    in_sight = page
    for part in folded:
        in_sight = in_sight.replace(part, "")
    some, common = (set(re.findall('<th scope="row">([^<]+)</th>', part)) for part in folded[:2])
    apart = set(re.findall(r'<th scope="row">([a-z.]+[._][a-z_.]+)</th>', in_sight))
    assert apart == {"algorithm.step_size", "algorithm.clip"}
    assert some == {"algorithm.momentum", "algorithm.mu"} == options[0] ^ options[1]
    assert apart | some | common == options[0] | options[1]
    assert "folder" in folded[2]


def test_liars_do_not_count_and_those_that_the_seed_draws_do_not_part_seeds(make_run, tmp_path):
    again = {**LIARS, "byzantine": {**LIARS["byzantine"], "clients": ["ann"]}, "liars": ["ann"]}
    groups = collect([make_run("a", **LIARS), make_run("b", seed=1, **again)])
    assert [len(group.runs) for group in groups] == [2]
    np.testing.assert_array_equal(groups[0].runs[0].scores("test.personal.accuracy"), [0.5, 0.75, np.nan])
    named = {**LIARS, "byzantine": {**LIARS["byzantine"], "count": None}}
    other = {**again, "byzantine": {**again["byzantine"], "count": None}}
    assert len(collect([make_run("c", **named), make_run("d", seed=1, **other)])) == 2


def test_what_the_data_says_of_its_clients_stands_where_they_are_named(written):
    page = written({"notes": ["names are <made> up"]})
    assert "Names are &lt;made&gt; up." in re.search("<h2>Clients</h2>(.*?)<h2>", page, re.DOTALL)[1]


def test_cells_of_a_scatter_plot_stand_on_the_same_lines():
    """Whatever their words and values are."""
    everything = np.array([0.0, 1.0])
    cells = [against(np.array(scores), np.array(scores[::-1]), 0, names, True, everything).axes[0]
             for scores, names in (((0.25, 0.5), ("a", "b")), ((0.001, 1.0), ("a long name of a method " * 3, "b")))]
    assert cells[0].get_position().bounds == cells[1].get_position().bounds
    assert cells[0].get_xlim() == cells[1].get_xlim() == cells[0].get_ylim() == cells[1].get_ylim()


@pytest.mark.parametrize("damaged", [
    {"notes": "words"}, {"notes": [1]}, {"byzantine": "eve"}, {"byzantine": {"clients": ["eve"]}},
    {"byzantine": {"attack": {"name": "sign_flip"}, "clients": "eve"}}, {"byzantine": {"attack": {}, "clients": []}},
])
def test_what_a_run_says_of_names_and_liars_is_refused_in_a_sentence_if_it_is_damaged(written, damaged):
    with pytest.raises(InputError, match=r"study.json: .* belongs"):
        written(damaged)
