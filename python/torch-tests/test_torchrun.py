"""Agents of torchrun that find each other without an address."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from potluck.torch._torchrun import Round
from torch.distributed import TCPStore

HERE = Path(__file__).parent
PATIENCE = 120


def children(process):
    """The processes that this one has started."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


class Agent:
    """An agent with two workers."""

    def __init__(self, group, over, nodes):
        command = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=potluck"]
        command += ["--rdzv-id=test", f"--rdzv-endpoint={group.environment['TEST_GROUP']}"]
        command += ["--rdzv-conf=loopback=1,open=1,last_call=0.5", f"--nnodes={nodes}"]
        command += ["--nproc-per-node=2", "--max-restarts=5", str(HERE / "worker.py")]
        self.process = subprocess.Popen(
            command,
            env=group.environment | {"TEST_OVER": str(over)},
            stdout=subprocess.PIPE,
            text=True,
        )
        self._end = threading.Timer(PATIENCE, self.kill)
        self._end.start()

    def hears(self, size):
        """Reads until both workers are in a group of this size."""
        ranks = set()
        while len(ranks) < 2:
            line = self.process.stdout.readline()
            assert line, "the agent has ended"
            heard = json.loads(line)
            if heard.get("size") == size:
                ranks.add(heard["rank"])
        return ranks

    def kill(self):
        """The agent and its workers, as if the machine had gone."""
        # The agent first: it would start them again.
        workers = children(self.process.pid)
        os.kill(self.process.pid, signal.SIGSTOP)
        for worker in workers:
            os.kill(worker, signal.SIGKILL)
        self.process.kill()

    def close(self):
        self._end.cancel()
        if self.process.poll() is None:
            self.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def agents(group, tmp_path):
    started = []

    def start(nodes):
        started.append(Agent(group, tmp_path / "over", nodes))
        return started[-1]

    yield start
    for agent in started:
        agent.close()


class Counted:
    """A store that counts how often it is asked whether a key is set."""

    def __init__(self, store: TCPStore) -> None:
        self.store = store
        self.looks = 0

    def check(self, keys: list[str]) -> bool:
        self.looks += 1
        return self.store.check(keys)


def test_a_round_that_one_begins_again_is_noticed_by_the_others():
    server = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    client = TCPStore("localhost", server.port, wait_for_workers=False)
    counted = Counted(client)
    one, other = Round(server), Round(counted)
    other.watch()
    end = time.monotonic() + PATIENCE
    while counted.looks < 3 and time.monotonic() < end:
        time.sleep(0.01)
    assert counted.looks >= 3 and not other.is_again
    one.begin_again()
    while not other.is_again and time.monotonic() < end:
        time.sleep(0.01)
    assert other.is_again
    other.close()


def test_agents_meet_lose_one_and_admit_one(agents, tmp_path):
    first, second, third = (agents("2:3") for _ in range(3))
    ranks = [agent.hears(6) for agent in (first, second, third)]
    assert sorted(rank for of_agent in ranks for rank in of_agent) == list(range(6))
    third.kill()
    for agent in (first, second):
        agent.hears(4)
    fourth = agents("2:3")
    for agent in (first, second, fourth):
        agent.hears(6)
    (tmp_path / "over").touch()
    assert [agent.process.wait(PATIENCE) for agent in (first, second, fourth)] == [0] * 3
