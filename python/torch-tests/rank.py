"""A process of a test: becomes a rank of a process group, and runs one function of a test module.

Its results are lines of JSON on stdout. The last one is the result of the function.
"""

import faulthandler
import importlib
import json
import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

MINUTE = timedelta(minutes=1)


def say(what: Any) -> None:
    print(json.dumps(what), flush=True)


def begin(members: int, min_members: int | None = None, backend: str = "potluck") -> None:
    """Begins the process group of the test."""
    if backend == "potluck":
        import potluck.torch  # noqa: F401 - it registers the backend

        url = f"potluck://{os.environ['TEST_GROUP']}?n={members}&min={min_members or members}"
        dist.init_process_group("potluck", init_method=f"{url}&loopback=1&open=1", timeout=MINUTE)
    else:
        # Ranks are given by the order of arrival.
        file = os.environ["POTLUCK_HOME"]
        store = dist.FileStore(f"{file}/{os.environ['TEST_GROUP']}", members)
        rank = store.add("ranks", 1) - 1
        dist.init_process_group(backend, store=store, rank=rank, world_size=members, timeout=MINUTE)


def joins_itself(function: Any) -> Any:
    """Marks a function that gets its settings in place of a rank, and joins by itself."""
    function.joins_itself = True
    return function


def main() -> None:
    faulthandler.enable()
    torch.set_num_threads(1)
    module, function, settings = sys.argv[1:]
    run = getattr(importlib.import_module(module), function)
    if getattr(run, "joins_itself", False):
        say({"returned": run(**json.loads(settings))})
        return
    begin(**json.loads(settings))
    returned = run(dist.get_rank(), dist.get_world_size())
    if dist.is_initialized():
        dist.destroy_process_group()
    say({"returned": returned})


if __name__ == "__main__":
    # Test modules import this file by its name, and have to find this very module.
    sys.modules["rank"] = sys.modules["__main__"]
    main()
