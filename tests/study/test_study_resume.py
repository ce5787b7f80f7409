"""A run that is killed, interrupted or damaged ends with the same bits as one that was not."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import cantons as ct
from cantons.study.read import read_study

sys.path.insert(0, str(Path(__file__).parent))
from kill_and_resume import STUDY, command, final_bytes

ROOT = Path(__file__).resolve().parents[2]


class Notices(ct.Callback):
    def __init__(self):
        self.sentences = []

    def noticed(self, sentence):
        self.sentences.append(sentence)


@pytest.fixture(autouse=True)
def warm_cache(monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture(scope="module")
def federation():
    return ct.digits(clients=12)


def play(data, out=None, rounds=12, resume=False, callbacks=(), **options):
    problem = ct.classification(data, ct.mlp(hidden=(4,)), split="output")
    return ct.run(problem, data, ct.scaffold(batch_size=8), rounds=rounds, cohort=4, evaluate_every=4, out=out,
                  checkpoint_every=4, resume=resume, callbacks=callbacks, **options)


@pytest.fixture(scope="module")
def whole(federation):
    """The run of twelve rounds that nothing has happened to."""
    return play(federation)


@pytest.fixture(scope="module")
def eight_rounds(federation, tmp_path_factory):
    out = tmp_path_factory.mktemp("eight") / "run"
    play(federation, out, rounds=8)
    return out


@pytest.fixture
def stopped(eight_rounds, tmp_path):
    """A folder of one's own with the first eight rounds."""
    return Path(shutil.copytree(eight_rounds, tmp_path / "run"))


def assert_same_state(left, right):
    for one, other in zip(jax.tree.leaves(left.model.state), jax.tree.leaves(right.model.state), strict=True):
        np.testing.assert_array_equal(one, other)


def test_killed_at_its_file_operations_it_ends_bit_identical():
    """`make check-resume` has a hundred kills, of sweeps, comparisons and online runs too."""
    program = [sys.executable, str(Path(__file__).parent / "kill_and_resume.py"), "--kinds", "run", "local models",
               "--kills", "4"]
    done = subprocess.run(program, capture_output=True, text=True)
    assert ", 0 different ends" in done.stdout and not done.returncode, done.stdout + done.stderr


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(STUDY.replace("rounds = 6", "rounds = 2000000").replace("evaluate_every = 2", "")
                     .replace("checkpoint_every = 2", "checkpoint_every = 100"))
    out = tmp_path / "run"
    process = subprocess.Popen(command(study, out), stderr=subprocess.PIPE, text=True)
    while not list(out.glob("checkpoints/*.npz")) and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped after round" in said and "--resume" in said
    stopped = int(said.split("stopped after round ")[1].split(";")[0])
    assert (out / "checkpoints" / f"{stopped}.npz").is_file()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_ended_by_a_signal_it_goes_on_to_the_same_bits(tmp_path, number):
    study, out = tmp_path / "study.toml", tmp_path / "run"
    study.write_text(STUDY.replace("rounds = 6", "rounds = 2000000").replace("every = 2", "every = 50")
                     + "[engine]\ndevices = 1\n")
    # Whoever runs the tests may ignore the signal, as nohup does, and children inherit that.
    ours = signal.signal(number, signal.SIG_DFL)
    process = subprocess.Popen(command(study, out), stderr=subprocess.PIPE)
    signal.signal(number, ours)
    try:
        while not list(out.glob("checkpoints/*.npz")) and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(number)
        process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == -number
    rounds = max(int(path.stem) for path in (out / "checkpoints").glob("*.npz")) + 70
    for folder in (out, tmp_path / "calm"):
        read_study(study, {"rounds": rounds}).run(out=folder, resume=True)
    assert final_bytes(out) == final_bytes(tmp_path / "calm")


def test_a_folder_that_is_moved_away_ends_the_run_in_a_sentence_and_goes_on_where_it_is(tmp_path, federation, whole):
    class Mover(ct.Callback):
        def evaluated(self, record):
            if record["round"] == 8:
                (tmp_path / "run").rename(tmp_path / "moved")

    with pytest.raises(ct.InputError, match="cannot write .*run/checkpoints: No such file or directory"):
        play(federation, tmp_path / "run", callbacks=[Mover()])
    assert not (tmp_path / "run").exists(), "one half of it here and one there would be of no use"
    assert_same_state(whole, play(federation, tmp_path / "moved", resume=True))


def test_a_resumed_run_equals_the_whole_one(federation, whole, stopped):
    resumed = play(federation, stopped, resume=True)
    assert_same_state(whole, resumed)
    assert [row["round"] for row in resumed.history] == [0, 4, 8, 12]


def damage_by_flipping_a_byte(checkpoint):
    content = bytearray(checkpoint.read_bytes())
    content[len(content) // 2] ^= 0xFF
    checkpoint.write_bytes(bytes(content))


def damage_by_cutting_it_short(checkpoint):
    checkpoint.write_bytes(checkpoint.read_bytes()[:40])


def damage_by_losing_a_leaf(checkpoint):
    with np.load(checkpoint) as file:
        kept = dict(list(file.items())[:-1])
    np.savez(checkpoint, **kept)


def damage_by_changing_a_number(checkpoint):
    """Such that the file is sound, and only the digest tells."""
    with np.load(checkpoint) as file:
        leaves = dict(file)
    name = max(leaves.keys() - {"about"}, key=lambda name: leaves[name].size)
    leaves[name] = np.roll(leaves[name], 1)
    np.savez(checkpoint, **leaves)


@pytest.mark.parametrize("damage", [damage_by_flipping_a_byte, damage_by_cutting_it_short, damage_by_losing_a_leaf,
                                    damage_by_changing_a_number])
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(federation, whole, stopped, damage):
    damage(stopped / "checkpoints" / "8.npz")
    notices = Notices()
    resumed = play(federation, stopped, resume=True, callbacks=[notices])
    assert any("round 8 is damaged" in sentence for sentence in notices.sentences)
    assert_same_state(whole, resumed)


def test_with_every_checkpoint_damaged_it_starts_over(federation, whole, stopped):
    for checkpoint in (stopped / "checkpoints").iterdir():
        damage_by_losing_a_leaf(checkpoint)
    assert_same_state(whole, play(federation, stopped, resume=True))


def test_a_half_written_evaluation_is_made_again(federation, stopped):
    metrics = stopped / "metrics.jsonl"
    metrics.write_text(metrics.read_text() + '{"round": 12, "test.per')
    resumed = play(federation, stopped, resume=True)
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [row["round"] for row in rows] == [row["round"] for row in resumed.history] == [0, 4, 8, 12]


def test_only_the_newest_checkpoints_stay(tmp_path, federation):
    play(federation, tmp_path / "run", rounds=12, keep=2)
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["12.npz", "8.npz"]


def test_a_checkpoint_of_another_study_is_refused(federation, stopped):
    with pytest.raises(ct.InputError, match="holds another study: its seed is 0, here it is 1"):
        play(federation, stopped, resume=True, seed=1)
    with pytest.raises(ct.InputError, match=r"holds another study: its data\."):
        play(ct.digits(clients=12, seed=5), stopped, resume=True)


def test_a_run_is_never_overwritten(tmp_path, federation, stopped):
    before = (stopped / "metrics.jsonl").read_text()
    with pytest.raises(ct.InputError, match="already holds a run"):
        play(federation, stopped, rounds=4)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("all of it")
    with pytest.raises(ct.InputError, match="is not a run folder"):
        play(federation, tmp_path / "other", rounds=4)
    assert (stopped / "metrics.jsonl").read_text() == before


def test_finished_runs_of_the_script_have_equal_digests_only_if_equal(tmp_path, federation):
    play(federation, tmp_path / "one", rounds=4)
    play(federation, tmp_path / "two", rounds=4)
    play(federation, tmp_path / "three", rounds=4, seed=1)
    assert final_bytes(tmp_path / "one") == final_bytes(tmp_path / "two") != final_bytes(tmp_path / "three")
