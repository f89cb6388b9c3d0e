import io

import numpy as np
import pytest

from autoquant.domain.written import is_npy


def test_an_npy_is_told_from_an_npz() -> None:
    one, several, none = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(one, np.arange(3))
    np.savez(several, x=np.arange(3))
    np.savez(none)
    for file in (one, several, none):
        file.seek(0)
    assert is_npy(one)
    assert not is_npy(several)
    assert not is_npy(none)
    assert one.tell() == several.tell() == none.tell() == 0


@pytest.mark.parametrize("content", [b"", b"1,2,3\n", b"\x80\x04K\x01.", b"PK,age\n"])
def test_what_is_neither_is_no_pickle(content: bytes) -> None:
    with pytest.raises(ValueError, match="it holds something else"):
        is_npy(io.BytesIO(content))
