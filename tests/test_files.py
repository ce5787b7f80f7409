"""Files are written whole or not at all, by one module, and what cannot be written is said in a sentence."""

import ast
import os
import resource
from pathlib import Path

import pytest

from cantons.errors import InputError
from cantons.files import (
    CannotWrite,
    append_line,
    check_replaceable,
    folder_name,
    is_part,
    set_aside,
    write_text,
    writing,
)

PACKAGE = Path(__file__).parents[1] / "cantons"
DOORS = {"files.py", "study/lock.py"}
# Calls that write, whatever they are given, and those that may be given a buffer or a file that `writing` opened.
WRITERS = {"write_text", "write_bytes", "touch", "mkdir", "makedirs", "rename", "renames", "symlink_to", "hardlink_to",
           "to_csv", "to_parquet", "save_file", "tofile", "mkstemp", "NamedTemporaryFile",
           "memmap", "dump", "copy2", "copyfile", "copytree"}
INTO = {"save", "savez", "savez_compressed", "savetxt", "savefig"}
BUFFERS = {"file", "drawn", "stdout"}


def writes(call):
    """Whether this call of a program opens a file for writing, makes or moves one."""
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if isinstance(function, ast.Name) and name == "write_text":
        return False  # the one of cantons.files
    if name in WRITERS:
        return True
    owner = getattr(getattr(function, "value", None), "id", "")
    if (name == "open" and owner == "os") or (name in ("replace", "rename") and owner == "os"):
        return True
    if name == "open":
        place = 1 if isinstance(function, ast.Name) else 0
        modes = [*call.args[place:place + 1], *(word.value for word in call.keywords if word.arg == "mode")]
        return any(isinstance(mode, ast.Constant) and set(str(mode.value)) & set("wax+") for mode in modes)
    if (name in INTO and owner in ("np", "numpy", "plt")) or name == "savefig":
        target = call.args[0]
        return (target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")) not in BUFFERS
    return False


def test_nothing_else_in_the_package_opens_a_file_for_writing():
    found = [f"{file.relative_to(PACKAGE)}:{node.lineno}" for file in sorted(PACKAGE.rglob("*.py"))
             if str(file.relative_to(PACKAGE)) not in DOORS
             for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call) and writes(node)]
    assert found == [], "write through cantons/files.py"


@pytest.mark.parametrize("program, guilty", [
    ("open('x', 'w')", True), ("path.open('ab')", True), ("open(path, mode='r+')", True), ("path.write_text('')", True),
    ("np.save(out, array)", True), ("figure.savefig(out)", True), ("os.open(path, 1)", True),
    ("open('x')", False), ("path.open('rb')", False), ("np.save(file, array)", False), ("write_text(path, '')", False),
])
def test_the_test_above_sees_what_it_should(program, guilty):
    assert any(writes(node) for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Call)) is guilty


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
def test_what_goes_wrong_half_way_leaves_the_file_as_it_was(tmp_path, error):
    path = tmp_path / "page"
    write_text(path, "before")
    with pytest.raises(CannotWrite if error is OSError else error), writing(path) as file:
        file.write(b"half of")
        raise error
    assert [each.name for each in tmp_path.iterdir()] == ["page"]
    assert path.read_text() == "before"


def test_a_file_is_on_the_disk_before_it_is_moved_to_its_place(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(os, "fsync", lambda file: done.append("fsync"))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: (done.append("replace"), replace(*paths)))
    write_text(tmp_path / "page", "text")
    assert done == ["fsync", "replace", "fsync"], "the file, the move, the folder"


def test_a_kill_leaves_a_part_that_is_known_again(tmp_path):
    with writing(tmp_path / "page.html"):
        (part,) = tmp_path.iterdir()
        assert is_part(part)
    assert not is_part(tmp_path / "page.html") and not is_part(tmp_path / "film.part")


@pytest.fixture
def files_of_at_most():
    """`files_of_at_most(bytes)`: the system refuses larger ones, as a full disk would."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_leaves_files_and_lines_as_they_were(tmp_path, files_of_at_most):
    write_text(tmp_path / "page", "before")
    append_line(tmp_path / "lines", "first")
    files_of_at_most(20)
    with pytest.raises(CannotWrite, match="cannot write .*page: File too large"):
        write_text(tmp_path / "page", "after" * 10)
    with pytest.raises(CannotWrite, match="cannot write .*lines: File too large"):
        append_line(tmp_path / "lines", "second" * 10)
    files_of_at_most(10000)
    append_line(tmp_path / "lines", "third")
    assert (tmp_path / "page").read_text() == "before"
    assert (tmp_path / "lines").read_text() == "first\nthird\n"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name, sentence", [
    ("", "it is a folder"), ("gone/x", "No such file or directory"), ("a" * 300, "File name too long"),
    ("a\0b", "a name cannot hold a null character"), ("pipe", "it is not a plain file"),
])
def test_a_place_that_cannot_be_written_is_refused_in_a_sentence(tmp_path, name, sentence):
    os.mkfifo(tmp_path / "pipe")
    for write in (lambda path: write_text(path, "text"), lambda path: check_replaceable(path, True)):
        try:
            write(tmp_path / name)
        except CannotWrite as error:
            assert sentence in str(error)
    with pytest.raises(CannotWrite, match=sentence):
        write_text(tmp_path / name, "text")
    assert [each.name for each in tmp_path.iterdir()] == ["pipe"]


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path):
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to("there")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there").read_text() == "new"


def test_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_text("")
    write_text(tmp_path / "ours", "")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_is_set_aside_replaces_nothing(tmp_path):
    for text in ("one", "two"):
        (tmp_path / "x").write_text(text)
        set_aside(tmp_path / "x")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"x.damaged": "one", "x.damaged-1": "two"}


@pytest.mark.parametrize("name", ["../../x", "/abs", "a/b", "a\\b", "", " ", ".", "..", "a\0b", "a\nb", "\x7f"])
def test_a_name_that_would_leave_its_folder_is_refused(name):
    with pytest.raises(InputError, match="cannot be that of a folder"):
        folder_name(name)


def test_a_name_that_is_too_long_is_cut_and_still_its_own(tmp_path):
    names = [folder_name("ü" * 400 + end) for end in "ab"]
    assert len(set(names)) == 2
    for name in names:
        (tmp_path / f"{name}-123").mkdir()
    assert folder_name("step_size=0.1,cohort=5") == "step_size=0.1,cohort=5"
