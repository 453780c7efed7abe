"""Lightning and the Trainer of Hugging Face, as they are, in processes of torchrun."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

FRAMEWORKS = Path(__file__).parent / "frameworks"
PATIENCE = 300


@pytest.mark.parametrize("script", ["lightning_digits.py", "trainer_digits.py"])
def test_it_trains_in_two_processes(group, script):
    command = [sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=potluck"]
    command += [f"--rdzv-endpoint={group.environment['TEST_GROUP']}"]
    command += ["--rdzv-conf=loopback=1,open=1", "--nnodes=1", "--nproc-per-node=2"]
    command += [str(FRAMEWORKS / script)]
    ran = subprocess.run(
        command, env=group.environment, stdout=subprocess.PIPE, timeout=PATIENCE, text=True
    )
    assert ran.returncode == 0, ran.stdout
    # Two processes may write in one line.
    told = [json.loads(end) for end in re.findall(r'{"rank".*?}', ran.stdout)]
    assert sorted(end["rank"] for end in told) == [0, 1], ran.stdout
    assert all(end["size"] == 2 and end["right"] > 0.9 for end in told), told
    assert told[0]["weights"] == told[1]["weights"], told
