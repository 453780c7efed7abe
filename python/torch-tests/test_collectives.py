"""Each call of a process group of three."""

import pytest
from collectives import CHECKS, every_check


@pytest.fixture(scope="module")
def told(group_of_module):
    return group_of_module.run(every_check, 3)


@pytest.mark.parametrize("name", CHECKS)
def test_call(told, name):
    failures = [of_rank[name] for of_rank in told if of_rank[name]]
    assert not failures, "\n".join(failures)
