"""Trackers: a real run tells them everything, and what they stored is read back."""

import json
import struct
import sys

import pytest

import cantons as ct
from cantons.study import trackers


class Diary(ct.Callback):
    """Remembers a run, and can tell it again."""

    def __init__(self):
        self.records = []

    def started(self, study):
        self.study = study

    def evaluated(self, record):
        self.records.append(record)

    def finished(self, summary):
        self.summary = summary

    def tell(self, callback):
        callback.started(self.study)
        for record in self.records:
            callback.evaluated(record)
        callback.finished(self.summary)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def diary(folder):
    data, diary = ct.digits(clients=6), Diary()
    ct.run(ct.logistic(data), data, ct.fedavg(), rounds=2, evaluate_every=1,
           callbacks=[diary, trackers.tensorboard(folder)])
    return diary


def events(folder):
    """Every event in the one event file: records of length, checksum, content, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    [file] = folder.glob("events.out.tfevents.*")
    content = file.read_bytes()
    while content:
        [length] = struct.unpack_from("<Q", content)
        yield Event.FromString(content[12 : 12 + length])
        content = content[16 + length :]


def test_tensorboard_has_every_number_under_its_name_at_its_round(diary, folder):
    found = {(event.step, value.tag): value.simple_value for event in events(folder) for value in event.summary.value
             if value.HasField("simple_value")}
    for record in diary.records:
        for name, value in trackers.numbers(record).items():
            assert found.pop((record["round"], name)) == pytest.approx(value, rel=1e-6), name
    assert not found
    assert {"test.personal.accuracy.mean", "bytes_up"} <= trackers.numbers(diary.records[-1]).keys()


def test_tensorboard_has_the_study_and_the_summary_as_text(diary, folder):
    texts = {value.tag.partition("/")[0]: value.tensor.string_val[0].decode() for event in events(folder)
             for value in event.summary.value if value.tensor.string_val}
    assert json.loads(texts["study"])["algorithm"]["name"] == "fedavg"
    assert json.loads(texts["summary"])["rounds"] == 2


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_numbers_options_and_files(diary, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    monkeypatch.chdir(tmp_path)  # beside the store it keeps the files
    store = f"sqlite:///{tmp_path}/mlflow.db"
    diary.tell(trackers.mlflow(store, experiment="mine"))
    client = mlflow.MlflowClient(store)
    [run] = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["algorithm.name"] == "fedavg"
    for name in trackers.numbers(diary.records[-1]):
        told = [(record["round"], record[name]) for record in diary.records if record[name] is not None]
        kept = [(point.step, point.value) for point in client.get_metric_history(run.info.run_id, name)]
        assert kept == told
    assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["study.json", "summary.json"]


@pytest.mark.filterwarnings("ignore")
def test_wandb_keeps_an_offline_run(diary, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_SILENT", "true")
    diary.tell(trackers.wandb(dir=str(tmp_path)))
    wandb.teardown()  # its own process writes the file, a moment after the run is finished
    [file] = tmp_path.glob("wandb/offline-run-*/*.wandb")
    kept = file.read_bytes()
    for record in diary.records:
        assert json.dumps(record["test.personal.loss.mean"]).encode() in kept
    assert b"test.personal.loss.mean" in kept
    assert b"fedavg" in kept


@pytest.mark.parametrize("build, package, extra", [
    (lambda: trackers.tensorboard("logs"), "tensorboardX", "tensorboard"),
    (trackers.mlflow, "mlflow", "mlflow"),
    (trackers.wandb, "wandb", "wandb"),
])
def test_an_absent_extra_is_one_sentence_with_the_command(monkeypatch, build, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ct.InputError, match=rf"needs {package}, .*: pip install 'cantons\[{extra}\]'$"):
        build()


def test_a_package_that_lacks_something_itself_says_so(monkeypatch, tmp_path):
    (tmp_path / "wandb.py").write_text("import a_package_that_is_nowhere")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_nowhere"):
        trackers.wandb()


def test_wandb_refuses_a_mode_it_does_not_have():
    with pytest.raises(ct.InputError, match="mode is 'ofline'"):
        trackers.wandb(mode="ofline")
