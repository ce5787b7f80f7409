"""Every code block in the README and the docs runs, and prints what stands below it; every example runs.

The blocks of a page are played from top to bottom, in one empty folder and with one Python namespace, so that later
ones may build on earlier ones. What a block is says what is done with it:

    python   is executed; with a title it is also written to a file of that name
    toml     must be a valid study, or some tables of one; with a title it is written to a file
    sh       its lines that call `cantons` are run, for a few rounds and seeds if nothing is said about what they print;
             the others only set things up, and are listed below
    text     is what the block above it prints: `...` stands for anything, and numbers may differ a little
"""

import itertools
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from cantons.aggregate import RULES
from cantons.algorithm import ALGORITHMS
from cantons.attack import ATTACKS
from cantons.cli.main import cantons
from cantons.clock import CLOCKS
from cantons.study.describe import describe_options, option_meanings
from cantons.study.read import check_study
from cantons.study.registry import REGISTRY, part

CHOSEN = ALGORITHMS | CLOCKS | RULES | ATTACKS
ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
NOT_RUN = ("make", ".venv/bin/pip", "python3", "source", "tensorboard", "wandb")
# What a toml block that shows some tables of a study leaves to the reader.
COMPLETION = {"rounds": 1, "data": {"name": "digits"}, "problem": {"name": "logistic"}, "algorithm": {"name": "fedavg"}}

MADE = re.compile(r"(\.\./|docs/)?(notebook|reference/\w+|algorithms/\w+)\.md")
ON_A_CLUSTER = "cluster.md"  # its blocks are run in tests/engines, where there is one
WITH_PYTORCH = "from_torch.md"  # and those of this in tests/pytorch

each_page = pytest.mark.parametrize("page", [page for page in PAGES if page.name not in (ON_A_CLUSTER, WITH_PYTORCH)],
                                    ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page):
    """(language, title, text) of each block."""
    return [match.groups() for match in BLOCK.finditer(page.read_text())]


@each_page
def test_the_blocks_of_a_page_run_from_top_to_bottom(page, capsys, monkeypatch, tmp_path):
    play(page, capsys, monkeypatch, tmp_path)


def play(page, capsys, monkeypatch, tmp_path):
    """Run the blocks of a page, and hold what they print against what it says."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "studies").symlink_to(ROOT / "studies")
    names = {"__name__": "__main__"}
    for (language, title, text), (after, _, wanted) in itertools.pairwise([*blocks(page), ("", None, "")]):
        if title:
            Path(title).write_text(text)
        if language == "toml":
            table = {**COMPLETION, **tomllib.loads(text)}
            table.pop("method", None)  # the command below it runs them
            check_study(table, page.name)
        elif language == "python":
            exec(compile(text, page.name, "exec"), names)
            said = capsys.readouterr().out
        elif language == "sh":
            said = shell(text, wanted if after == "text" else None)
        if language in ("python", "sh") and after == "text":
            assert alike(said.split(), wanted.split()), f"{page.name} says\n{wanted}\nand this was printed\n{said}"


def shell(text, wanted):
    """Run the commands; what they print. Where nothing is said about that, a few rounds will do."""
    said, fails = "", (wanted or "").startswith("Error: ")
    for line in text.splitlines():
        command, *words = shlex.split(line, comments=True) or [""]
        if command.endswith("cantons"):
            if wanted is None and words[0] in ("run", "compare", "sweep", "demo"):
                words = shortened(words)
            done = CliRunner().invoke(cantons, words, catch_exceptions=False)
            assert done.exit_code == int(fails), f"{line}: {done.output}"
            said += done.output
        else:
            assert command in ("", *NOT_RUN), f"nobody runs {line!r}"
    return said


def shortened(words):
    """The same command for a few rounds, and a comparison for one seed if it does not say how many."""
    few = ["--seeds", "1"] if words[0] == "compare" and "--seeds" not in words else []
    if "--rounds" not in words:
        return [*words, *few, "--rounds", "10"]
    place = words.index("--rounds") + 1
    return [*words[:place], str(min(int(words[place]), 30)), *words[place + 1:], *few]


def alike(words, wanted):
    """Are these the words that are wanted?"""
    if not wanted:
        return not words
    if wanted[0] == "...":
        return any(alike(words[skipped:], wanted[1:]) for skipped in range(len(words) + 1))
    return bool(words) and same_word(words[0], wanted[0]) and alike(words[1:], wanted[1:])


def same_word(word, wanted):
    try:  # the last digit of an accuracy may differ between machines
        return word == wanted or float(word) == pytest.approx(float(wanted), abs=0.011)
    except ValueError:
        return False


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_every_fence_is_a_block_that_is_checked(page):
    fences = re.findall(r"^ *```.*$", page.read_text(), re.MULTILINE)
    assert len(fences) == 2 * len(blocks(page)), f"{page.name} has a fence that the tests do not read"
    assert {language for language, *_ in blocks(page)} <= {"python", "sh", "toml", "text"}


@pytest.mark.parametrize("name", sorted(CHOSEN))
def test_every_option_of_a_part_that_is_chosen_has_a_meaning(name):
    choose = CHOSEN[name]
    silent = set(choose.__signature__.parameters) - set(option_meanings(choose))
    assert not silent, f"write a line 'option: meaning' in the docstring of {name}, or of a group, for {silent}"


@pytest.mark.parametrize("kind, name", [(kind, name) for kind in ("problem", "model") for name in REGISTRY[kind]])
def test_every_option_of_a_problem_or_a_model_has_a_meaning(kind, name):
    silent = [option.name for option in describe_options(part(kind, name)) if not option.meaning]
    assert not silent, f"write a line 'option: meaning' in the docstring of {name} for {silent}"


@pytest.mark.parametrize("study", sorted((ROOT / "studies").rglob("*.toml")), ids=lambda path: path.stem)
def test_every_study_can_be_read(study):
    check_study(tomllib.loads(study.read_text()), study.name, study.parent)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_run(example, capsys):
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_cells_of_a_notebook_run_and_show_what_is_stored(path, monkeypatch, tmp_path):
    """Times and last digits may differ; what kinds of things are shown, and the first words of each, may not."""
    notebook = runpy.run_path(str(ROOT / "docs" / "notebook.py"))
    monkeypatch.chdir(tmp_path)
    stored = notebook["read"](path)
    for cell, outputs in zip(stored["cells"], notebook["run"](stored), strict=True):
        assert list(map(kinds_shown, outputs)) == list(map(kinds_shown, cell.get("outputs", [])))


def kinds_shown(output):
    words = output.get("text") or output["data"]["text/plain"]
    return output["output_type"], sorted(output.get("data", {})), "".join(words).splitlines()[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    """Pages that are made from the code are there when the site is built, which looks for these links too."""
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target and not MADE.fullmatch(target):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
