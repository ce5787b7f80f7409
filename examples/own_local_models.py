"""Every client brings a local model of another kind; the server learns the shared one without seeing any of them."""
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import SGDRegressor

import cantons as ct
from cantons import local_models


class Neighbours:
    """Any class with these two methods will do: this one remembers residuals and averages the nearest three."""

    def __init__(self):
        self.x, self.residuals = np.zeros((0, 32)), np.zeros(0)

    def predict(self, x):
        distances = np.linalg.norm(x[:, None] - self.x[None], axis=2)
        return np.array([self.residuals[row.argsort()[:3]].mean() if len(row) else 0.0 for row in distances])

    def update(self, x, y, shared_prediction):
        self.x, self.residuals = np.vstack([self.x, x]), np.append(self.residuals, y - shared_prediction)


KINDS = [
    lambda: local_models.Linear(step_size=0.02),
    lambda: local_models.PartialFit(SGDRegressor(learning_rate="constant", eta0=0.02, random_state=0)),
    lambda: local_models.Refit(HistGradientBoostingRegressor(max_iter=30, min_samples_leaf=5), every=25),
    Neighbours,
]
data = ct.digits(clients=12)  # each tells another digit from three that all have in common
problem = ct.residual(data, shared_features="first_half", private_features="second_half", loss="squared", labels="sign")
models = [KINDS[number % 4]() for number in range(data.population)]
result = ct.run_with_models(problem, data, models, rounds=100, step_size=0.03, combine="mean",
                            clock=ct.online(uplink=1, downlink=1, batch=4))

print(f"{'local model':30} {'shared alone':>12} {'with it':>8}")
for kind in dict.fromkeys(result.clients["model"]):
    rows = np.array(result.clients["model"]) == kind
    shared, own = (result.clients[f"test.{who}.accuracy"][rows].mean() for who in ("shared", "personal"))
    print(f"{kind:30} {shared:12.3f} {own:8.3f}")
