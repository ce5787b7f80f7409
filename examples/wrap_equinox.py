"""An Equinox module as a problem: its last layer is private, the rest is shared."""

import equinox as eqx

import cantons as ct

data = ct.digits(clients=20, partition="dirichlet")


def build(key):
    """A module of one example; cantons runs it over the batch."""
    flatten = eqx.nn.Lambda(lambda image: image.reshape(64))
    return eqx.nn.Sequential([flatten, eqx.nn.MLP(64, 10, width_size=32, depth=1, key=key)])


problem = ct.from_equinox(build, loss="softmax", split="*/layers/1/*")
result = ct.run(problem, data, ct.fedavg(step_size=0.1, epochs=1, batch_size=10), rounds=20, cohort=10)
print(result.final["test.personal.accuracy.mean"])
