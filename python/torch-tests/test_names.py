"""Names of groups, which have to have numbers of their own."""

import pytest
from potluck.torch._names import Names


def test_two_names_with_one_number_are_refused():
    names = Names()
    assert names.number("plumless") == names.number("plumless") != names.number("gnu")
    # Known for their CRC-32.
    with pytest.raises(RuntimeError, match="'buckeroo' and 'plumless' have the same number"):
        names.number("buckeroo")
