"""Every code block in the README and the docs runs, and prints what stands below it; every example runs."""

import re
import runpy
import shlex
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from cantons.cli.main import cantons
from cantons.study.read import check_study

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def blocks(page):
    return [(match[1], match[2]) for match in BLOCK.finditer(page.read_text())]


def programs():
    for page in PAGES:
        found = blocks(page)
        for number, (language, text) in enumerate(found):
            if language == "python":
                after = found[number + 1] if number + 1 < len(found) else ("", "")
                yield pytest.param(text, after[1] if after[0] == "text" else None, id=f"{page.name}-{number}")


@pytest.mark.parametrize("program, printed", list(programs()))
def test_python_blocks_print_what_stands_below_them(program, printed, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "block", "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out.split()
    for word, expected in zip(said, (printed or " ".join(said)).split(), strict=True):
        try:  # the last digit of an accuracy may differ between machines
            assert float(word) == pytest.approx(float(expected), abs=0.011)
        except ValueError:
            assert word == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_toml_blocks_are_valid_studies(page):
    for language, text in blocks(page):
        if language == "toml":
            check_study(tomllib.loads(text), page.name)


@pytest.mark.parametrize("study", sorted((ROOT / "studies").rglob("*.toml")), ids=lambda path: path.stem)
def test_every_study_can_be_read(study):
    check_study(tomllib.loads(study.read_text()), study.name)


def test_the_shell_commands_of_the_readme_run(monkeypatch, tmp_path):
    (tmp_path / "studies").symlink_to(ROOT / "studies")
    monkeypatch.chdir(tmp_path)
    lines = [line for language, text in blocks(ROOT / "README.md") if language == "sh" for line in text.splitlines()]
    commands = [shlex.split(line, comments=True)[1:] for line in lines if line.startswith(".venv/bin/cantons")]
    assert len(commands) == 4
    for words in commands:
        done = CliRunner().invoke(cantons, words)
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_examples_run(example, capsys):
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
