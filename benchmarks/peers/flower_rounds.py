"""FedAvg of Flower in its simulation on Ray: one process per core, each of which plays one client at a time."""

from __future__ import annotations

import os
import sys

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}

import flower_client  # noqa: E402
from contender import Windows, workload  # noqa: E402
from flwr.app import ArrayRecord, ConfigRecord, Context  # noqa: E402
from flwr.serverapp import Grid, ServerApp  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.simulation import run_simulation  # noqa: E402
from torch_networks import network  # noqa: E402


def main() -> None:
    work = workload()
    windows = Windows(work.window, "flwr", "ray", "torch", "numpy")
    server = ServerApp()

    def after_round(round: int, arrays: ArrayRecord) -> None:
        if round > 0:
            windows.round_over()

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = FedAvg(fraction_train=work.cohort / work.clients, fraction_evaluate=0.0,
                          min_available_nodes=work.clients)
        strategy.start(grid, ArrayRecord(network(work.model).state_dict()), work.window * work.windows,
                       train_config=ConfigRecord({"workload": sys.argv[1]}), evaluate_fn=after_round)

    run_simulation(server, flower_client.app, work.clients,
                   backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}})


if __name__ == "__main__":
    main()
