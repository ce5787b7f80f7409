"""What users' compilers made of our programs: the tests compile fast rather than well, and would not see it."""

import os
import subprocess
import sys

import pytest

START = """
import numpy as np, cantons as ct
rows = np.random.default_rng(0)
data = ct.from_clients({name: (rows.normal(size=(6, 4)), rows.integers(0, 3, 6)) for name in "abc"}, classes=3, test=0)
"""
PROGRAMS = {
    "a pass over the one example of a step": """
ct.run(ct.logistic(data), data, ct.fedavg(), rounds=2, clock=ct.online())
""",
    "a shuffle of one, where there is one client": """
alone = ct.from_clients({"a": (rows.normal(size=(6, 4)), rows.integers(0, 3, 6))}, classes=3, test=0)
ct.run(ct.logistic(alone), alone, ct.fedavg(), rounds=2, clock=ct.asynchronous())
""",
    "durations of jobs, which other clients must not change in the last bit": """
from cantons.engine import seed_keys
firsts = {}
for clients in (5, 9, 70):
    clock = ct.asynchronous(durations={"name": "log_normal", "spread": 1.0, "jitter": 0.3}).build(clients)
    jobs, ids = clock.asynchronous.begin(clock.arrays, seed_keys(0)[1])
    for client, left in zip(ids.tolist(), jobs.rows.left.tolist()):
        assert firsts.setdefault(client, left) == left
""",
    "empty arrays divided over devices": """
data = [ct.from_clients({name: (rows.normal(size=(6, 3)), rows.normal(size=6)) for name in "abc"}, test=0)
        for _ in range(4)]
plain = ct.linear(bias=False)
problem = ct.residual(data[0], shared_features="all", private_features="none", shared_model=plain, private_model=plain)
ct.rollouts(problem, data, ct.fedres_erm(), rounds=2, clock=ct.online())
""",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_compiles_as_users_compile(program, tmp_path):
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_NUM_CPU_DEVICES": "2",
                   "JAX_COMPILATION_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", START + PROGRAMS[program]], env=environment, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr[-2000:]
