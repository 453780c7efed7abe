"""The command that the package installs."""

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import potluck
import pytest
from processes import PATIENCE

COMMAND = Path(sys.executable).with_name("potluck")


@pytest.fixture
def command(group):
    """Starts the command with arguments, in a namespace of its own."""
    started = []
    environment = group.environment | {"POTLUCK_NAMESPACE": group.environment["TEST_GROUP"]}

    def start(*arguments):
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([COMMAND, *arguments], env=environment, text=True, **pipes)
        end = threading.Timer(PATIENCE, process.kill)
        end.start()
        started.append((process, end))
        return process

    yield start
    for process, end in started:
        process.kill()
        process.communicate()
        end.cancel()


def test_it_says_its_version_and_what_is_wrong(command):
    version = command("--version")
    assert version.communicate()[0] == f"potluck {potluck.__version__}\n"
    wrong = command("nonsense")
    assert "unrecognized subcommand 'nonsense'" in wrong.communicate()[1]
    assert (version.returncode, wrong.returncode) == (0, 2)
    key = command("key", "--json")
    failure = json.loads(key.communicate()[0])
    assert failure["ok"] is False and failure["exit"] == key.returncode == 6


def test_control_c_ends_it_and_programs_run_under_it(command):
    up = command("up", "--loopback", "--json")
    event = json.loads(up.stdout.readline())
    assert "event" in event, event
    up.send_signal(signal.SIGINT)
    out, err = up.communicate()
    assert up.returncode == 130, err
    assert "Traceback" not in err and json.loads(out.splitlines()[-1]) == {"event": "left"}
    # The key that it has made is there; the guard of the program is a process of its own.
    program = "echo rank $RANK of $WORLD_SIZE; exit 7"
    run = command("run", "--loopback", "--members", "1", "--", "sh", "-c", program)
    out, err = run.communicate()
    assert run.returncode == 7, err
    assert "[0] rank 0 of 1" in out
