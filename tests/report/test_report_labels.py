"""Names of lines, drawn and measured: at the ends of a few lines, in a legend where there are many."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text

from cantons.reporting.collect import collect
from cantons.reporting.figures import WIDE, curves
from cantons.reporting.labels import label_ends, make_room
from cantons.reporting.style import colour, darker, dashes
from cantons.reporting.svg import write_figure

WORDS = ("fedavg", "ffgg, tuner=newton_cg", "ditto, split=none, penalty=0.25, epochs=3", "fedrep",
         "a_name_without_any_place_to_break_it_at, step_size=0.1, tuner.step_size=0.25")


@pytest.fixture
def drawn(tmp_path):
    """The figure that a function draws with the settings of reports, laid out."""
    def draw(make):
        kept = []
        write_figure(lambda: kept.append(make()) or kept[0], tmp_path / "figure")
        kept[0].draw_without_rendering()
        return kept[0]

    return draw


def lines_ending(xs, ys, names):
    def make():
        from matplotlib.figure import Figure

        figure = Figure(figsize=WIDE)
        axes = figure.add_subplot()
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="rounds", ylabel="accuracy")
        label_ends(axes, [axes.plot([0, x], [0.5, y], color=colour(place), linestyle=dashes(place))[0]
                          for place, (x, y) in enumerate(zip(xs, ys, strict=True))], names)
        make_room(figure)
        return figure

    return make


def names_in(figure):
    (axes,) = figure.axes
    legend = axes.get_legend()
    return list(axes.texts) if legend is None else list(legend.get_texts())


def unbroken(name):
    return "".join(name.split())


@pytest.mark.parametrize("count", range(2, 16))
@pytest.mark.parametrize("ends", ["scattered", "in one point", "at the end"])
def test_no_name_leaves_the_figure_and_no_two_overlap(drawn, count, ends):
    random = np.random.default_rng(count)
    xs, ys = random.uniform(size=(2, count))
    xs, ys = {"scattered": (xs, ys), "in one point": (xs * 0 + 1, ys * 0 + 1), "at the end": (xs * 0 + 1, ys)}[ends]
    names = [f"{random.choice(WORDS)} {place}" for place in range(count)]
    figure = drawn(lines_ending(xs, ys, names))
    texts = names_in(figure)
    assert sorted(unbroken(text.get_text()) for text in texts) == sorted(map(unbroken, names))
    boxes = [Text.get_window_extent(text) for text in texts]  # of an annotation without its leader
    for box in boxes:
        assert figure.bbox.x0 <= box.x0 < box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    plot, whole = figure.axes[0].get_window_extent(), figure.bbox
    assert plot.height > 0.7 * whole.height, "the curves have the height"


def test_names_stand_at_the_ends_up_to_eight_and_beyond_in_a_legend_in_the_order_of_the_ends(drawn):
    few, many = (drawn(lines_ending([1.0] * count, np.linspace(0.9, 0.1, count)[::-1],
                                    [f"method {place}" for place in range(count)])) for count in (8, 9))
    assert few.axes[0].get_legend() is None and len(few.axes[0].texts) == 8
    legend = many.axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [f"method {place}" for place in reversed(range(9))]
    for place, text, line in zip(reversed(range(9)), legend.get_texts(), legend.get_lines(), strict=True):
        assert to_hex(text.get_color()).upper() == darker(colour(place))
        assert (to_hex(line.get_color()).upper(), line.get_linestyle()) == (
            colour(place), {"solid": "-", "dashed": "--"}[dashes(place)])
    assert (*few.get_size_inches(),) == (*many.get_size_inches(),) == pytest.approx(WIDE)


def test_a_figure_is_higher_where_its_legend_is(drawn, make_run):
    long = "a method, step_size=0.1, tuner.step_size=0.25, number {:02d}"
    groups = collect([make_run(f"run{place}", name=long.format(place), algorithm={"mu": place})
                      for place in range(15)])
    figure = drawn(lambda: curves(groups, "test.personal.accuracy.mean", "accuracy"))
    assert figure.get_figheight() > WIDE[1] and figure.get_figwidth() == WIDE[0]
    legend, plot = figure.axes[0].get_legend().get_window_extent(), figure.axes[0].get_window_extent()
    assert plot.height > 0.9 * legend.height
