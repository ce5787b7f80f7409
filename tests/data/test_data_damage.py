"""Whatever is done to a file: its reader takes it, or refuses it in a sentence that names it."""

import gzip
import json
import random
import zipfile

import numpy as np
import pytest
from samples import READERS, SAMPLES, VARIANTS, X, leaf_content

from cantons.data import DATA, federation, from_iterable, read_csv, read_npz
from cantons.errors import InputError

EVERY = {**{name: (name, make) for name, make in SAMPLES.items()}, **VARIANTS}
WORDS = [b"nan", b"-inf", b"1e300", b"9" * 30, b"9" * 5000, b"\x00", b"\xff", b"[" * 3000, b'"', b"null", b"4294967296",
         b"\\ud800"]


def test_every_reader_has_a_sample():
    assert sorted(SAMPLES) == READERS


@pytest.mark.parametrize("what", EVERY)
def test_every_sample_is_sound(what, tmp_path):
    reader, make = EVERY[what]
    path, options = make(tmp_path)
    assert DATA[reader](path, **options).population > 1


def damaged(content):
    """What is left of a file after accidents."""
    draw = random.Random(0)
    yield from (b"", b"\x00", draw.randbytes(100), gzip.compress(content), content.decode("latin1").encode("utf-16"),
                b"\xef\xbb\xbf" + content, content + content, content[1:], content[:-1], content[: len(content) // 2])
    for word in WORDS:
        place = draw.randrange(len(content))
        yield content[:place] + word + content[place:]
    for _ in range(10):
        place = draw.randrange(len(content))
        yield content[:place] + draw.randbytes(3) + content[place + 3:]


@pytest.mark.filterwarnings("ignore")  # of libraries about what they read
@pytest.mark.parametrize("what", EVERY)
def test_damaged_files_are_taken_or_refused_by_name(what, tmp_path):
    reader, make = EVERY[what]
    path, options = make(tmp_path)
    file = path if path.is_file() else sorted(path.rglob("*.*"))[0]
    for content in damaged(file.read_bytes()):
        file.write_bytes(content)
        try:
            DATA[reader](path, **options)
        except InputError as error:
            assert str(path) in str(error) and "\n" not in str(error) and len(str(error)) < 1100


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("path", ["a\0b.csv", "no/where", "a" * 5000, "\ud800", "", 3, True, ["a"]])
def test_paths_that_are_no_files_are_refused(reader, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = SAMPLES[reader](tmp_path)[1]
    with pytest.raises(InputError, match=r"(path is .*; give the name of a file)|cannot read|holds n|ends in"):
        DATA[reader](path, **options)


@pytest.mark.parametrize("reader", READERS)
def test_a_folder_is_no_file(reader, tmp_path):
    _, options = SAMPLES[reader](tmp_path)
    with pytest.raises(InputError, match=str(tmp_path)):
        DATA[reader](tmp_path / "..", **options)


def npz_with(**arrays):
    def write(folder):
        np.savez(folder / "some.npz", **arrays)
        return folder / "some.npz"
    return write


def zip_with(**members):
    def write(folder):
        with zipfile.ZipFile(folder / "some.npz", "w", zipfile.ZIP_DEFLATED) as file:
            for name, content in members.items():
                file.writestr(name, content)
        return folder / "some.npz"
    return write


def text_with(content, name):
    def write(folder):
        (folder / name).write_text(content)
        return folder / name
    return write


def header(text):
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


Y = np.array([0, 1] * 6)
IID = {"partition": "iid", "clients": 2}
LEAF = json.dumps(leaf_content({"ann": ([[1], [2]], [0, 1])}))
STREAM = {"targets": "y", "client": "who", "time": "t"}
RATINGS = {"user": Y, "movie": Y, "rating": Y, "timestamp": Y}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("reader, write, options, sentence", [
    ("npz", npz_with(x=Y * 2**32, y=Y), IID, r"some.npz: inputs hold 4294967296 in row .*2147483647: make them floats"),
    ("npz", npz_with(x=Y.astype(np.uint64) * 2**33, y=Y), IID, r"inputs hold 8589934592 in row .* 0 to 4294967295"),
    ("npz", npz_with(x=X.astype(float) * 1e300, y=Y), IID, r"some.npz: inputs hold .*3.4e\+38: scale them"),
    ("npz", npz_with(x=X, y=Y * 1e300), IID | {"regression": True}, r"targets in .*some.npz hold 1e\+300 in row 1"),
    ("npz", npz_with(x=X, y=Y * 1e300), IID, r"targets in .*some.npz hold 1e\+300; floats above 2\*\*53 are not exact"),
    ("npz", npz_with(x=X, y=Y * np.nan), IID, r"targets in .*some.npz hold nan, which is no label"),
    ("npz", npz_with(x=X, y=np.zeros((12, 0))), IID, r"targets in .*some.npz have shape \(12, 0\)"),
    ("npz", npz_with(x=np.zeros((12, 0)), y=Y), IID, r"some.npz: inputs have shape \(12, 0\)"),
    ("npz", npz_with(x=X, y=Y * 1j), IID, "targets in .*some.npz are of type complex128"),
    ("npz", npz_with(x=X * 1j, y=Y), IID, "array 'x' in .*some.npz holds .* where a number belongs"),
    ("npz", npz_with(x=X.view([("a", "f4")]), y=Y), IID, "array 'x' in .*some.npz holds .* where a number belongs"),
    ("npz", npz_with(x=X, y=Y.view("V8")), IID, "targets in .*some.npz are of type"),
    ("npz", npz_with(x=X, y=Y, who=X), {"client": "who"}, r"array 'who' in .*some.npz has shape \(12, 3\)"),
    ("npz", zip_with(**{"x.npy": header("{'descr': '<f8', 'fortran_order': False, 'shape': (10**17,)}")}), IID,
     "unknown array in .*some.npz: 'y'"),
    ("npz", zip_with(**{"y.npy": header("{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000000000,)}")}),
     IID, "array 'y' in .*some.npz is damaged"),
    ("npz", zip_with(**{"y.npy": header("(" * 20000)}), IID, "array 'y' in .*some.npz is damaged"),
    ("npz", zip_with(**{"y": "no array"}), IID, "'y' in .*some.npz is no array"),
    ("stream", npz_with(x=X, y=Y, who=Y, t=X), STREAM, r"array 't' in .*some.npz has shape \(12, 3\)"),
    ("movielens", npz_with(**RATINGS | {"user": Y * np.nan}), {}, "some.npz: users hold nan; ids are whole numbers"),
    ("movielens", npz_with(**RATINGS | {"movie": Y + 0.5}), {}, "some.npz: movies hold 0.5; ids are whole numbers"),
    ("movielens", npz_with(**RATINGS | {"rating": Y * np.nan}), {"target": "like"}, "some.npz: ratings hold nan in"),
    ("text", npz_with(text=np.zeros(9, np.uint8), client_start=np.array([5, 3, 9], np.uint64)), {}, "do not rise"),
    ("text", npz_with(text=np.zeros(9, np.uint8), client_start=np.zeros(0, int)), {}, "some.npz has text of type"),
    ("libsvm", text_with("1 100000000:1\n0 1:1\n" * 4000, "a.txt"), {"clients": 2},
     "a.txt, with 8000 rows and indices up to 100000000, needs .* GiB of memory, there are"),
    ("libsvm", text_with("1 1:1e300\n0 1:1\n", "a.txt"), {"clients": 2}, r"a.txt: inputs hold 1e\+300 in row 0"),
    ("libsvm", text_with("20000000000000000002 1:1\n20000000000000000003 1:1\n", "a.txt"), {"clients": 2},
     r"targets in .*a.txt hold 2e\+19"),
    ("leaf", text_with("[" * 100000, "a.json"), {}, "a.json, which should be JSON: it is nested too deep"),
    ("leaf", text_with(LEAF.replace("[1]", "9" * 5000), "a.json"), {}, "a.json, which should be JSON: Exceeds"),
    ("leaf", text_with(LEAF.replace("[1]", "[1e300]"), "a.json"), {}, r"x of user 'ann' in .*a.json hold 1e\+300 in"),
    ("leaf", text_with(LEAF.replace("ann", r"\ud800"), "a.json"), {}, r"a.json: .*client .*no Unicode text"),
    ("leaf", text_with("null", "a.json"), {}, "a.json has no list 'users'"),
    ("csv", text_with("x,y\n1,1\n1e300,2\n", "a.csv"), {"targets": "y"} | IID, r"a.csv: inputs hold 1e\+300 in line 3"),
])
def test_what_a_file_holds_is_refused_with_its_name(reader, write, options, sentence, tmp_path):
    with pytest.raises(InputError, match=sentence):
        DATA[reader](write(tmp_path), **options)


def test_an_array_that_unpacks_to_more_than_there_is_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = npz_with(x=X, y=Y)(tmp_path)
    monkeypatch.setattr("cantons.memory.available", lambda: 100)
    with pytest.raises(InputError, match=r"array 'y' in .*some.npz needs .* GiB of memory"):
        read_npz(path)


def test_labels_and_ids_that_no_float_holds_stay_apart(tmp_path):
    labels = ["1", "20000000000000000002", "30000000000000000003", "30000000000000000004"]
    path = text_with("x,y,who\n" + "".join(f"{label},{label},{label}\n" for label in labels), "a.csv")(tmp_path)
    table = read_csv(path, targets="y", client="who")
    assert sorted(table.classes.tolist()) == labels and table.targets.tolist() == [0, 1, 2, 3]
    assert table.clients.tolist() == labels
    np.testing.assert_array_equal(table.inputs[:, 0], [1, 2e19, 3e19, 3e19])


def test_rows_of_ones_own_are_checked_too():
    for inputs, sentence in {(2**32, 0): "inputs hold 4294967296 in row 0", (1e300, 0): r"inputs hold 1e\+300 in row 0",
                             (1j, 0): "inputs are of type complex", (None, 0): "inputs are of type object"}.items():
        with pytest.raises(InputError, match=sentence):
            federation(np.array(inputs), np.arange(2.0), ["ann", "bob"])
    with pytest.raises(InputError, match="y of the iterable cannot be made an array"):
        from_iterable([([1], [1, 2]), ([1], [3])], clients=1)
    with pytest.raises(InputError, match=r"x of the iterable hold 1e\+300 in row 0"):
        from_iterable([([1e300], 0)], clients=1)


def test_whole_numbers_of_64_bits_are_welcome_where_they_fit():
    data = federation(np.array([2**31 - 1, -(2**31)]), np.arange(2.0), ["ann", "bob"], test=0)
    assert data.train.inputs.tolist() == [2**31 - 1, -(2**31)]


def test_nothing_outside_an_hdf5_file_is_read(tmp_path):
    h5py = pytest.importorskip("h5py")
    (tmp_path / "secret").write_bytes(bytes(8))
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["x"] = X
        other["examples/ann/pixels"] = X
    layout = h5py.VirtualLayout((12, 3), "f4")
    layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "x", (12, 3))
    odd = {
        "examples/ann/pixels in .* is a link": lambda ann: ann.__setitem__(
            "pixels", h5py.ExternalLink(tmp_path / "other.h5", "x")),
        "ann/pixels in .*a.h5 is a link": lambda ann: ann.__setitem__("pixels", h5py.SoftLink("/nowhere")),
        "pixels in .*a.h5 keeps its values in another file": lambda ann: ann.create_virtual_dataset("pixels", layout),
        "ann/pixels in .*a.h5 keeps its values in another": lambda ann: ann.create_dataset(
            "pixels", (1,), "f8", external=[(str(tmp_path / "secret"), 0, 8)]),
        "ann/pixels in .*a.h5 is a Group, where a Dataset": lambda ann: ann.create_group("pixels"),
        "ann/pixels in .*a.h5 is empty": lambda ann: ann.__setitem__("pixels", h5py.Empty("f4")),
        "ann/pixels in .*a.h5 is of type .*V": lambda ann: ann.__setitem__("pixels", Y.view("V8")),
        r"ann/pixels in .*a.h5 is of type \[\('a', '<f4'\)\]": lambda ann: ann.__setitem__(
            "pixels", X.view([("a", "f4")])),
        "ann/pixels in .*a.h5 is of type complex": lambda ann: ann.__setitem__("pixels", Y * 1j),
        "ann/pixels in .*a.h5 is of type object": lambda ann: ann.create_dataset(
            "pixels", (2,), h5py.vlen_dtype(np.int32)),
        "ann/pixels in .*a.h5 holds words, where numbers": lambda ann: ann.__setitem__("pixels", ["a"] * 12),
    }
    for sentence, add in odd.items():
        with h5py.File(tmp_path / "a.h5", "w") as file:
            add(file.create_group("examples/ann"))
            file["examples/ann/label"] = Y
        with pytest.raises(InputError, match=sentence):
            DATA["hdf5"](tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["examples"] = h5py.ExternalLink(tmp_path / "other.h5", "examples")
    with pytest.raises(InputError, match=r"/examples in .*a.h5 is a link"):
        DATA["hdf5"](tmp_path / "a.h5")


@pytest.mark.parametrize("labels", [Y.view("V8"), Y * 1j, X.view([("a", "f4")])[:, 0]])
def test_hdf5_labels_that_are_none_are_refused_by_name(tmp_path, labels):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["examples/ann/pixels"], file["examples/ann/label"] = X, labels
    with pytest.raises(InputError, match="ann/label in .*a.h5 is of type"):
        DATA["hdf5"](tmp_path / "a.h5")


def test_words_are_labels_in_hdf5_too(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["examples/ann/pixels"], file["examples/ann/label"] = X, ["yes", "no"] * 6
    assert DATA["hdf5"](tmp_path / "a.h5").classes == 2


def test_an_empty_parquet_file_is_refused_by_name(tmp_path):
    pyarrow, files = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    nothing = pyarrow.table({"a": pyarrow.array([], "f4"), "y": pyarrow.array([], "i4")})
    files.write_table(nothing, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a.parquet holds no rows"):
        DATA["parquet"](tmp_path / "a.parquet", targets="y", **IID)
