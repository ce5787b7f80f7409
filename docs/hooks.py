"""What MkDocs adds to the pages while it builds them: read from the code, so that it cannot grow stale.

- a page for every algorithm, from its docstring, its signature and a traced round;
- in a page, `<!-- algorithms -->` becomes a table of them, `<!-- options: data csv -->` a table of a part's options,
  `<!-- help: run -->` the help of a command, and `<!-- help: others -->` that of all commands not yet on the page;
- links out of docs/, which serve who reads the files themselves, become plain text: the site does not hold their goals.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any

import click
from mkdocs.structure.files import File

from cantons.algorithm import ALGORITHMS
from cantons.cli.main import cantons
from cantons.data import DATA
from cantons.study.describe import describe_part
from cantons.study.parts import PARTS

KINDS = {**PARTS, "data": {**PARTS["data"], **DATA}}
Leaf = tuple[str, tuple[int, ...], str]


def on_config(config: Any) -> Any:
    """Fill the algorithms into the navigation, where mkdocs.yml has their first page alone."""
    for entry in config.nav:
        if "Algorithms" in entry:
            entry["Algorithms"] += [{name: f"algorithms/{name}.md"} for name in sorted(ALGORITHMS)]
    return config


def on_files(files: Any, config: Any) -> Any:
    for name in ALGORITHMS:
        files.append(File.generated(config, f"algorithms/{name}.md", content=algorithm_page(name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return inside_links(filled(markdown))


def algorithm_page(name: str) -> str:
    """What it does, where it comes from, what can be chosen, and what leaves the client."""
    described = describe_part(name)
    file = inspect.unwrap(ALGORITHMS[name]).__module__.replace(".", "/")
    return "\n\n".join([
        f"# {name}",
        prose(described.text),
        "## Where it comes from",
        prose(described.source),
        f"The code is in `{file}.py`.",
        "## Options",
        table(("option", "default", "type"), ((f"`{option.name}`", f"`{option.default}`", f"`{option.type}`")
                                              for option in described.options)),
        "What an option means that several algorithms have is said [once for all](index.md#common-options).",
        "## What travels",
        "For a network 64-16-2 on 8 x 8 images whose last layer, `layer1`, is private. Nothing else crosses.",
        travels("down, to each client", described.down),
        travels("up, from each client", described.up),
    ])


def travels(way: str, found: list[Leaf]) -> str:
    if not found:
        return f"**{way}:** nothing."
    rows = [(f"`{path}`", " x ".join(map(str, shape)) or "1", f"`{kind}`") for path, shape, kind in found]
    return table((way, "shape", "type"), rows)


def filled(markdown: str) -> str:
    """Replace the comments that ask for something by what they ask for."""
    shown: set[str] = set()

    def replaced(match: re.Match) -> str:
        what, _, rest = match[1].partition(":")
        if what == "algorithms":
            return algorithm_table()
        if what == "options":
            kind, name = rest.split()
            return options_table(KINDS[kind][name], skip=("data",) if kind == "problem" else ())
        wanted = sorted(set(cantons.commands) - shown) if rest.strip() == "others" else [rest.strip()]
        shown.update(wanted)
        return "\n\n".join(f"```text\n{command_help(name)}\n```" for name in wanted)

    return re.sub(r"<!-- (algorithms|options: [\w ]+|help: \w+) -->", replaced, markdown)


def algorithm_table() -> str:
    return table(("algorithm", "what it does"), (
        (f"[`{name}`]({name}.md)", first_sentence(ALGORITHMS[name])) for name in sorted(ALGORITHMS)))


def options_table(function: Callable, skip: Iterable[str] = ()) -> str:
    options = [option for option in inspect.signature(function).parameters.values() if option.name not in skip]
    return table(("option", "default", "type"), (
        (f"`{option.name}`", "required" if option.default is option.empty else f"`{option.default!r}`",
         f"`{inspect.formatannotation(option.annotation).strip(chr(39))}`") for option in options))


def command_help(name: str) -> str:
    context = click.Context(cantons.commands[name], info_name=f"cantons {name}", terminal_width=100, max_content_width=100,
                            help_option_names=["-h", "--help"])
    return cantons.commands[name].get_help(context)


def first_sentence(function: Callable) -> str:
    paragraph = (inspect.getdoc(function) or "").partition("\n\n")[0]
    return prose(" ".join(paragraph.split()))


def prose(docstring: str) -> str:
    """A docstring as Markdown: signs that mean something there are escaped, examples become blocks of code."""
    paragraphs = docstring.split("\n\n")
    return "\n\n".join(f"```pycon\n{paragraph}\n```" if paragraph.startswith(">>>") else _escaped(paragraph)
                       for paragraph in paragraphs)


def _escaped(text: str) -> str:
    code = re.compile(r"(`[^`]*`)")
    return "".join(piece if code.fullmatch(piece) else re.sub(r"([\\*_<|\[\]])", r"\\\1", piece)
                   for piece in code.split(text))


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(titles), *map(list, rows)]
    cells = [[cell.replace("|", r"\|") if "`" in cell else cell for cell in line] for line in lines]
    cells.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def inside_links(markdown: str) -> str:
    return re.sub(r"\[([^\]]+)\]\(\.\./(?!\w+\.md|algorithms/)[^)]*\)", r"\1", markdown)
