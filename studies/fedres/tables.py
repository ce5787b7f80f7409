"""The multi-class sets of "Federated Residual Learning" (v1), section 6, with every column scaled to [-1, 1].

LIBSVM offers most of them scaled like that. Where the files are not there, scikit-learn's digits are.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

SETS = ("mnist", "satimage", "sensorless", "usps", "letter", "pendigits", "shuttle", "covtype")
COVTYPE_ROWS = 100_000  # of 581,012, drawn once: every rollout uses a few thousand of them


def there(folder: Path) -> list[str]:
    """The sets whose files are in the folder, digits if there are none."""
    return [name for name in SETS if file_of(folder, name).exists()] or ["digits"]


def file_of(folder: Path, name: str) -> Path:
    return folder / f"{'sensorless_subset' if name == 'sensorless' else name}.npz"


def inputs_and_labels(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    inputs, labels = _raw(folder, name)
    inputs = inputs.astype(np.float32)
    low, high = inputs.min(axis=0), inputs.max(axis=0)
    inputs -= (low + high) / 2
    inputs /= np.where(high > low, (high - low) / 2, 1)
    return inputs, labels


def _raw(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    if name == "digits":
        from sklearn.datasets import load_digits

        return load_digits(return_X_y=True)
    with np.load(file_of(folder, name), allow_pickle=False) as file:
        if name == "sensorless":
            return np.concatenate([file["x"], file["x_extra"]]), np.concatenate([file["y"], file["y_extra"]])
        if name != "covtype":
            return file["x"], file["y"]
        rows = np.sort(np.random.default_rng(0).choice(len(file["y"]), COVTYPE_ROWS, replace=False))
        one_hot = [np.eye(kinds, dtype=np.int16)[file[column][rows]] for column, kinds in
                   (("wilderness", 4), ("soil", 40))]
        return np.concatenate([file["x_num"].T[rows], *one_hot], axis=1), file["y"][rows]
