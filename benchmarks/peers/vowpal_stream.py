"""Vowpal Wabbit on streams: predict each example, then learn from it.

Reads {"streams": {name: lines}, "options": [...]} from stdin and writes {"version": ..., "predictions":
{name: {options: [...]}}} to stdout. Lines are Vowpal Wabbit's own text format.
"""

from __future__ import annotations

import json
import sys

import vowpalwabbit


def played(lines: list[str], options: str) -> list[float]:
    workspace = vowpalwabbit.Workspace(f"{options} --quiet")
    predictions = []
    for line in lines:
        example = workspace.parse(line, vowpalwabbit.LabelType.SIMPLE)
        workspace.learn(example)  # the prediction is the one made before learning
        predictions.append(example.get_simplelabel_prediction())
        workspace.finish_example(example)
    workspace.finish()
    return predictions


if __name__ == "__main__":
    work = json.load(sys.stdin)
    found = {name: {options: played(lines, options) for options in work["options"]}
             for name, lines in work["streams"].items()}
    json.dump({"version": vowpalwabbit.__version__, "predictions": found}, sys.stdout)
