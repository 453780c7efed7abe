"""Groups of processes on the loopback interface that are ranks of PyTorch."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from processes import Group


def ranks(home: Path) -> Group:
    group = Group(home, str(HERE / "rank.py"))
    group.environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    # Transformers asks no host for anything.
    group.environment |= {"HF_HUB_OFFLINE": "1"}
    return group


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    group = ranks(tmp_path)
    yield group
    group.close()


@pytest.fixture(scope="module")
def group_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """A group whose results several tests look at."""
    group = ranks(tmp_path_factory.mktemp("home"))
    yield group
    group.close()
