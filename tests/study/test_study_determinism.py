"""What is equal to the last bit and what to rounding, as docs/reliability.md says."""

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import cantons as ct

sys.path.insert(0, str(Path(__file__).parent))
from kill_and_resume import STUDY, command, final_bytes


@pytest.fixture(scope="module")
def play():
    data = ct.synthetic(clients=5, features=4, largest=40)
    problem = ct.logistic(data, split="*bias")

    def play(out, **engine):
        return ct.run(problem, data, ct.scaffold(batch_size=8), rounds=6, cohort=3, evaluate_every=2,
                      checkpoint_every=2, engine=ct.Local(**engine), out=out)

    return play


@pytest.fixture(scope="module")
def whole(play, tmp_path_factory):
    """A run on one device, and its folder."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return play(out, devices=1), out


def test_the_same_run_has_the_same_bits(play, whole, tmp_path):
    play(tmp_path / "again", devices=1)
    assert final_bytes(tmp_path / "again") == final_bytes(whole[1])


def test_from_the_shell_it_has_the_bits_that_it_has_from_python(whole, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY + "\n[engine]\ndevices = 1\n")
    subprocess.run(command(tmp_path / "study.toml", tmp_path / "run"), check=True, capture_output=True)
    assert final_bytes(tmp_path / "run") == final_bytes(whole[1])


@pytest.mark.parametrize("engine", [{"devices": 2}, {"devices": 1, "mode": "vmap", "group": 3}],
                         ids=["devices", "vmap"])
def test_on_other_devices_or_mapped_otherwise_it_is_equal_to_rounding(play, whole, engine):
    for one, other in zip(jax.tree.leaves(whole[0].model.state), jax.tree.leaves(play(None, **engine).model.state),
                          strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
