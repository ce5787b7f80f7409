"""Text by author: rows of tokens, each with the next one as its target, and a vocabulary of the training clients."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import cantons as ct
from cantons.data import ASCII, from_texts, label_counts, read_authors, text, with_central
from cantons.errors import InputError

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"  # beside the repository, if at all


@pytest.fixture
def folder(tmp_path):
    def write(**authors):
        for name, words in authors.items():
            (tmp_path / f"{name}.txt").write_bytes(words.encode() if isinstance(words, str) else words)
        return tmp_path
    return write


@pytest.fixture
def archive(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "books.npz", **arrays)
        return tmp_path / "books.npz"
    return write


def decoded(data, rows, between=""):
    return [between.join(data.vocabulary[number] for number in row) for row in rows]


def test_targets_are_the_inputs_shifted_by_one(folder):
    data = text(folder(ann="hello world", bob="hi world, hello"), length=3, test=0)
    assert decoded(data, data.train.inputs) == ["hel", "lo ", "wor", "hi ", "wor", "ld,", " he"]
    assert decoded(data, data.train.targets) == ["ell", "o w", "orl", "i w", "orl", "d, ", "hel"]
    assert data.train.inputs.dtype == data.train.targets.dtype == np.int32
    assert data.clients.names == ("ann", "bob") and data.input_shape == (3,)
    assert data.classes == len(data.vocabulary) == 11 and data.vocabulary[:2] == ("<unknown>", "l")


def test_words_are_in_lower_case_and_signs_stand_alone(folder):
    data = text(folder(ann="To be, or don't TO be: that"), tokens="words", length=4, test=0)
    assert decoded(data, data.train.inputs, " ") == ["to be , or", "don't to be :"]
    assert decoded(data, data.train.targets, " ") == ["be , or don't", "to be : that"]


def test_only_the_most_frequent_tokens_are_known(folder):
    data = text(folder(ann="aaaaabbbcd"), length=3, vocabulary=3, test=0)
    assert data.vocabulary == ("<unknown>", "a", "b") and data.classes == 3
    assert data.train.inputs.tolist() == [[1, 1, 1], [1, 1, 2], [2, 2, 0]]


def test_the_vocabulary_is_of_the_training_clients(folder):
    authors = {f"author{letter}": letter * 40 for letter in "abcdefgh"}
    data = text(folder(**authors), length=4, new=3)
    assert len(data.vocabulary) == 6
    assert data.train.inputs.all() and not data.new.train.inputs.any() and not data.new.test.targets.any()


def test_tokens_of_test_rows_alone_are_unknown(folder):
    letters = "".join(map(chr, range(200, 401)))
    data = text(folder(ann=letters), length=2, test=0.4)
    assert data.train.inputs.all() and data.test.targets.min() == 0
    assert len(data.vocabulary) < len(letters)


def test_authors_with_too_few_tokens_are_left_out_with_a_note(folder):
    data = text(folder(ann="abcdefg", bob="abc", eve=""), length=3, test=0)
    assert data.clients.names == ("ann",) and data.notes == ("left out: 2 authors with at most 3 characters",)


def test_an_archive_has_clients_or_posts(archive):
    letters = np.frombuffer("hällo wörld".encode(), np.uint8)
    by_client = read_authors(archive(text=letters, client_start=[0, 6, 13]))
    assert by_client == {0: "hällo", 1: " wörld"}
    by_post = read_authors(archive(text=letters, post_start=[0, 6, 7, 13], post_author=[4, 2, 4]))
    assert by_post == {4: "hällowörld", 2: " "}
    assert text(archive(text=letters, client_start=[0, 6, 13]), length=2, test=0).clients.names == ("0", "1")


def test_an_alphabet_fixes_the_numbers_whoever_writes(folder):
    """Symbol 0 is unknown, 1, 2, ... are the alphabet's, also those that nobody uses."""
    data = text(folder(ann="abcab", bob="bx-bx"), length=2, alphabet="cbaz", test=0)
    assert data.vocabulary == ("<unknown>", "c", "b", "a", "z") and data.classes == 5
    assert data.train.inputs.tolist() == [[3, 2], [1, 3], [2, 0], [0, 2]]
    assert data.train.targets.tolist() == [[2, 1], [3, 2], [0, 0], [2, 0]]
    assert data.train.inputs.dtype == data.train.targets.dtype == np.int32
    assert data.spec["alphabet"] == "cbaz"


def test_characters_outside_the_alphabet_are_folded_to_it(folder):
    data = text(folder(ann="Łódź’s “œuvre” – 50 % 戦… ½ §!"), length=12, alphabet=ASCII, test=0)
    assert "".join(decoded(data, data.train.inputs)) == "Lodz's \"oeuvre\" - 50 % <unknown>"
    assert from_texts({"ann": "… ½ §"}, length=8, alphabet=ASCII).train.targets.tolist() == [
        [ASCII.find(character) + 1 for character in ".. 1/2 §"]]
    assert len(ASCII) == 96 and data.classes == 97


def test_texts_with_one_alphabet_go_together():
    clients = from_texts({"ann": "hello you " * 9, "bob": "hi there " * 9}, length=5, alphabet=ASCII)
    centre = from_texts({"book": "It was the best of times. " * 9}, length=5, alphabet=ASCII, name="book")
    both = with_central(clients, centre)
    assert set(both.sets) == {"federated", "central", "inference"} and both.central.longest > 30
    other = from_texts({"book": "It was the best of times. " * 9}, length=5)
    with pytest.raises(InputError, match="their words are numbered otherwise"):
        with_central(clients, other)


def test_unknown_targets_and_padding_are_neither_trained_on_nor_scored(folder):
    """b and what is rare are left; what is only rare is left out; ends are kept if they are padded."""
    path = folder(ann="aaaabx" * 3 + "yzyz", bob="aabbb", eve="wvwvw")
    plain = text(path, length=4, vocabulary=3, test=0)
    assert plain.vocabulary == ("<unknown>", "a", "b") and not plain.unlabelled
    data = text(path, length=4, vocabulary=3, score_unknown=False, test=0)
    np.testing.assert_array_equal(data.train.inputs, plain.train.inputs[(plain.train.targets > 0).any(1)])
    kept = plain.train.targets[(plain.train.targets > 0).any(1)]
    np.testing.assert_array_equal(data.train.targets, np.where(kept == 0, -1, kept))
    assert data.clients.names == ("ann", "bob") and data.unlabelled and data.classes == 3
    assert data.notes[-1] == "left out: 2 examples without a known target, and 1 client with no others"
    assert label_counts(data).sum() == (kept > 0).sum()

    whole = text(path, length=4, vocabulary=9, pad=True, test=0)
    told = whole.train.targets >= 0
    assert decoded(whole, [whole.train.inputs[told]]) == [("aaaabx" * 3 + "yzyz")[:-1] + "aabb" + "wvwv"]
    assert (whole.train.inputs[whole.train.targets < 0] == 0).all() and whole.population == 3
    folded = from_texts({"ann": "abcde"}, length=3, alphabet="abcde", pad=True)
    assert folded.train.inputs.tolist() == [[1, 2, 3], [4, 0, 0]]
    assert folded.train.targets.tolist() == [[2, 3, 4], [5, -1, -1]]


def test_label_counts_are_per_token(folder):
    data = text(folder(ann="ababa", bob="bbbbb"), length=2, test=0)
    assert data.vocabulary == ("<unknown>", "b", "a")
    assert label_counts(data).tolist() == [[0, 2, 2], [0, 4, 0]]


def test_a_bigram_model_learns_what_follows_what(folder):
    """The two authors disagree about what follows each letter, so that the best shared guess is one half."""
    data = text(folder(ann="abc" * 40, bob="acb" * 40), length=6, test=0.25)
    problem = ct.from_functions(
        lambda key: {"next": jnp.zeros((data.classes, data.classes))}, lambda params, inputs: params["next"][inputs])
    result = ct.run(problem, data, ct.fedsgd(step_size=9.0), rounds=40, evaluate_every=40)
    np.testing.assert_allclose(result.history[0]["test.shared.loss.mean"], np.log(4), rtol=1e-5)
    np.testing.assert_allclose(result.history[-1]["test.shared.loss.mean"], np.log(2), rtol=0.02)


@pytest.mark.parametrize("authors, options, sentence", [
    ({}, {}, "holds no file that ends in .txt"),
    ({"ann": "abc"}, {"length": 3}, "length is 3, and the longest of 1 texts has 3 characters; give a length below"),
    ({"ann": "a b"}, {"tokens": "words"}, "length is 80, and the longest of 1 texts has 2 words"),
    ({"ann": "abc"}, {"length": 0}, "length is 0; give 1 or more"),
    ({"ann": "abc"}, {"length": 1, "vocabulary": 1}, "vocabulary is 1; give 2 or more"),
    ({"ann": "abc"}, {"tokens": "letters"}, "tokens is 'letters'; give one of 'characters', 'words'"),
    ({"ann": "abc"}, {"length": 1, "alphabet": ""}, "alphabet is empty; list every character"),
    ({"ann": "abc"}, {"length": 1, "alphabet": "aba"}, "alphabet has 'a' more than once; list every character"),
    ({"ann": "abc"}, {"tokens": "words", "alphabet": "ab"}, "alphabet lists characters, and tokens is 'words'"),
    ({"ann": b"\xff\xfe"}, {}, "cannot read .*ann.txt: it is not UTF-8 text"),
])
def test_bad_texts_are_refused(folder, authors, options, sentence):
    with pytest.raises(InputError, match=sentence):
        text(folder(**authors), **options)


LETTERS = np.frombuffer(b"hello", np.uint8)


@pytest.mark.parametrize("arrays, sentence", [
    ({"text": LETTERS}, "unknown array in .*books.npz: 'post_start'. Known: text."),
    ({"text": LETTERS, "post_start": [0, 5]}, "unknown array in .*books.npz: 'post_author'"),
    ({"words": LETTERS, "client_start": [0, 5]}, "unknown array in .*books.npz: 'text'"),
    ({"text": LETTERS.astype(int), "client_start": [0, 5]}, "books.npz has text of type int64, 2 starts and 1 owners"),
    ({"text": LETTERS, "post_start": [0, 5], "post_author": [1, 2]}, "2 starts and 2 owners; give bytes"),
    ({"text": LETTERS, "client_start": [0, 3, 2, 5]}, "the starts in .*books.npz do not rise from 0 to at most 5"),
    ({"text": LETTERS, "client_start": [0, 6]}, "the starts in .*books.npz do not rise"),
    ({"text": LETTERS + 100, "client_start": [0, 5]}, "cannot read .*books.npz: it is not UTF-8 text"),
])
def test_bad_archives_are_refused_by_name(archive, arrays, sentence):
    with pytest.raises(InputError, match=sentence) as error:
        read_authors(archive(**arrays))
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")
def test_shakespeare_has_a_role_per_client():
    data = text(SHARED / "shakespeare_roles.npz", length=40, min_examples=200, new=5)
    with np.load(SHARED / "shakespeare_roles.npz") as archive:
        rows = (np.diff(archive["client_start"]) - 1) // 40
    assert data.population + 5 == np.count_nonzero(rows >= 200) and data.new.train.population == 5
    assert len(data.vocabulary) <= 71 and data.vocabulary[1] == " "
    assert decoded(data, data.train.inputs[:1])[0].isascii()
