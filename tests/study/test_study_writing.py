"""One writer at a time, nothing of others overwritten, damage told and kept aside, a full disk survived."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.cli import demo
from cantons.files import CannotWrite
from cantons.study.checkpoint import Checkpoints
from cantons.study.folder import Folder
from cantons.study.lock import Lock
from cantons.study.reading import read_evaluations
from cantons.study.sweep import _points, label

ROOT = Path(__file__).resolve().parents[2]
STUDY = {"name": "toy", "seed": 0, "rounds": 4, "algorithm": {"name": "fedavg"}, "data": {"name": "rows"}}
HOLD = "import sys; from pathlib import Path; from cantons.study.lock import Lock; lock = Lock(Path(sys.argv[1])); " \
       "print('held', flush=True); sys.stdin.read()"


class Notices(ct.Callback):
    def __init__(self):
        self.sentences = []

    def noticed(self, sentence):
        self.sentences.append(sentence)


# Locks


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock of tmp_path, until it is killed or its standard input ends."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_writer_is_refused_until_the_first_is_dead(tmp_path, holder):
    with pytest.raises(CannotWrite, match=f"is being written to by process {holder.pid} on "):
        Folder(tmp_path).open(STUDY, resume=True)
    assert not (tmp_path / "study.json").exists()
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / ".lock").exists(), "it had no time to remove it"
    with Folder(tmp_path).open(STUDY, resume=True):
        assert json.loads((tmp_path / ".lock").read_text())["pid"] == os.getpid()
    assert not (tmp_path / ".lock").exists()


def test_a_lock_of_this_process_holds_too_and_is_given_back_after_an_error(tmp_path):
    with pytest.raises(KeyboardInterrupt), Folder(tmp_path / "run").open(STUDY, resume=False):
        with pytest.raises(CannotWrite, match=f"process {os.getpid()}"):
            Folder(tmp_path / "run").open(STUDY, resume=True)
        raise KeyboardInterrupt
    with Folder(tmp_path / "run").open(STUDY, resume=True), pytest.raises(CannotWrite):
        Lock(tmp_path / "run")
    Folder(tmp_path / "run").append({"round": 0})
    with pytest.raises(ct.InputError, match="already holds a run"):
        Folder(tmp_path / "run").open(STUDY, resume=False)
    Lock(tmp_path / "run").release()


@pytest.mark.parametrize("text", ["", "not JSON", "[]", '{"pid": 1}'])
def test_what_stands_in_a_lock_nobody_holds_does_not_matter(tmp_path, text):
    (tmp_path / ".lock").write_text(text)
    Lock(tmp_path).release()


def test_a_disk_without_locks_is_told(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    with Folder(tmp_path).open(STUDY, resume=False) as folder:
        assert "cannot be locked (No locks available)" in folder.complaints[0]


def test_whoever_writes_to_a_run_folder_needs_its_lock(tmp_path, labels):
    """A single run, and runs together as sweeps and rollouts have them; compare, demo and local models are single."""
    parts = ct.logistic(labels), labels
    for place in ("run", "many/1"):
        (tmp_path / place).mkdir(parents=True)
    locks = [Lock(tmp_path / "run"), Lock(tmp_path / "many" / "1")]
    with pytest.raises(CannotWrite, match="is being written to by process"):
        ct.run(*parts, ct.fedavg(), rounds=1, out=tmp_path / "run", resume=True)
    with pytest.raises(CannotWrite, match="many/1 is being written to by process"):
        ct.rollouts(*parts, [ct.fedavg(step_size=size) for size in (0.1, 0.2)], rounds=1, out=tmp_path / "many")
    for lock in locks:
        lock.release()
    assert sorted(path.name for path in (tmp_path / "many").rglob("*") if path.is_file()) == [
        "environment.json", "study.json"], "the folder before it was opened, and given back"
    Lock(tmp_path / "many" / "0").release()


# What is there already


@pytest.mark.parametrize("left", [(), ("study.json.part",), (".study.json.0123abcd.part", ".lock"), ("study.json",),
                                  ("study.json", "environment.json", "metrics.jsonl", "checkpoints/")])
@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_in_which_nothing_was_trained_is_no_obstacle(tmp_path, left, resume):
    for name in left:
        if name.endswith("/"):
            (tmp_path / name).mkdir()
            (tmp_path / name / ".2.npz.0123abcd.part").write_text("")
        else:
            (tmp_path / name).write_text(json.dumps({**STUDY, "seed": 9}) if name == "study.json" else "")
    with Folder(tmp_path).open(STUDY, resume) as folder:
        assert json.loads(folder.study_file.read_text())["seed"] == 0
    assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob(".*"))


@pytest.mark.parametrize("theirs", ["thesis.tex", "film.part", "metrics.jsonl", "study.json"])
def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path, theirs):
    (tmp_path / theirs).write_text('{"title": "my study"}')
    for resume in (False, True):
        with pytest.raises(ct.InputError, match="is not a run folder"):
            Folder(tmp_path).open(STUDY, resume)
    assert [path.name for path in tmp_path.iterdir()] == [theirs]
    assert (tmp_path / theirs).read_text() == '{"title": "my study"}'


def test_a_demo_does_not_delete_the_run_that_stands_in_its_place(tmp_path):
    with Folder(tmp_path / "independent-0").open(STUDY, resume=False) as folder:
        folder.append({"round": 0})
    before = {path: path.read_bytes() for path in folder.path.iterdir()}
    with pytest.raises(ct.InputError, match="holds another study"):
        demo.play(tmp_path, 2, ct.Callback())
    assert {path: path.read_bytes() for path in folder.path.iterdir()} == before


def test_equal_points_of_a_grid_are_one_and_labels_stay_inside_their_folder():
    assert _points({"step_size": [0.1, 0.10, 0.2]}) == [{"step_size": 0.1}, {"step_size": 0.2}]
    assert [label(point) for point in _points({"a": [1, 1.0, True]})] == ["a=1", "a=1.0", "a=True"]
    with pytest.raises(ct.InputError, match="would share the folder path=a_b"):
        _points({"data.path": ["a/b", "a_b"]})
    assert "/" not in label({"data.path": "../../x\0"}) and len(label({"x": "y" * 999})) < 200


# Damage


def play(data, out=None, rounds=12, **options):
    return ct.run(ct.logistic(data), data, ct.fedavg(batch_size=4, step_size=0.3), rounds=rounds, cohort=3,
                  evaluate_every=4, checkpoint_every=4, out=out, **options)


@pytest.fixture(scope="module")
def whole(labels, tmp_path_factory):
    """A finished run of 12 rounds, in its folder."""
    return play(labels, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture
def copy(whole, tmp_path):
    return Path(shutil.copytree(whole.folder, tmp_path / "run"))


TIMES = ("seconds", "seconds_per_round", "updates_per_second", "evaluation_seconds")


def rows_of(folder):
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES}
            for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_fixture_left_nothing_behind(whole):
    assert sorted(path.name for path in whole.folder.iterdir()) == [
        "checkpoints", "clients.csv", "encoding.json", "environment.json", "metrics.jsonl", "new_clients.csv",
        "study.json", "summary.json"]


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"null", b"\xff\xfe", b'{"round": 4, "test', b'{"round": -1}',
                                  b'{"round": "4"}', b'{"round": 0}', b"[" * 5000])
def test_a_damaged_line_is_told_and_kept_aside_and_the_sound_ones_stay(tmp_path, line):
    folder = Folder(tmp_path)
    content = b'{"round": 0}\n' + line + b'\n{"round": 8}\n{"round": 12}\n'
    folder.metrics_file.write_bytes(content)
    with pytest.raises(ct.InputError, match="metrics.jsonl"):
        read_evaluations(tmp_path)
    told = []
    assert folder.rewind(8, told.append) == [{"round": 0}, {"round": 8}] == read_evaluations(tmp_path)
    assert "metrics.jsonl is damaged in line 2: it is kept as metrics.jsonl.damaged" in told[0]
    assert (tmp_path / "metrics.jsonl.damaged").read_bytes() == content


def test_a_line_that_is_being_written_is_left_out_and_told_by_who_goes_on(tmp_path):
    folder = Folder(tmp_path)
    folder.metrics_file.write_bytes(b'{"round": 0}\n{"round": 4, "te')
    assert read_evaluations(tmp_path) == [{"round": 0}]
    told = []
    assert folder.rewind(8, told.append) == [{"round": 0}]
    assert "damaged in line 2" in told[0]


def test_a_round_that_reads_too_high_does_not_take_the_others_with_it(tmp_path):
    folder = Folder(tmp_path)
    folder.metrics_file.write_text('{"round": 0}\n{"round": 400}\n{"round": 8}\n')
    assert folder.rewind(8) == [{"round": 0}, {"round": 8}]


def test_the_last_evaluation_comes_back_from_the_checkpoint(copy, labels, whole):
    lines = (copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_bytes(b"".join(lines[:-1]) + b"garbage\n")
    notices = Notices()
    again = play(labels, copy, resume=True, callbacks=[notices])
    assert "metrics.jsonl is damaged in line 4" in notices.sentences[0]
    assert (copy / "metrics.jsonl").read_bytes() == b"".join(lines)
    assert again.history == json.loads(json.dumps(whole.history))


def test_evaluations_that_are_gone_without_a_trace_are_told(copy, labels):
    lines = (copy / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_bytes(lines[0])
    notices = Notices()
    again = play(labels, copy, resume=True, callbacks=[notices])
    assert notices.sentences == [
        f"{copy}/metrics.jsonl has 2 of the 4 evaluations up to round 12; the others are lost."]
    assert [row["round"] for row in again.history] == [0, 12]


@pytest.mark.parametrize("name", ["summary.json", "environment.json", "clients.csv", "new_clients.csv"])
def test_a_damaged_file_is_told_and_kept_aside_and_made_again(copy, labels, whole, name):
    sound = (copy / name).read_bytes()
    (copy / name).write_bytes(sound[:len(sound) // 2 + 1])
    notices = Notices()
    play(labels, copy, resume=True, callbacks=[notices])
    assert notices.sentences == [f"{copy / name} is damaged: it is kept as {name}.damaged, and made again."]
    assert (copy / name).read_bytes() == sound
    assert (copy / f"{name}.damaged").read_bytes() == sound[:len(sound) // 2 + 1]
    assert rows_of(copy) == rows_of(whole.folder)


@pytest.mark.parametrize("content", [b"", b'{"name": "toy', b"[]", b"\xff\xfe"])
def test_a_damaged_study_is_told_and_kept_aside_if_the_checkpoint_is_of_the_same(copy, labels, whole, content):
    study = copy / "study.json"
    sound = study.read_bytes()
    study.write_bytes(content)
    with pytest.raises(ct.InputError, match="already holds a run"):
        play(labels, copy)
    with pytest.raises(ct.InputError, match="holds another study: its seed is 0, here it is 1"):
        play(labels, copy, resume=True, seed=1)
    assert study.read_bytes() == content, "what is refused is left alone"
    notices = Notices()
    play(labels, copy, resume=True, callbacks=[notices])
    assert notices.sentences == [f"{study} is damaged: it is kept as study.json.damaged, and made again, because the "
                                 "newest checkpoint is of this study."]
    assert study.read_bytes() == sound and (copy / "study.json.damaged").read_bytes() == content
    assert rows_of(copy) == rows_of(whole.folder)


def test_a_damaged_study_is_refused_if_no_checkpoint_says_what_was_run(copy, labels):
    (copy / "study.json").write_bytes(b"{")
    for checkpoint in (copy / "checkpoints").iterdir():
        checkpoint.write_bytes(b"")
    with pytest.raises(ct.InputError, match="cannot read .*study.json, which should be JSON"):
        play(labels, copy, resume=True)
    assert (copy / "study.json").read_bytes() == b"{" and not (copy / "study.json.damaged").exists()


@pytest.mark.parametrize("empty", [False, True])
def test_a_damaged_checkpoint_is_kept_aside(copy, labels, whole, empty):
    last = copy / "checkpoints" / "12.npz"
    last.write_bytes(b"" if empty else last.read_bytes()[:-9])
    notices = Notices()
    again = play(labels, copy, resume=True, callbacks=[notices])
    assert "the checkpoint of round 12 is damaged" in notices.sentences[0]
    assert sorted(path.name for path in (copy / "checkpoints").iterdir()) == [
        "12.npz", "12.npz.damaged", "4.npz", "8.npz"]
    assert rows_of(copy) == rows_of(whole.folder)
    jax.tree.map(np.testing.assert_array_equal, again.model.state, whole.model.state)


def test_a_run_can_be_read_where_nothing_can_be_written(copy, whole):
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(ct.InputError, match="no sound checkpoint"):
        ct.load(copy, problem=whole.model.problem, data=whole.model.data)
    assert not (copy / "checkpoints").exists(), "who reads makes no folders"


# A disk that is full


class FullDisk:
    """Refuses the n-th file operation in a folder, and all that follow, as a full disk does; 0 refuses none."""

    def __init__(self):
        self.at = self.count = 0
        self.inside = ""
        sys.addaudithook(self._hear)  # it cannot be taken off again, but sleeps while `inside` is empty

    def _hear(self, event, arguments):
        if not self.inside or event not in ("open", "os.mkdir", "os.rename"):
            return
        changes = event != "open" or (isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR))
        if changes and isinstance(arguments[0], str | os.PathLike) and os.fspath(arguments[0]).startswith(self.inside):
            self.count += 1
            if self.at and self.count >= self.at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(scope="module")
def full_disk():
    disk = FullDisk()
    yield disk
    disk.inside = ""


def write_all(path, rounds=4):
    """What a run writes, in its order, without the training; the state after round n is n everywhere."""
    with Folder(path).open(STUDY, resume=True) as folder:
        store = Checkpoints(path / "checkpoints", keep=2)
        found = store.newest({"model": np.zeros(3), "round": np.int64(0)})
        done = 0 if found is None else int(found[0]["round"])
        store.drop_after(done)
        history = folder.rewind(done or -1)
        for round in range(0 if done == 0 else done + 1, rounds + 1):
            history.append({"round": round, "loss": 1 / (1 + round)})
            folder.append(history[-1])
            folder.clients({"client": ["ann", "bob"], "loss": [0.5, 1 / (1 + round)]})
            if round and round % 2 == 0:
                store.save(round, {"model": np.full(3, float(round)), "round": np.int64(round)}, {})
        folder.summary({"final": history[-1]})


def contents(path):
    model, _, _ = Checkpoints(path / "checkpoints").newest({"model": np.zeros(3), "round": np.int64(0)})
    files = {file.name: file.read_text() for file in path.iterdir() if file.is_file()}
    return files, model["model"].tolist(), sorted(each.name for each in (path / "checkpoints").iterdir())


def test_a_disk_that_is_full_at_any_operation_costs_nothing_but_the_time(tmp_path, full_disk):
    full_disk.inside = str(tmp_path / "calm")
    write_all(tmp_path / "calm")
    operations, calm = full_disk.count, contents(tmp_path / "calm")
    assert operations > 30
    for number in range(1, operations + 1):
        out = tmp_path / f"full{number}"
        full_disk.at, full_disk.count, full_disk.inside = number, 0, str(out)
        with pytest.raises(CannotWrite, match=r"cannot write .*No space left on device"):
            write_all(out)
        full_disk.inside = ""
        assert not out.exists() or not (out / ".lock").exists()
        write_all(out)
        assert contents(out) == calm, f"after operation {number}"


@pytest.mark.parametrize("number", [9, 20, 33])
def test_a_run_on_a_full_disk_resumes_to_the_same_bits(tmp_path, full_disk, labels, whole, number):
    full_disk.at, full_disk.count, full_disk.inside = number, 0, str(tmp_path / "run")
    with pytest.raises(CannotWrite, match="No space left on device"):
        play(labels, tmp_path / "run")
    full_disk.inside = ""
    again = play(labels, tmp_path / "run", resume=True)
    assert rows_of(tmp_path / "run") == rows_of(whole.folder)
    jax.tree.map(np.testing.assert_array_equal, again.model.state, whole.model.state)


# Numbers

def test_no_zero_is_written_with_a_sign(tmp_path):
    folder = Folder(tmp_path / "run").open(STUDY, resume=False)
    with folder:
        folder.append({"round": 0, "drift": -0.0, "each": np.array([-0.0, -0.5])})
        folder.clients({"client": ["ann", "bob"], "drift": np.array([-0.0, -0.5], np.float32), "other": [-0.0, 1.0]})
    assert json.loads(folder.metrics_file.read_text())["each"] == [0.0, -0.5]
    assert "-0.0" not in folder.metrics_file.read_text()
    assert folder.clients_file.read_text().split() == ["client,drift,other", "ann,0.0,0.0", "bob,-0.5,1.0"]
