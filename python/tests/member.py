"""A process of a test: joins, waits for its group, runs one function of a test module.

Its results are lines of JSON on stdout. The last one is the result of the function. The process
stays in its group until its stdin is closed, so none leaves while another one calls.
"""

import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import potluck


def say(what: Any) -> None:
    print(json.dumps(what), flush=True)


def joined(**settings: Any) -> potluck.Cluster:
    settings = {
        "open_lan": os.environ["TEST_GROUP"],
        "loopback": True,
        "stateless": True,
    } | settings
    return potluck.join(**settings)


def main() -> None:
    # A shell that starts tests in the background has them ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    module, function, settings = sys.argv[1:]
    sys.path.insert(0, str(Path(__file__).parent))
    run = getattr(importlib.import_module(module), function)
    if getattr(run, "joins_itself", False):
        say({"returned": run()})
        return
    with joined(**json.loads(settings)) as cluster:
        say({"returned": run(cluster, cluster.context(timeout=60))})
        sys.stdin.read()


def joins_itself(function: Any) -> Any:
    function.joins_itself = True
    return function


if __name__ == "__main__":
    # Test modules import this file by its name, and have to find this very module.
    sys.modules["member"] = sys.modules["__main__"]
    main()
