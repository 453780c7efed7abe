"""JAX on the processors of all machines. With the name of a file it goes on until there is such a
file on one of the machines."""

import os
import sys
import time

import jax
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.distributed.initialize(
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
    process_id=int(os.environ["JAX_PROCESS_ID"]),
)
rank, world = jax.process_index(), jax.process_count()
assert len(jax.devices()) == world, jax.devices()

everyone = process_allgather(jax.numpy.array([rank]), tiled=True)
assert everyone.tolist() == list(range(world)), everyone

# A sum over an array of which each machine has a row.
mesh = Mesh(jax.devices(), "machines")
rows = NamedSharding(mesh, PartitionSpec("machines"))
array = jax.make_array_from_callback(
    (world, 1000), rows, lambda index: jax.numpy.full((1, 1000), index[0].start or 0)
)
total = jax.jit(lambda x: x.sum(0), out_shardings=NamedSharding(mesh, PartitionSpec()))(array)
assert (total.addressable_data(0) == sum(range(world))).all(), total

print(f"rank {rank} of {world}: runs", flush=True)
while len(sys.argv) > 1:
    found = process_allgather(jax.numpy.array([os.path.exists(sys.argv[1])]), tiled=True)
    if found.any():
        break
    time.sleep(0.05)
jax.distributed.shutdown()
print(f"rank {rank} of {world}: right", flush=True)
