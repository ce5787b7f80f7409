"""A client is who its name says; a number is a place among the clients only where no name is a number."""

import json

import jax
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import cantons as ct
from cantons.cli.main import cantons
from cantons.study.client_names import index_of

ROWS, LABELS, WHO = np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) % 2, np.arange(200) % 20
ODD = ["²", "٣", "③", "1_0", "-1", "+1", " 1", "01", "", "9" * 5000, "none"]
NAMES = st.lists(st.one_of(st.integers(0, 30).map(str), st.text(max_size=3)), min_size=1, max_size=9, unique=True)


@pytest.fixture(scope="module")
def away(tmp_path_factory):
    """A run with new clients whose names are numbers, as its result and as its folder without data, and its rows."""
    folder = tmp_path_factory.mktemp("names")
    data = ct.federation(ROWS, LABELS, WHO, classes=2, new=3)
    result = ct.run(ct.logistic(data, split="*bias"), data, ct.fedper(step_size=0.3), rounds=3, out=folder / "run")
    np.save(folder / "rows.npy", ROWS[:4])
    return result, ct.load(folder / "run"), folder, ROWS[:4]


def refused(ask, *arguments, **options):
    with pytest.raises(ct.InputError) as found:
        ask(*arguments, **options)
    return str(found.value)


def all_refusals(away, client):
    """What everything that takes a client says of this one."""
    result, loaded, folder, rows = away
    for place in (result, result.model, loaded):
        for name in ("predict", "predict_proba", "outputs"):
            yield refused(getattr(place, name), rows, client=client)
        yield refused(ct.export, place, folder / "out", client=client)
    for place in (result.model, loaded):
        yield refused(place.client, client)
        yield refused(place.parts, client)
    for words in (("predict", str(folder / "rows.npy")), ("export",)):
        said = CliRunner().invoke(cantons, [*words, "--run", str(folder / "run"), "--client", str(client)])
        assert said.exit_code == 1
        yield said.output.removeprefix("Error: ").rstrip("\n")


def test_a_number_and_its_digits_are_the_client_of_that_name(away):
    result, loaded, folder, rows = away
    names = result.model.names
    assert loaded.data is None and names != tuple(map(str, range(len(names))))
    for place, name in enumerate(names):
        bias = jax.tree.map(lambda leaf, place=place: leaf[place], result.model.state.clients)
        for found in (result.model, loaded):
            for client in (name, int(name), np.int32(name)):
                jax.tree.map(np.testing.assert_array_equal, found.parts(client)[1], bias.private)
                assert found.client(client).name == name
                np.testing.assert_array_equal(found.outputs(rows, client), found.outputs(rows, name))
    last = ["--run", str(folder / "run"), "--client", names[-1]]
    raw = CliRunner().invoke(cantons, ["predict", str(folder / "rows.npy"), *last, "--raw"]).output
    np.testing.assert_allclose(np.loadtxt(raw.splitlines(), delimiter=","), result.outputs(rows, names[-1]),
                               rtol=1e-5)
    assert CliRunner().invoke(cantons, ["export", *last]).exit_code == 0
    assert json.loads((folder / "run" / "export" / names[-1] / "model.json").read_text())["client"] == names[-1]


def test_a_client_that_was_held_out_is_refused_by_everything_in_the_same_words(away):
    for name in away[0].model.data.new.names:
        for client in (name, int(name)):
            (said,) = set(all_refusals(away, client))
            assert said.startswith(f"client '{name}' was held out of training") and "to predict as a stranger" in said


def test_a_client_that_does_not_exist_is_refused_by_everything_with_the_nearest_name(away):
    for client in (199, "199"):
        (said,) = set(all_refusals(away, client))
        assert said.startswith("unknown client '199'. Did you mean '19'? Known: 0, 1, ")


def test_what_the_refusal_advises_gives_a_client_that_was_held_out_a_model(away):
    result = away[0]
    everybody = ct.federation(ROWS, LABELS, WHO, classes=2)
    own = ct.run(ct.logistic(everybody, split="*bias"), everybody, ct.independent(parts="private"), rounds=1,
                 initial=result)
    for name in result.model.data.new.names:
        assert own.predict(away[3], client=name).shape == (4,)
        assert not np.array_equal(own.outputs(away[3], client=name), own.outputs(away[3]))


@given(NAMES, NAMES)
def test_names_come_first_and_places_count_only_where_no_name_is_a_number(names, new):
    new = [name for name in new if name not in names]
    for place, name in enumerate(names):
        assert index_of(name, names, new) == place
    numbers = [name for name in (*names, *new) if name.isascii() and name.isdigit()]
    for number in range(31):
        for client in (number, str(number)):
            if str(number) in names:
                assert names[index_of(client, names, new)] == str(number)
            elif numbers or number >= len(names):
                refused(index_of, client, names, new)


@given(st.integers(1, 30))
def test_places_are_counted_from_0(population):
    names = [f"shop{number}" for number in range(population)]
    assert [index_of(place, names) for place in range(population)] == list(range(population))
    assert [index_of(str(place), names) for place in range(population)] == list(range(population))
    assert refused(index_of, population, names).startswith(f"unknown client '{population}'")


@pytest.mark.parametrize("client", ODD, ids=lambda client: ascii(client)[:9])
def test_no_odd_text_is_a_place(client, away):
    for names in (["north", "south"], ["0", "1"], ["0.0", "1.0"]):
        assert refused(index_of, client, names).startswith("unknown client ")
    assert refused(away[0].predict, away[3], client=client).startswith("unknown client ")


def test_what_is_no_name_is_refused():
    for client in (True, 1.0, ["0"], 10**5000, -1):
        assert "client" in refused(index_of, client, ["north", "south"])


def test_a_folder_whose_new_clients_are_damaged_is_refused(away):
    file = away[2] / "run" / "encoding.json"
    sound = file.read_text()
    try:
        for damage in (3, [3], None, {"3": 3}):
            file.write_text(json.dumps({**json.loads(sound), "new_clients": damage}))
            assert "encoding.json is damaged" in refused(ct.load, away[2] / "run")
    finally:
        file.write_text(sound)
