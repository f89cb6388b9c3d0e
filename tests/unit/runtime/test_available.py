from pathlib import Path

import pytest

from autoquant.runtime.available import available_memory_bytes

MEBI = 1 << 20
MEMINFO = f"MemTotal: 99 kB\nMemAvailable: {4096 * 1024} kB\n"
SECOND = ("0::/pod/box\n", "", "memory.max", "memory.current", "")
FIRST = ("4:memory:/pod/box\n", "memory/", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_of_this_machine_it_is_a_size_where_that_is_told() -> None:
    found = available_memory_bytes()
    assert (found is not None) is Path("/proc/meminfo").exists()
    assert found is None or found > 10**7


def test_where_nobody_tells_it_is_unknown(tmp_path: Path) -> None:
    assert available_memory_bytes(tmp_path, tmp_path) is None


@pytest.mark.parametrize("version", [FIRST, SECOND], ids=["v1", "v2"])
@pytest.mark.parametrize("group", ["", "pod/", "pod/box/"])
def test_cached_files_count_as_free_within_the_limit_of_a_container(
    tmp_path: Path, version: tuple[str, str, str, str, str], group: str
) -> None:
    line, controller, most, used, prefix = version
    proc = written(tmp_path / "proc", {"meminfo": MEMINFO, "self/cgroup": line})
    folder = f"fs/cgroup/{controller}{group}"
    counters = f"{prefix}inactive_file {500 * MEBI}\n{prefix}active_file {200 * MEBI}\nshmem 1\n"
    values = {most: f"{1024 * MEBI}\n", used: f"{1000 * MEBI}\n", "memory.stat": counters}
    system = written(tmp_path / "sys", {f"{folder}{name}": text for name, text in values.items()})
    assert available_memory_bytes(proc, system) == 724 * MEBI


@pytest.mark.parametrize("limit", ["max\n", f"{9223372036854771712}\n"])
def test_without_a_limit_it_is_what_the_system_has(tmp_path: Path, limit: str) -> None:
    proc = written(tmp_path / "proc", {"meminfo": MEMINFO, "self/cgroup": SECOND[0]})
    values = {"memory.max": limit, "memory.current": "5\n", "memory.stat": "inactive_file 0\nactive_file 0\n"}
    system = written(tmp_path / "sys", {f"fs/cgroup/{name}": text for name, text in values.items()})
    assert available_memory_bytes(proc, system) == 4096 * MEBI
