"""Run folders written by hand, so that every number in a report is known beforehand."""

import pytest

from cantons.study.folder import Folder, write_json


@pytest.fixture
def make_run(tmp_path):
    """`make_run(folder, ...)`: a run of three clients (or as many as have scores) and two evaluations, and its path.

    `numbers` grow with the rounds; `tables` are further ones of its study.
    """

    def make(folder="run", *, scores=(0.5, 0.75, 1.0), shared=None, rounds=20, seed=0, algorithm=None,
             checksum=7, name="study", metric="accuracy", sent=2048.0, rejected=(), evaluations=(0, 20), test_rows=10,
             new=None, liars=(), numbers=None, notes=None, **tables):
        path, shared = tmp_path / folder, (0.5,) * len(scores) if shared is None else shared
        names = ["ann", "bob", "eve"] if len(scores) == 3 else [str(number) for number in range(len(scores))]
        path.mkdir()
        write_json(path / "study.json", {
            "name": name, "seed": seed, "rounds": rounds, "keep": 3,
            "algorithm": {"name": "fedavg", **(algorithm or {})},
            "data": {"name": "toy", "population": len(scores), "examples": 10 * len(scores),
                     "test_set": "rows held out", "checksum": checksum,
                     **({} if notes is None else {"notes": notes})}, **tables})
        write_json(path / "environment.json", {
            "python": "3.11.0", "system": "Linux", "machine": "x86_64", "cores": 2, "versions": {"jax": "0.10.2"},
            "devices": ["cpu", "cpu"], "platform": "cpu"})
        for round in evaluations:
            Folder(path).append({
                "round": round, "bytes_per_client": sent * round / 20, "seconds_per_round": 0.004 if round else None,
                "rejected_uploads": len(rejected) * round, "rejected_clients": list(rejected), "skipped_rounds": 0,
                **{f"test.{model}.{metric}.{statistic}": value * (round + 20) / 40
                   for model, values in (("personal", scores), ("shared", shared))
                   for statistic, value in (("mean", sum(values) / len(values)), ("worst10", min(values)))},
                **({} if new is None else {f"new_test.personal.{metric}.mean": new}),
                **{key: value * round for key, value in (numbers or {}).items()}})
        if evaluations:
            Folder(path).clients({
                "client": names, f"test.personal.{metric}": scores, f"test.shared.{metric}": shared,
                "test_examples": [test_rows] * len(scores),
                **({"liar": [int(name in liars) for name in names]} if liars else {})})
        return path

    return make
