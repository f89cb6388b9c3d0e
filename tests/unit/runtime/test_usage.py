import os
from pathlib import Path

import pytest

from autoquant.runtime.machine import usable_processors
from autoquant.runtime.usage import read_usage

TICKS = os.sysconf("SC_CLK_TCK")


def process(seconds: int, ended_children: int = 0) -> str:
    """A line of ``/proc/PID/stat`` whose command is named to confuse."""
    ticks = f"{seconds * TICKS} 0 {ended_children * TICKS} 0"
    return f"7 (a ) 1 2 b) S 1 7 7 0 -1 0 0 0 0 0 {ticks} 20 0 1 0 0\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """Each processor was busy for 1 + 2 + 3 + 5 + 6 seconds, and 4 were stolen; 7 started 8, which started 9."""
    cells = " ".join(str(seconds * TICKS) for seconds in (1, 2, 3, 100, 50, 5, 6, 4, 1, 2))
    numbers = [*usable_processors(), 4242]
    files = {
        "stat": f"cpu {cells}\n" + "".join(f"cpu{n} {cells}\n" for n in numbers) + "intr 1\n",
        "loadavg": "1.50 1.20 1.00 2/300 7\n",
        "self/cgroup": "0::/box\n",
        "7/stat": process(10, ended_children=20),
        "7/task/7/children": "8 ",
        "8/stat": process(3),
        "8/task/8/children": "9 10",
        "9/stat": process(4),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_counters_of_the_usable_processors_and_of_the_tree_of_processes(proc: Path) -> None:
    found = read_usage(proc, proc, pid=7)
    assert found is not None
    n = len(usable_processors())
    assert found.n_processors == n
    assert (found.busy_s, found.stolen_s) == (17 * n, 4 * n)
    assert found.own_s == 10 + 20 + 3 + 4
    assert (found.n_throttled, found.throttled_s, found.load) == (0, 0, 1.5)


@pytest.mark.parametrize(
    ("group", "file", "line", "seconds"),
    [
        ("0::/box", "box/cpu.stat", "throttled_usec 1500000", 1.5),
        ("0::/box", "cpu.stat", "throttled_usec 1500000", 1.5),
        ("3:cpu,cpuacct:/", "cpu,cpuacct/cpu.stat", "throttled_time 2500000000", 2.5),
    ],
)
def test_throttling_is_read_from_both_versions_of_control_groups(
    proc: Path, group: str, file: str, line: str, seconds: float
) -> None:
    (proc / "self/cgroup").write_text(f"{group}\n")
    place = proc / "fs/cgroup" / file
    place.parent.mkdir(parents=True)
    place.write_text(f"nr_periods 9\nnr_throttled 3\n{line}\n")
    found = read_usage(proc, proc, pid=7)
    assert found is not None
    assert (found.n_throttled, found.throttled_s) == (3, seconds)


def test_a_system_without_counters_has_none(tmp_path: Path, proc: Path) -> None:
    assert read_usage(tmp_path / "nowhere", tmp_path, pid=7) is None
    (proc / "stat").write_text(f"cpu{usable_processors()[0]} what\n")
    assert read_usage(proc, proc, pid=7) is None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
def test_this_machine_counts_upwards() -> None:
    first, second = read_usage(), read_usage()
    assert first is not None
    assert second is not None
    assert second.wall_s > first.wall_s
    assert second.own_s >= first.own_s
    assert second.busy_s >= first.busy_s
