"""The page: it stands alone, says what it must, and takes no word for markup."""

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import numpy as np
import pytest

from cantons import InputError
from cantons.reporting import write_report
from cantons.study.folder import Folder


@pytest.fixture
def pair(make_run):
    """Two methods; against the first, the second helps ann, hurts eve, and leaves bob alone."""
    return [make_run("a", scores=(0.5, 0.75, 1.0), algorithm={"step_size": 0.5}),
            make_run("b", scores=(0.75, 0.75, 0.5), algorithm={"name": "other", "step_size": 0.25})]


@pytest.fixture
def written(tmp_path):
    """`written(runs)`: the page, as text."""
    return lambda runs, **options: write_report(runs, tmp_path / "report.html", **options).read_text("utf-8")


def drawings(page):
    return re.findall(r"<svg.*?</svg>", page, re.DOTALL)


def test_a_comparison_says_what_was_compared_and_who_gains(pair, tmp_path):
    page = write_report(pair, tmp_path / "deep" / "report.html").read_text("utf-8")
    assert "<h1>2 methods on toy</h1>" in page
    assert "fedavg and other with 1 seed each: 20 rounds on toy, 3 clients with 30 training examples" in page
    assert "the accuracy on the test set “rows held out”" in page
    assert "1 better, 1 equal, 1 worse. Most gained: ann, by 0.250. Most lost: eve, by 0.500." in page
    assert "algorithm.step_size</th><td>0.5</td><td>0.25</td>" in page, "the differing option comes with both values"
    assert "Lost on the way" not in page


def test_the_reference_can_be_chosen_and_must_be_there(pair, written):
    page = written(pair, reference="other")
    assert "fedavg against other" in page
    assert "Most gained: eve, by 0.500. Most lost: ann, by 0.250." in page
    with pytest.raises(InputError, match="unknown reference 'othr'. Did you mean 'other'"):
        written(pair, reference="othr")


def test_a_method_alone_is_held_against_its_own_shared_model(make_run, written):
    page = written([make_run()])
    assert "<h1>fedavg on toy</h1>" in page
    assert "personal against shared" in page
    assert "2 better, 1 equal, 0 worse." in page


def test_seeds_have_a_band_and_a_legend(make_run, written):
    page = written([make_run("a"), make_run("b", seed=1)])
    assert "bands reach from the smallest seed to the largest" in page
    assert "± the standard deviation over seeds" in page


def test_what_went_wrong_is_told(make_run, written):
    runs = [make_run("killed", evaluations=(0, 10)), make_run("wild", scores=(float("nan"),) * 3, rejected=["eve"],
                                                              algorithm={"name": "wild"})]
    page = written(runs)
    assert "killed is not over: what is shown ends at round 10 of 20." in page
    assert "wild diverged: its last scores are not finite." in page
    assert "wild rejected uploads of eve." in page


def test_losses_that_span_powers_of_ten_are_drawn_on_a_log_scale(make_run, written):
    page = written([make_run(metric="loss", scores=(0.01, 1.0, 300.0))])
    assert "(log scale)" in page
    assert "better" in drawings(page)[-3]


def test_nothing_is_fetched_and_every_drawing_is_sound(pair, written):
    page = written(pair)
    assert not re.search(r"<(script|link|img|iframe)|@import|src=", page)
    assert "default-src 'none'" in page
    assert len(drawings(page)) == 7
    for drawing in drawings(page):
        ElementTree.fromstring(drawing)
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len(set(names))


def test_words_are_never_markup(make_run, written):
    page = written([make_run(name="<script>alert('$x^')</script>"), make_run("b", name="漢字 & $")])
    assert "<script" not in page
    assert "漢字 &amp; $" in page


def test_reports_can_be_written_from_many_threads(pair, tmp_path):
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda place: write_report(pair, tmp_path / f"{place}.html"), range(4)))
    assert len({path.read_text("utf-8") for path in paths}) == 1


def test_a_place_that_cannot_be_written_is_refused_in_a_sentence(pair, tmp_path):
    with pytest.raises(InputError, match="cannot write .* it is a folder"):
        write_report(pair, tmp_path)


def test_importing_the_report_does_not_wait_for_plots():
    code = "import sys, cantons.reporting; print([name for name in ('matplotlib', 'sklearn') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("clients", [3, 15, 16])
def test_few_clients_have_their_scores_by_name(make_run, tmp_path, clients):
    """Five hospitals want to know about each of them; of a thousand phones a picture is enough."""
    scores = np.linspace(0.1, 0.9, clients)
    runs = [make_run(name, name=name, algorithm={"name": name}, scores=tuple(scores + more))
            for name, more in (("a", 0.0), ("b", 0.04321))]
    for folders, titles in ((runs, ["client", "test rows", "a", "b"]),
                            (runs[:1], ["client", "test rows", "personal model", "shared model"])):
        page = write_report(folders, tmp_path / "report.html").read_text("utf-8")
        found = re.search(r'aria-label="Clients"><table.*?</table>', page, re.DOTALL)
        assert bool(found) == (clients <= 15)
        if found:
            assert re.findall(r'scope="col">(.*?)</th>', found[0]) == titles
            last = [f"{scores[-1]:.3f}", f"{scores[-1] + 0.04321:.3f}" if folders is runs else "0.500"]
            assert re.findall("<td>(.*?)</td>", found[0])[-3:] == ["10", *last]


def with_new_clients(folder, names, personal, shared):
    Folder(folder).new_clients({"client": names, "test.personal.accuracy": personal, "test.shared.accuracy": shared,
                                "train_examples": [9] * len(names), "test_examples": [4] * len(names)})
    return folder


def test_new_clients_are_held_against_the_shared_model_one_by_one(make_run, written):
    alone = make_run(new=0.5)
    assert "New clients" not in written([alone])
    with_new_clients(alone, ["dan", "fay", "gus", "hal"], [0.75, 0.5, 0.25, "nan"], [0.5, 0.5, 0.5, "nan"])
    page = written([alone])
    assert "1 of 3 new clients do better with their own model than with the shared one." in page
    assert "1 better, 1 equal, 1 worse. Most gained: dan, by 0.250. Most lost: gus, by 0.250." in page
    found = re.search(r'aria-label="New clients"><table.*?</table>', page, re.DOTALL)[0]
    assert re.findall("<td>(.*?)</td>", found) == ["4", "0.750", "0.500", "4", "0.500", "0.500", "4", "0.250", "0.500",
                                                   "4", "–", "–"]


def test_every_method_has_a_figure_of_its_new_clients_and_seeds_are_averaged(make_run, written):
    scores = {"a": ([0.5, 0.25], [0.25, 0.25]), "b": ([0.0, 0.25], [0.25, 0.0])}
    runs = [with_new_clients(make_run(f"{name}-{seed}", name=name, algorithm={"name": name}, seed=seed, new=0.5),
                             ["dan", "fay"], personal, [0.125, 0.125])
            for name, seeds in scores.items() for seed, personal in enumerate(seeds)]
    page = written([*runs, make_run("c", name="c", algorithm={"name": "c"})])
    assert "a: 2 of 2 new clients do better" in page and "b: 0 of 2 new clients do better" in page
    assert "New clients of b: personal against shared" in page and "New clients of c" not in page
    found = re.search(r'aria-label="New clients"><table.*?</table>', page, re.DOTALL)[0]
    assert re.findall("<td>(.*?)</td>", found) == ["4", "0.375", "0.125", "4", "0.250", "0.125"]


def test_new_clients_with_the_shared_model_are_not_held_against_it(make_run, written):
    runs = [with_new_clients(make_run(name, name=name, algorithm={"name": name}, new=0.5), ["dan", "fay"], own,
                             [0.25, 0.5]) for name, own in (("a", [0.25, 0.5]), ("b", [0.5, 0.5]))]
    page = written(runs)
    assert re.findall(r"(\w+): (\d) of 2 new clients do better", page) == [("b", "1")]
    assert "New clients of b: personal against shared" in page and "New clients of a" not in page
    alone = written(runs[:1]).partition("<h2>New clients</h2>")[2].partition("<h2>")[0]
    assert "took no part in training" in alone and "0.250" in alone
    assert "do better" not in alone and "A dot is" not in alone and "<svg" not in alone


def test_clients_without_models_of_their_own_are_not_held_against_the_shared_one(make_run, written):
    one, two = (make_run(name, scores=(0.25, 0.5, 0.75), shared=shared, name=name)
                for name, shared in (("one", (0.25, 0.5, 0.75)), ("two", (0.25, 0.5, 0.5))))
    assert "personal against shared" in written([two]) and "personal against shared" not in written([one])


def test_what_a_run_was_advised_stands_at_the_top_with_the_methods_it_is_about(make_run, written):
    advice = {"a": ["inputs are large.", "a is whole."], "b, mu=1": ["inputs are large.", "short."],
              "c": ["inputs are large.", "short."]}
    runs = [make_run(name, name=name, algorithm={"name": name}) for name in advice]
    for run, sentences in zip(runs, advice.values(), strict=True):
        Folder(run).summary({"rounds": 20, "advice": sentences})
    top = written(runs).partition("<h2>")[0]
    assert re.findall('<p class="notice">(.*?)</p>', top) == [
        "inputs are large.", "a: a is whole.", "“b, mu=1” and c: short."]
    Folder(runs[0]).summary({"rounds": 20, "advice": "words"})
    with pytest.raises(InputError, match=r"summary.json: advice is .* where a list of words belongs"):
        written(runs)


def test_a_damaged_table_of_new_clients_is_named(make_run, written):
    run = make_run(new=0.5)
    (run / "new_clients.csv").write_text("client,test_examples\ndan,3\n")
    with pytest.raises(InputError, match="new_clients.csv has no column test.shared.accuracy"):
        written([run])


def communication(page):
    found = re.search(r'aria-label="Communication"><table.*?</table>', page, re.DOTALL)[0]
    return re.findall(r'scope="col">(.*?)</th>', found), re.findall("<td>(.*?)</td>", found)


def test_a_single_upload_has_its_size_whoever_was_drawn(make_run, written):
    run = make_run(sent=2048.0, numbers={"uploads": 0.5, "bytes_up": 64.0, "bytes_down": 256.0})
    totals = ["uploads", "all downloads", "all uploads", "average client"]
    assert communication(written([run])) == (["method", *totals], ["10", "5 KiB", "1.25 KiB", "2 KiB"])
    Folder(run).summary({"rounds": 20, "down_bytes_per_message": 512, "up_bytes_per_upload": 128})
    assert communication(written([run])) == (["method", "one download", "one upload", *totals],
                                             ["512 B", "128 B", "10", "5 KiB", "1.25 KiB", "2 KiB"])
    young = make_run("young", algorithm={"name": "other"})
    assert communication(written([run, young]))[1][6:] == ["–", "–", "–", "–", "–", "2 KiB"]
