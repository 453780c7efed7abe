"""Fits a line while members come and go: each step uses the data of all members.

Start it on as many machines as you like, or several times on one machine with `--here`. Stop one,
and start it again: it gets the state of the others and goes on with them.
"""

import struct
import sys

import numpy as np
import potluck

STEPS = 1000


def gradient(weights: np.ndarray, rank: int, step: int) -> np.ndarray:
    """The gradient of the squared error on some points of y = 3 x + 1."""
    x = np.random.default_rng(16 * step + rank).normal(size=32)
    error = weights[0] * x + weights[1] - (3 * x + 1)
    return np.array([(2 * error * x).mean(), (2 * error).mean()])


def main() -> None:
    here = "--here" in sys.argv
    step, weights = 0, np.zeros(2)
    with potluck.join(open_lan="elastic-example" if here else None, loopback=here) as cluster:
        while step < STEPS:
            ctx = cluster.context()
            try:
                # The state of the member that is furthest along.
                state = ctx.sync(step, struct.pack("<q2d", step, *weights))
                step, *numbers = struct.unpack("<q2d", state)
                weights = np.array(numbers)
                while step < STEPS:
                    mean = ctx.all_reduce(gradient(weights, ctx.rank, step), "mean")
                    weights, step = weights - 0.05 * mean, step + 1
            except potluck.Error as error:
                if not error.can_renew:
                    raise
    print(f"y = {weights[0]:.3f} x + {weights[1]:.3f} after {step} steps")


if __name__ == "__main__":
    main()
