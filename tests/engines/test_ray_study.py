"""Figure 3 of FFGG with real delays, in its small size: the replay ends where the run did."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_study_with_real_delays_is_replayed_to_the_same_state(nothing_is_left, tmp_path):
    done = subprocess.run([sys.executable, ROOT / "studies" / "ffgg" / "real_delays.py", "--quick", "--out", tmp_path],
                          capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "real_delays.json").read_text())["found"]
    assert found.keys() == {"3, drawn", "3, same", "3, buffer"}
    for name, one in found.items():
        assert one["replay_apart"] < 1e-12 and one["apart"] < 1e-12
        # A buffer has a spare place where all jobs under way are of fewer clients.
        assert sum(one["jobs"]) == 20 or (name == "3, buffer" and sum(one["jobs"]) < 20)
        assert one["longest"] > 0 and one["norms"][-1] < 1
        assert 0 < one["event_seconds"] < 30
