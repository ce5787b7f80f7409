"""docs/from_torch.md is played from top to bottom, where there is PyTorch."""

import pytest
from test_docs import ROOT, WITH_PYTORCH, play

pytest.importorskip("torch", reason="make test-extras installs it")


def test_the_blocks_of_the_page_run_from_top_to_bottom(capsys, monkeypatch, tmp_path):
    play(ROOT / "docs" / WITH_PYTORCH, capsys, monkeypatch, tmp_path)
