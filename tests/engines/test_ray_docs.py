"""docs/cluster.md is followed command by command."""

import os
import re
import shlex
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from ray_processes import NODE, end_node, ray_processes, start_node, wait_until
from test_docs import ON_A_CLUSTER, ROOT, blocks

GIVEN = "10.0.0.1:6379"  # the address on the page


@pytest.fixture
def nodes():
    marks = []
    yield marks
    for mark in marks:
        end_node(mark)
        assert wait_until(lambda mark=mark: not ray_processes(NODE, mark))


def test_every_command_of_the_page_does_what_it_says(head, tmp_path, nodes):
    """Both nodes are on this machine, with the token of these tests, and only they are stopped."""
    address = None
    for language, title, text in blocks(ROOT / "docs" / ON_A_CLUSTER):
        if title:
            (tmp_path / title).write_text(text)
        for line in text.splitlines() if language == "sh" else ():
            command, *words = shlex.split(line)
            if command == "ray" and words[0] == "start":
                nodes.append(uuid.uuid4().hex)
                options = [word.replace(GIVEN, str(address)).replace("=6379", "=0") for word in words[1:]
                           if word != "--disable-usage-stats"]
                said = start_node(nodes[-1], "--num-cpus=2", *options)
                found = re.search(r"--address='([\d.]+:\d+)'", said)
                address = found[1] if found else address
            elif command == "ray":
                assert words == ["stop"] and len(nodes) == 2
                for mark in nodes:
                    end_node(mark)
            elif command in ("cantons", "python"):
                program = ["-m", "cantons.cli.main"] if command == "cantons" else []
                done = subprocess.run(
                    [sys.executable, *program, *(word.replace(GIVEN, str(address)) for word in words)],
                    cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
                assert done.returncode == 0, f"{line}: {done.stderr}"
            else:
                assert command in ("export", ".venv/bin/pip"), f"nobody runs {line!r}"
    folders = {Path(file).parent.name for file in tmp_path.glob("*/summary.json")}
    assert folders == {"ray", "local", "cluster", "events", "replayed"}
