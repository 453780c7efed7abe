"""Every member contributes an array, every member gets the sum.

Start it on two machines with the same cluster key, or twice on one machine with `--here`.
"""

import sys
from array import array

import potluck

here = "--here" in sys.argv
with potluck.join(open_lan="sum-example" if here else None, loopback=here) as cluster:
    ctx = cluster.context()  # waits until there are two
    numbers = array("d", [ctx.rank + 1.0] * 1000)
    ctx.all_reduce(numbers)
    print(f"rank {ctx.rank} of {ctx.size}: {numbers[0]}")
