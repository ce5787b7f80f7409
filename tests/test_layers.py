"""Imports go one way: a folder may know what stands to its left, and engines and algorithms never meet.

The first line of each folder's `__init__.py` says what it owns and what it may import. Here stands how far such a
line may go, and every import in every file is held against it.
"""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "cantons"
FOLDERS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
ROOMS = sorted(str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.glob("*/*/__init__.py"))
MODULES = sorted(path.stem for path in PACKAGE.glob("*.py") if path.stem != "__init__")
EVERYTHING = {*FOLDERS, *MODULES}

# The furthest each part may look. What is not listed is new: give it a place.
MAY_IMPORT = {
    "errors": set(),
    "display": {"errors"},
    "phases": {"errors"},
    "memory": {"errors"},
    "ranges": {"errors"},
    "optional": {"errors"},
    "files": {"errors"},
    "protocol": {"errors"},
    "shuffle": {"errors", "protocol"},
    "options": {"errors", "ranges"},
    "recipe": {"errors", "options", "protocol"},
    "data": {"errors", "display", "memory", "optional", "options", "ranges", "protocol", "recipe", "shuffle"},
    "models": {"errors", "options", "ranges", "protocol", "recipe", "shuffle", "data"},
    "problem": {"errors", "optional", "options", "ranges", "protocol", "recipe", "shuffle", "data", "models"},
    "aggregate": {"errors", "options", "ranges", "protocol", "recipe"},
    "map_batches": {"errors", "protocol"},
    "attack": {"errors", "map_batches", "ranges", "protocol", "recipe"},
    "solve": {"errors", "protocol"},
    "mirror": {"errors", "ranges", "protocol", "solve"},
    "regret": {"errors", "protocol", "data", "mirror", "solve"},
    "algorithm": {"errors", "map_batches", "options", "ranges", "protocol", "recipe", "problem", "aggregate", "mirror",
                  "regret", "solve"},
    "clock": {"errors", "memory", "options", "ranges", "protocol", "recipe", "shuffle"},
    "engine": {"errors", "memory", "optional", "phases", "ranges", "protocol"},
    "local_models": {"errors", "files", "memory", "optional", "protocol", "engine"},
    "metrics": {"errors", "protocol"},
    "study": EVERYTHING - {"checks", "reporting", "cli"},
    "checks": EVERYTHING - {"reporting", "cli"},
    "reporting": EVERYTHING - {"engine", "algorithm", "checks", "cli"},
    "cli": EVERYTHING,
}


@functools.cache
def imported(part):
    """Every (file, part of the package) that a part imports, inside functions too."""
    files = [PACKAGE / f"{part}.py"] if part in MODULES else sorted((PACKAGE / part).rglob("*.py"))
    found = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file} imports by a relative path; write cantons.{part}"
                names = [node.module]
                if node.module == "cantons":  # from cantons import data
                    names = [f"cantons.{alias.name}" for alias in node.names]
            else:
                continue
            found |= {(file.name, (name.split(".") + ["face"])[1]) for name in names if name.split(".")[0] == "cantons"}
    return found


def declared(folder):
    """What the first paragraph of a folder's __init__ allows itself."""
    text = ast.get_docstring(ast.parse((PACKAGE / folder / "__init__.py").read_text()))
    line = " ".join(text.partition("\n\n")[0].split())
    words = re.fullmatch(r"Owns: .+\. May import: (.+)\.", line)
    assert words, f"the first paragraph of {folder}/__init__.py should read 'Owns: .... May import: ....', not {line!r}"
    if words[1].startswith("everything"):
        left_out = re.findall(r"\w+", words[1].removeprefix("everything").removeprefix(" but").replace(" and ", " "))
        return EVERYTHING - set(left_out)
    return set(words[1].split(", "))


def test_every_part_has_its_place():
    assert EVERYTHING == set(MAY_IMPORT)


@pytest.mark.parametrize("part", MODULES)
def test_a_module_imports_only_what_stands_to_its_left(part):
    assert {name for _, name in imported(part)} <= MAY_IMPORT[part]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_what_its_first_line_says(folder):
    allowed = declared(folder) | {folder}
    face = {"face"} if folder == "cli" else set()  # the command line is a user of the library like any other
    assert {(file, name) for file, name in imported(folder) if name not in allowed | face} == set()


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_first_line_of_a_folder_does_not_say_too_much(folder):
    assert declared(folder) <= MAY_IMPORT[folder] | {folder}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_of_a_folder_imports_only_what_its_first_line_says(room):
    """A room also sees the files of its folder that are in no room."""
    folder = room.split("/")[0]
    lines = "".join(file.read_text() for file in (PACKAGE / room).glob("*.py"))
    names = [name.split(".") for name in re.findall(r"(?:from|import) cantons\.([\w.]+)", lines)]
    seen = {"/".join(name[:2]) if name[0] == folder else name[0] for name in names}
    assert seen & {*ROOMS, *EVERYTHING} <= declared(room) | {room}


def test_studies_know_engines_by_their_door_alone():
    """What an engine's state looks like inside is its own business: studies import names of `cantons.engine` alone."""
    for file in (PACKAGE / "study").glob("*.py"):
        assert not re.findall(r"cantons\.engine\.\w+", file.read_text()), f"{file.name} looks into an engine"
        assert not re.findall(r"\.(mesh|in_flight|group)\b", file.read_text()), f"{file.name} reads an engine's state"


def test_what_methods_are_made_of_knows_no_method():
    for file in (PACKAGE / "algorithm" / "parts").glob("*.py"):
        for module in re.findall(r"(?:from|import) (cantons\.algorithm[\w.]*)", file.read_text()):
            assert module.startswith("cantons.algorithm.parts."), f"{file.name} imports {module}"


def test_no_two_parts_import_each_other():
    """Ordered by who imports whom, every part but the whole study and the command line looks to the left."""
    edges = {part: {name for _, name in imported(part)} - {part, "face"} for part in EVERYTHING}
    placed = []
    while len(placed) < len(edges):
        ready = [part for part in edges if part not in placed and edges[part] <= set(placed)]
        assert ready, f"these import each other: {sorted(set(edges) - set(placed))}"
        placed += ready


def test_importing_the_library_wakes_neither_a_device_nor_what_only_some_need():
    """A command that only prints help, or a worker that only reads, should not wait for plots and trackers."""
    program = (
        "import sys, cantons\n"
        "heavy = 'click rich pydantic matplotlib orbax torch ray flwr pandas flax'.split()\n"
        "print(*[name for name in heavy if name in sys.modules])\n"
        "from jax._src import xla_bridge\n"
        "print(xla_bridge.backends_are_initialized())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True,
                          check=True)
    assert done.stdout.splitlines() == ["", "False"]
