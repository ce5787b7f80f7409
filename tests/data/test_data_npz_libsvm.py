"""What a file holds comes back, and what it lacks is named with the file."""

import bz2
import gzip
import tracemalloc

import numpy as np
import pytest

from cantons.data import read_libsvm, read_npz
from cantons.errors import InputError

X = np.arange(12, dtype=np.int16).reshape(4, 3)
LINES = b"2 1:0.5 3:2\n-1 2:1\n2 1:4\n7 3:-1\n"


@pytest.fixture
def npz(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "some.npz", **arrays)
        return tmp_path / "some.npz"
    return write


@pytest.fixture
def text(tmp_path):
    def write(content, name="some.txt"):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name
    return write


def test_labels_are_renumbered_and_kept(npz):
    path = npz(x=X, y=np.array([5, 3, 5, 9], np.uint8), writer=list("abab"))
    table = read_npz(path, client="writer")
    np.testing.assert_array_equal(table.inputs, X)
    assert table.inputs.dtype == X.dtype
    np.testing.assert_array_equal(table.classes[table.targets], [5, 3, 5, 9])
    np.testing.assert_array_equal(np.unique(table.targets), [0, 1, 2])
    assert table.clients.tolist() == list("abab")


def test_an_archive_may_say_when_its_rows_arrived(npz):
    assert read_npz(npz(x=X, y=X[:, 0], when=[4, 3, 2, 1]), time="when").times.tolist() == [4, 3, 2, 1]


@pytest.mark.parametrize("labels", [np.array(list("yxyz")), np.array([1.0, -1.0, 1.0, 10.0])])
def test_labels_may_be_words_or_whole_numbers(npz, labels):
    table = read_npz(npz(pixels=X, kind=labels), inputs="pixels", targets="kind")
    np.testing.assert_array_equal(table.classes[table.targets], labels)
    assert table.targets.dtype == np.int32 and table.clients is None


def test_regression_keeps_the_numbers(npz, text):
    table = read_npz(npz(x=X, y=[0.5, 1, 2, 3]), regression=True)
    assert table.classes is None and table.targets.dtype == np.float32
    assert read_libsvm(text(LINES), regression=True).targets.tolist() == [2, -1, 2, 7]


@pytest.mark.parametrize("name, compress", [("a", bytes), ("a.gz", gzip.compress), ("a.bz2", bz2.compress)])
def test_libsvm_files_become_dense(text, name, compress):
    table = read_libsvm(text(compress(LINES), name))
    np.testing.assert_array_equal(table.inputs, [[0.5, 0, 2], [0, 1, 0], [4, 0, 0], [0, 0, -1]])
    assert table.inputs.dtype == np.float32
    np.testing.assert_array_equal(table.classes[table.targets], [2, -1, 2, 7])


@pytest.mark.parametrize("arrays, options, sentence", [
    ({"x": X, "y": X[:, 0]}, {"inputs": "xx"}, "'xx'. Did you mean 'x'\\? Known: x, y."),
    ({"x": X, "y": X[:, 0]}, {"client": "writer"}, "unknown array in .*some.npz: 'writer'. Known: x, y."),
    ({"x": X, "y": X[:3, 0]}, {}, r"array 'y' in .*some.npz has shape \(3,\) and the inputs \(4, 3\); both"),
    ({"x": X, "y": 3}, {}, r"array 'y' in .* has shape \(\)"),
    ({"x": 3, "y": X}, {}, r"array 'x' in .* has shape \(\)"),
    ({"x": X[:0], "y": X[:0, 0]}, {}, "some.npz holds no rows"),
    ({"x": X, "y": np.array([1, "b", None, 2], object)}, {}, "array 'y' in .*some.npz is pickled"),
    ({"x": X, "y": [0.5, 1, 2, 3]}, {}, "targets in .*some.npz hold 0.5, which is no label; give regr"),
    ({"x": X, "y": [np.nan, 1, 2, 3]}, {}, "targets in .*some.npz hold nan"),
    ({"x": X, "y": [1, np.inf, 2, 3]}, {}, "targets in .*some.npz hold inf"),
    ({"x": X, "y": list("abcd")}, {"regression": True}, "targets in .*some.npz are of type <U1; regr"),
    ({"x": X, "y": [1, 1, 1, 1]}, {}, "targets in .*some.npz are all 1; classification needs at least two"),
])
def test_bad_archives_are_refused_by_name(npz, arrays, options, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        read_npz(npz(**arrays), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("read", [read_npz, read_libsvm])
def test_missing_files_and_folders_are_refused_by_name(read, tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*none.here: No such file or directory"):
        read(tmp_path / "none.here")
    with pytest.raises(InputError, match=f"cannot read {tmp_path}: Is a directory"):
        read(tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04 cut short", b"\x80\x04K\x01."])
def test_what_is_no_archive_is_refused_by_name(text, content):
    with pytest.raises(InputError, match=r"cannot read .*some.npz: it is not an npz file"):
        read_npz(text(content, "some.npz"))


def test_a_cut_archive_is_refused_by_name(npz):
    path = npz(x=np.random.default_rng(0).normal(size=(500, 3)), y=np.arange(500))
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(InputError, match=r"cannot read .*some.npz"):
        read_npz(path)


def test_a_damaged_array_is_refused_by_name(npz):
    path = npz(x=np.zeros((500, 3)), y=np.arange(500))
    content = bytearray(path.read_bytes())
    content[1000:1100] = b"?" * 100
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"array 'x' in .*some.npz is damaged"):
        read_npz(path)


def test_a_single_array_is_refused_by_name(tmp_path):
    np.save(tmp_path / "one.npy", X)
    with pytest.raises(InputError, match=r"one.npy holds a single array without a name"):
        read_npz(tmp_path / "one.npy")


@pytest.mark.parametrize("content, sentence", [
    (b"hello world\n", "cannot read .*some.txt, whose lines should be 'label index:value ...'"),
    (b"1 a:3\n", "cannot read .*some.txt, whose lines"),
    (b"", "some.txt"),
])
def test_what_is_no_libsvm_data_is_refused_by_name(text, content, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        read_libsvm(text(content))
    assert "\n" not in str(error.value)


def test_a_damaged_gzip_is_refused_by_name(text):
    with pytest.raises(InputError, match=r"cannot read .*a.gz"):
        read_libsvm(text(gzip.compress(LINES * 50)[:40], "a.gz"))
    with pytest.raises(InputError, match=r"cannot read .*b.gz"):
        read_libsvm(text(b"not compressed", "b.gz"))


@pytest.mark.parametrize("name, compress", [("a.gz", gzip.compress), ("a.bz2", bz2.compress), ("a", bytes)])
@pytest.mark.parametrize("content", [b"1 1:1\n", b"1"], ids=["many lines", "one line"])
def test_a_file_that_unpacks_to_more_than_there_is_is_read_no_further(text, monkeypatch, name, compress, content):
    path = text(compress(content * (2**25 // len(content))), name)
    monkeypatch.setattr("cantons.data.read.libsvm.available", lambda: 2**23)
    tracemalloc.start()
    with pytest.raises(InputError, match=rf"^what was read of {path} so far needs .* GiB of memory, there are 0.0078"):
        read_libsvm(path)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


def test_inputs_get_the_shape_they_are_asked_to_have(npz):
    from cantons.data import npz as read

    path = npz(x=np.arange(24).reshape(4, 6), y=np.arange(4) % 2, who=np.zeros(4, int))
    data = read(path, client="who", shape=[2, 3], test=0)
    assert data.input_shape == (2, 3) and data.train.inputs[1].tolist() == [[6, 7, 8], [9, 10, 11]]
    with pytest.raises(InputError, match=r"shape is \[2, 2\], and an input in .* has shape \[6\]; give a shape of 6"):
        read(path, client="who", shape=[2, 2])
