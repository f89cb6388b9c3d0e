import platform
import subprocess
from pathlib import Path

import pytest

from autoquant.runtime.machine import container_files, read_machine, usable_processors

CPUINFO = """processor\t: 0
cpu family\t: 6
model\t\t: 143
model name\t: Imaginary 9000
cpu MHz\t\t: 2100.5
flags\t\t: fpu avx2 hypervisor

processor\t: 1
cpu family\t: 6
model\t\t: 143
model name\t: Imaginary 9000
cpu MHz\t\t: 2100.5
flags\t\t: fpu avx2 hypervisor
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return written(tmp_path / "proc", {"cpuinfo": CPUINFO, "self/cgroup": "0::/pod/box\n"})


def written(root: Path, files: dict[str, str]) -> Path:
    root.mkdir(exist_ok=True)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_the_processor_is_read(proc: Path, tmp_path: Path) -> None:
    found = read_machine(proc, tmp_path / "nowhere")
    assert found.cpu == "Imaginary 9000 (family 6, model 143)"
    assert found.flags == {"fpu", "avx2", "hypervisor"}
    assert (found.is_virtual, found.current_mhz, found.max_mhz) == (True, 2100.5, None)
    assert (found.governor, found.container_cpus, found.container_memory_mb) == (None, None, None)


def test_processors_of_arm_are_told_apart(tmp_path: Path) -> None:
    text = "CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: {}\n"
    cpus = {part: written(tmp_path / part, {"cpuinfo": text.format(part)}) for part in ("0xd40", "0xd4f")}
    found = [read_machine(proc, tmp_path / "nowhere").cpu for proc in cpus.values()]
    assert found == [f"{platform.machine()} (implementer 0x41, variant 0x1, part {part})" for part in cpus]


@pytest.mark.parametrize("answers", [True, False])
def test_processors_of_macs_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    def run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        assert command[1:] == ["-n", "machdep.cpu.brand_string"]
        if not answers:
            raise FileNotFoundError(command[0])
        return subprocess.CompletedProcess(command, 0, stdout="Apple M9 Pro\n")

    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    monkeypatch.setattr(subprocess, "run", run)
    assert read_machine(tmp_path, tmp_path).cpu == ("Apple M9 Pro" if answers else "arm")


def test_clock_rates_and_their_governor_are_read_where_there_are_some(proc: Path, tmp_path: Path) -> None:
    folder = "devices/system/cpu/cpu0/cpufreq"
    files = {"scaling_cur_freq": "1800000\n", "scaling_max_freq": "3600000\n", "scaling_governor": "powersave\n"}
    system = written(tmp_path / "sys", {f"{folder}/{name}": text for name, text in files.items()})
    found = read_machine(proc, system)
    assert (found.governor, found.current_mhz, found.max_mhz) == ("powersave", 1800, 3600)


@pytest.mark.parametrize("folder", ["", "pod/", "pod/box/"])
def test_limits_of_a_container_are_read_from_its_own_group_and_from_those_around_it(
    proc: Path, tmp_path: Path, folder: str
) -> None:
    files = {"cpu.max": "150000 100000\n", "memory.max": f"{512 << 20}\n"}
    system = written(tmp_path / "sys", {f"fs/cgroup/{folder}{name}": text for name, text in files.items()})
    found = read_machine(proc, system)
    assert (found.container_cpus, found.container_memory_mb) == (1.5, 512)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_the_least_limit_of_all_groups_holds(proc: Path, tmp_path: Path, order: tuple[int, ...]) -> None:
    files = {}
    for folder, k in zip(("", "pod/", "pod/box/"), order, strict=True):
        files[f"fs/cgroup/{folder}cpu.max"] = f"{(k + 1) * 150000} 100000\n"
        files[f"fs/cgroup/{folder}memory.max"] = f"{(k + 1) * 512 << 20}\n"
    found = read_machine(proc, written(tmp_path / "sys", files))
    assert (found.container_cpus, found.container_memory_mb) == (1.5, 512)


def test_a_container_without_limits_has_none(proc: Path, tmp_path: Path) -> None:
    system = written(tmp_path / "sys", {"fs/cgroup/cpu.max": "max 100000\n", "fs/cgroup/memory.max": "max\n"})
    found = read_machine(proc, system)
    assert (found.container_cpus, found.container_memory_mb) == (None, None)


@pytest.mark.parametrize(
    ("quota", "memory", "expected"), [("50000", 1 << 30, (0.5, 1024)), ("-1", 1 << 62, (None,) * 2)]
)
def test_the_first_version_of_control_groups_is_read_too(
    tmp_path: Path, quota: str, memory: int, expected: tuple[float | None, int | None]
) -> None:
    proc = written(tmp_path / "proc", {"self/cgroup": "4:memory:/box\n1:cpu,cpuacct:/\n0::/\n"})
    files = {
        "cpu,cpuacct/cpu.cfs_quota_us": quota,
        "cpu,cpuacct/cpu.cfs_period_us": "100000",
        "memory/box/memory.limit_in_bytes": str(memory),
    }
    system = written(tmp_path / "sys", {f"fs/cgroup/{name}": text for name, text in files.items()})
    found = read_machine(proc, system)
    assert (found.container_cpus, found.container_memory_mb) == expected


def test_a_system_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    found = read_machine(tmp_path, tmp_path)
    assert found.flags == frozenset()
    assert found.is_virtual is None
    assert container_files(("cpu",), "cpu.stat", tmp_path, tmp_path) == []


def test_processors_are_numbered() -> None:
    assert usable_processors() == tuple(sorted(set(usable_processors())))
    assert usable_processors()
