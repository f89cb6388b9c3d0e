from autoquant.isolation.limits import available_memory_bytes


def test_what_is_available_is_a_size_or_unknown() -> None:
    found = available_memory_bytes()
    assert found is None or found > 10**7
