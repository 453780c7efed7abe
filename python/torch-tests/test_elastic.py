"""Handwritten digits, trained while members come and go."""

import hashlib
import os
import time

import potluck
import torch
from potluck.torch import ElasticDDP
from rank import joins_itself, say
from sklearn.datasets import load_digits
from torch import nn

EPOCHS, BATCH, MEMBERS = 30, 32, 4
KILLED_AT, BACK_BY = 90, 180


def digits():
    """Inputs and labels for training, and those for the test."""
    data = load_digits()
    inputs = torch.tensor(data.images, dtype=torch.float32).reshape(-1, 64) / 16
    labels = torch.tensor(data.target)
    mixed = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = mixed[: len(mixed) * 7 // 10], mixed[len(mixed) * 7 // 10 :]
    return (inputs[train], labels[train]), (inputs[test], labels[test])


def network():
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers)


def wait_for_all(cluster):
    while cluster.context(60).size < MEMBERS:
        time.sleep(0.05)


@joins_itself
def trainee(seed, stops_at=None):
    """Trains to the end; returns the steps, the members of the last one, accuracy and bits."""
    torch.manual_seed(seed + os.getpid())  # each begins with weights of its own
    (inputs, labels), (test_inputs, test_labels) = digits()
    group = os.environ["TEST_GROUP"]
    with potluck.join(open_lan=group, loopback=True, members=MEMBERS, min_members=2) as cluster:
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        ddp = ElasticDDP(model, optimizer, cluster, timeout=60)
        total = EPOCHS * (len(labels) // (BATCH * MEMBERS))
        small = 0
        while ddp.steps < total:
            with ddp.step():
                chance = torch.Generator().manual_seed(10_000 * seed + 16 * ddp.steps + ddp.rank)
                batch = torch.randint(len(labels), (BATCH,), generator=chance)
                loss = nn.functional.cross_entropy(ddp(inputs[batch]), labels[batch])
                loss.backward()
            small += ddp.size < MEMBERS
            if ddp.steps == stops_at:
                say({"steps": ddp.steps})
                os.read(0, 1)
            if ddp.steps == BACK_BY:
                wait_for_all(cluster)
        right = (model(test_inputs).argmax(1) == test_labels).float().mean().item()
        bits = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
        return [ddp.steps, ddp.size, right, bits.hexdigest(), small]


def test_one_is_killed_and_another_comes(group):
    others = group.start(trainee, MEMBERS - 1, seed=1)
    [victim] = group.start(trainee, seed=1, stops_at=KILLED_AT)
    assert victim.heard() == {"steps": KILLED_AT}
    victim.process.kill()
    others += group.start(trainee, seed=1)
    told = [member.returned() for member in others]
    assert len({bits for *_, bits, _ in told}) == 1, told
    for steps, size, accuracy, _, _ in told:
        assert steps == 270 and size == MEMBERS and accuracy > 0.96, told
    # Some steps were made by three.
    assert max(small for *_, small in told) > 0, told
    print("accuracy", told[0][2], "steps by fewer", [small for *_, small in told])


@joins_itself
def stumbler(steps, stumbles_at=None):
    """Gives up one step, goes on to the end, and returns the steps and the bits."""
    group = os.environ["TEST_GROUP"]
    with potluck.join(open_lan=group, loopback=True, members=2) as cluster:
        model = nn.Linear(8, 1)
        ddp = ElasticDDP(model, torch.optim.SGD(model.parameters(), lr=0.1), cluster, timeout=60)
        while ddp.steps < steps:
            try:
                with ddp.step():
                    ddp(torch.ones(4, 8)).sum().backward()
                    if ddp.steps == stumbles_at:
                        stumbles_at = None
                        raise ValueError("a fault in the program")
            except ValueError:
                pass
        bits = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
        return [ddp.steps, bits.hexdigest()]


def test_a_step_that_one_gives_up_is_made_again(group):
    members = group.start(stumbler, steps=20) + group.start(stumbler, steps=20, stumbles_at=5)
    one, other = [member.returned() for member in members]
    assert one == other and one[0] == 20
