"""Build the site in build/site: write every page as Markdown into build/pages, and have Zensical make HTML of them.

    python docs/make_site.py

To the pages of docs/ come those that are read from the code: one for each algorithm, the reference of the API, and the
notebook. They are written here, and not by a plugin, so that another maker of sites can take the same folder.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import notebook
import pages
import reference
import yaml

from cantons.algorithm import ALGORITHMS

ROOT = Path(__file__).resolve().parents[1]
DOCS, NOTEBOOK = ROOT / "docs", ROOT / "examples" / "first_steps.ipynb"


def main(build: Path) -> None:
    for old in ("pages", "site"):
        shutil.rmtree(build / old, ignore_errors=True)
    shutil.copytree(DOCS, build / "pages", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    made = made_pages()
    for name, text in made.items():
        (build / "pages" / name).parent.mkdir(exist_ok=True)
        (build / "pages" / name).write_text(text, "utf-8")
    for page in (build / "pages").rglob("*.md"):
        page.write_text(pages.fill(page.read_text("utf-8"), page.relative_to(build / "pages").as_posix()), "utf-8")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    found = {page.relative_to(build / "pages").as_posix() for page in (build / "pages").rglob("*.md")}
    config |= {"nav": navigation(config["nav"], made, found), "docs_dir": "pages", "site_dir": "site"}
    config |= {"repo_url": url} if (url := repository()) else {}
    (build / "mkdocs.yml").write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True), "utf-8")
    done = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--clean", "--config-file",
                           str(build / "mkdocs.yml")], text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{done.stdout}{done.stderr}")


def made_pages() -> dict[str, str]:
    """{where it goes: its Markdown}"""
    return {"notebook.md": notebook.page(notebook.read(NOTEBOOK)), **reference.reference_pages(),
            **{f"algorithms/{name}.md": pages.algorithm_page(name) for name in sorted(ALGORITHMS)}}


def navigation(nav: list[Any], made: dict[str, str], found: set[str]) -> list[Any]:
    """The one of mkdocs.yml, where the pages of a folder that are made follow its first page.

    A page that it does not name could not be found by a reader: it is an error.
    """
    for below in (below for entry in nav for below in entry.values() if isinstance(below, list)):
        folder = below[0].removesuffix("index.md") if isinstance(below[0], str) else None
        below += [{text.partition("\n")[0].removeprefix("# "): name} for name, text in made.items()
                  if folder and name.startswith(folder) and name not in below]
    missing = found - set(_named(nav))
    if missing:
        raise SystemExit(f"mkdocs.yml does not name {', '.join(sorted(missing))}; put each of them into nav.")
    return nav


def repository() -> str | None:
    """Where the code is, once pyproject.toml says so under [project.urls]."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get("urls", {}).get("Repository")


def _named(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for entry in (nav.values() if isinstance(nav, dict) else nav) for page in _named(entry)]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build")
