"""Groups of processes on the loopback interface that call the package itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Group

MEMBER = str(Path(__file__).parent / "member.py")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    group = Group(tmp_path, "-X", "dev", "-W", "error", MEMBER)
    yield group
    group.close()
