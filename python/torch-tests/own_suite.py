"""PyTorch's own tests of a backend, with the backend that BACKEND names.

They come with PyTorch (`torch.testing._internal`), know the names of PyTorch's backends only, and
skip most calls for others. So they are told that it is gloo, and every group that they make of gloo
is made of this backend. Prints a line of JSON for each test: its name, "passed", "failed" or
"skipped", and why.
"""

import functools
import json
import os
import sys
import tempfile
import time
import unittest

BACKEND = os.environ.get("BACKEND", "potluck")
os.environ["BACKEND"] = "gloo"
os.environ.setdefault("WORLD_SIZE", "3")
os.environ.setdefault("TEMP_DIR", tempfile.mkdtemp())
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("POTLUCK_TORCH_URL", f"potluck://own-{os.getpid()}?loopback=1&open=1")
os.environ.setdefault("POTLUCK_HOME", os.environ["TEMP_DIR"])
os.environ.setdefault("POTLUCK_NOTICES", "0")

import torch
from torch.testing._internal.distributed import distributed_test as own

import potluck.torch  # noqa: F401 - it registers the backend

torch.set_num_threads(1)


def made_of_the_backend(make):
    @functools.wraps(make)
    def made(*arguments, backend=None, **options):
        return make(*arguments, backend=BACKEND if backend == "gloo" else backend, **options)

    return made


own.dist.init_process_group = made_of_the_backend(own.dist.init_process_group)
own.dist.new_group = made_of_the_backend(own.dist.new_group)


class TestBackend(own.TestDistBackend, own.DistributedTest._DistTestBase):
    """The processes are forks of this one, which has joined nothing."""

    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


class Told(unittest.TestResult):
    """Prints each end."""

    def startTest(self, test):
        super().startTest(test)
        self._begun = time.monotonic()

    def _say(self, test, how, why=""):
        name = test.id().rpartition(".")[2]
        took = round(time.monotonic() - self._begun, 1)
        print(json.dumps({"test": name, "how": how, "why": why, "took": took}), flush=True)

    def addSuccess(self, test):
        self._say(test, "passed")

    def addFailure(self, test, error):
        self._say(test, "failed", self._exc_info_to_string(error, test)[-3000:])

    addError = addFailure

    def addSkip(self, test, reason):
        self._say(test, "skipped", reason)

    def addExpectedFailure(self, test, error):
        self._say(test, "passed")


if __name__ == "__main__":
    loader = unittest.TestLoader()
    chosen = sys.argv[1:] or loader.getTestCaseNames(TestBackend)
    unittest.TestSuite(TestBackend(name) for name in chosen).run(Told())
