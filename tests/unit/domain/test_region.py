import dataclasses

import pytest

from tests.records import a_region


def test_a_region_without_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match="region 'r0' holds no node"):
        dataclasses.replace(a_region("r0"), nodes=())


def test_regions_are_values() -> None:
    assert a_region("r0") == a_region("r0")
    with pytest.raises(dataclasses.FrozenInstanceError):
        a_region("r0").work = 1.0  # type: ignore[misc]
