"""FedAvg of Flower in its simulation on Ray: one process per core, each of which plays one client at a time."""

from __future__ import annotations

import os
import sys

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}

import flower_client
from contender import Windows, workload
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_networks import network


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
