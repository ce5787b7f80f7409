"""Pages, and parts of pages, that are read from the code, so that they cannot grow stale."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Iterable, Sequence

import click
import jax

from cantons.algorithm import ALGORITHMS
from cantons.cli.main import cantons
from cantons.study.describe import Description, Option, describe_part


def fill(markdown: str, page: str) -> str:
    """In a page, `<!-- algorithms -->` becomes a table of them, `<!-- options: csv -->` a table of a part's options,
    and `<!-- help: run -->` the help of a command.

    Links out of docs/, which serve those who read the files themselves, become plain text: the site does not hold what
    they lead to.
    """
    def inside(link: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(os.path.dirname(page), link[2]))
        return link[1] if target.startswith("..") else link[0]

    filled = re.sub(r"<!-- (algorithms|options|help)(?:: (\w+))? -->", _filled, markdown)
    return re.sub(r"(?<!!)\[([^\]]+)\]\((\.\./[^)]*)\)", inside, filled)


@functools.cache
def described(name: str) -> Description:
    with jax.disable_jit():  # all that is wanted are shapes: nothing is worth compiling
        return describe_part(name)[0]


def algorithm_page(name: str) -> str:
    """What it does, where it comes from, what can be chosen, and what leaves the client."""
    about = described(name)
    headline, _, paper = about.source.partition("\n\n")
    file = inspect.unwrap(ALGORITHMS[name]).__module__.replace(".", "/")
    return "\n\n".join([
        f"# {name}",
        f"**{prose(headline)}**",
        prose(about.text),
        "## Where it comes from",
        prose(paper),
        f"The code is in `{file}.py`.",
        "## Options",
        options(name),
        "A step size may follow a [schedule](index.md#schedules).",
        "## What travels",
        f"Nothing else crosses between a client and the server. The shapes are those of {about.example}.",
        travels("down, to a client", about.down),
        travels("up, from a client", about.up),
    ])


def travels(way: str, leaves: list[tuple[str, tuple[int, ...], str]]) -> str:
    rows = [(f"`{path}`", " x ".join(map(str, shape)) or "1", kind) for path, shape, kind in leaves]
    return table([(way, "shape", "type"), *(rows or [("nothing", "", "")])])


def algorithms() -> str:
    firsts = {name: inspect.getdoc(ALGORITHMS[name]).partition("\n\n")[0] for name in sorted(ALGORITHMS)}
    return table([("algorithm", "what it does"),
                  *((f"[`{name}`]({name}.md)", prose(" ".join(text.split()))) for name, text in firsts.items())])


def options(name: str) -> str:
    return option_table(described(name).options)


def option_table(found: Sequence[Option]) -> str:
    rows = [(f"`{option.name}`", "required" if option.default == "required" else f"`{option.default}`",
             prose(option.type), prose(option.meaning)) for option in found]
    head = "option", "default", "type", "meaning"
    shown = len(head) if any(option.meaning for option in found) else len(head) - 1
    return table(row[:shown] for row in (head, *rows))


def help_of(command: str) -> str:
    context = click.Context(cantons.commands[command], info_name=f"cantons {command}", max_content_width=88,
                            terminal_width=88, help_option_names=["-h", "--help"])
    return f"```text\n{context.get_help()}\n```"


def prose(docstring: str) -> str:
    """A docstring as Markdown: examples become blocks of code, and signs that mean something there are escaped."""
    return "\n\n".join(f"```pycon\n{paragraph}\n```" if paragraph.startswith(">>>") else _escaped(paragraph)
                       for paragraph in docstring.split("\n\n"))


def table(rows: Iterable[Iterable[str]]) -> str:
    head, *body = (f"| {' | '.join(cells)} |" for cells in rows)
    return "\n".join([head, re.sub(r"[^|]+", " --- ", head), *body])


def _filled(match: re.Match) -> str:
    what, name = match.groups()
    return {"algorithms": algorithms, "options": lambda: options(name), "help": lambda: help_of(name)}[what]()


def _escaped(text: str) -> str:
    pieces = re.split(r"(`[^`]*`)", text)  # every other one is code
    pieces[::2] = (re.sub(r"([\\*_<|\[\]])", r"\\\1", piece) for piece in pieces[::2])
    return "".join(pieces)
