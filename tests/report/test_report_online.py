"""What a report says about streams: the losses on the way, the regret, and the bound beside it."""

import json

import numpy as np
import pytest

from cantons.reporting import write_report
from cantons.reporting.collect import collect
from cantons.reporting.figures import curves
from cantons.reporting.table import cells, comparison_rows


@pytest.fixture
def make_stream(make_run):
    """A run of four evaluations that has met examples on its way; before the first step there is no regret."""

    def make(folder, regret=(None, 0.4, 0.2, 0.1), bound=(None, 4.0, 3.0, 2.0), **more):
        path = make_run(folder, evaluations=(0, 5, 10, 20), **more)
        table = [line.split(",") for line in (path / "clients.csv").read_text().splitlines()]
        added = ["train_examples,online.personal.loss", "5,1.25", "5,1.05", "0,0"]  # one never had an example
        (path / "clients.csv").write_text("".join(
            ",".join([*line, more]) + "\n" for line, more in zip(table, added, strict=True)))
        file = path / "metrics.jsonl"
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for row, *values in zip(rows, regret, bound, strict=True):
            row |= {"online.personal.loss.mean": None if values[0] is None else 1 + values[0]}
            row |= {name: value for name, value in zip(("online.regret", "online.regret_bound"), values, strict=True)
                    if value is not None}
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return make


def test_a_stream_has_a_section_with_loss_regret_and_bound(make_stream, tmp_path):
    page = write_report([make_stream("a")], tmp_path / "report.html").read_text("utf-8")
    for words in ("<h2>Online</h2>", "Loss so far", "Regret so far", "Dotted: what Theorem 2", ">Theorem 2<",
                  ">steps<"):
        assert words in page
    assert "Accuracy so far" not in page, "this stream was not scored by it"


def test_runs_without_a_stream_or_a_bound_do_not_speak_of_them(make_run, make_stream, tmp_path):
    assert "Online" not in write_report([make_run("a")], tmp_path / "report.html").read_text("utf-8")
    none = (None,) * 4
    page = write_report([make_stream("b", bound=none)], tmp_path / "report.html").read_text("utf-8")
    assert "Regret so far" in page and "Theorem 2" not in page
    page = write_report([make_stream("c", regret=(None, 1, 1, 1), bound=none, name="c"), make_run("d", name="d")],
                        tmp_path / "report.html").read_text("utf-8")
    assert "Regret so far" in page, "one of two methods met a stream"


def test_the_table_has_regret_and_bound_where_there_are_any(make_run, make_stream):
    titles, stream, still = cells(comparison_rows(collect(
        [make_stream("a", name="a", algorithm={"name": "a"}), make_run("b", name="b", algorithm={"name": "b"})])))
    assert [stream[titles.index(title)] for title in ("regret", "bound")] == ["0.100", "2.000"]
    assert [still[titles.index(title)] for title in ("regret", "bound")] == ["–", "–"]
    assert "regret" not in cells(comparison_rows(collect([make_run("c")])))[0]


@pytest.mark.parametrize(("bounds", "names"), [
    ([(None, 4, 3, 2)] * 2, ["a", "b", "Theorem 2"]),
    ([(None, 4, 3, 2), (None, 8, 6, 4)], ["a", "b", "Theorem 2, a", "Theorem 2, b"]),
    ([(None, 4, 3, 2), (None,) * 4], ["a", "b", "Theorem 2"]),
])
def test_a_bound_is_drawn_once_for_all_who_share_it(make_stream, bounds, names):
    groups = collect([make_stream(name, name=name, bound=bound, algorithm={"name": name})
                      for name, bound in zip("ab", bounds, strict=True)])
    axes = curves(groups, "online.regret", "regret", bounds={"online.regret_bound": "Theorem 2"}).axes[0]
    assert [text.get_text() for text in axes.texts] == names
    dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert len(dotted) == len(names) - 2
    np.testing.assert_array_equal(dotted[0].get_ydata()[1:], [4, 3, 2])


def test_a_stream_without_test_rows_is_shown_by_what_it_was_charged(make_run, make_stream, tmp_path):
    """Where no run has test rows, a client's score is its online one; who has met nothing has none."""
    folders = [make_stream(name, name=name, algorithm={"name": name}, metric="loss", test_rows=0,
                           regret=(None, 0.4, 0.2, last), numbers={"online.personal.loss.worst10": 0.1})
               for name, last in (("a", 0.1), ("b", 0.3))]
    groups = collect(folders)
    np.testing.assert_array_equal(groups[0].clients("online.personal.loss"), [1.25, 1.05, np.nan])
    titles, first, second = cells(comparison_rows(groups))
    assert "personal" not in titles and "shared" not in titles
    assert titles[:4] == ["method", "seeds", "online", "worst 10%"], "what is compared comes first, then its worst"
    assert [row[titles.index("online")] for row in (first, second)] == ["1.100", "1.300"]
    page = write_report(folders, tmp_path / "report.html").read_text("utf-8")
    assert "<h2>Online</h2>" in page and "b against a" in page and "before it was learned from" in page
    for absent in ("Learning curves", "diverged", "test set", "test loss", "Test loss"):
        assert absent not in page
    alone = write_report(folders[:1], tmp_path / "alone.html").read_text("utf-8")
    assert "personal against shared" not in alone


def test_test_rows_are_the_measure_where_all_runs_have_them(make_run, make_stream, tmp_path):
    page = write_report([make_stream("a", metric="loss")], tmp_path / "report.html").read_text("utf-8")
    assert "Learning curves" in page and "on the test set" in page
