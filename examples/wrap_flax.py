"""A Flax module as a problem: its last layer is private, the rest is shared. Needs `pip install flax`."""

import flax.linen as nn
import numpy as np

import cantons as ct

data = ct.digits(clients=20, partition="dirichlet")


class Net(nn.Module):
    @nn.compact
    def __call__(self, images):
        hidden = nn.relu(nn.Dense(32)(images.reshape(len(images), -1)))
        return nn.Dense(10)(hidden)


problem = ct.from_flax(Net(), np.zeros((1, *data.input_shape)), loss="softmax", split="Dense_1/*")
result = ct.run(problem, data, ct.fedavg(step_size=0.1, epochs=1, batch_size=10), rounds=20, cohort=10)
print(result.final["test.personal.accuracy.mean"])
