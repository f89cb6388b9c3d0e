import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these limits")

MB = 1_000_000
ALLOCATES = """
def can_have(n_bytes):
    try:
        return len(bytearray(n_bytes)) == n_bytes
    except MemoryError:
        return False
"""


def said_by(code: str) -> list[str]:
    """What a process of its own prints, which loads nothing but the limits."""
    imported = "import resource\nfrom autoquant.isolation.limits import *\n"
    found = subprocess.run(
        [sys.executable, "-c", imported + code], stdout=subprocess.PIPE, check=True, text=True, timeout=60
    )
    return found.stdout.split()


def test_so_much_more_can_be_allocated_and_what_goes_beyond_fails_alone() -> None:
    code = f"""{ALLOCATES}
before = bytearray({200 * MB})
limit_memory({100 * MB})
print(can_have({60 * MB}), can_have({150 * MB}), can_have({60 * MB}))
"""
    assert said_by(code) == ["True", "False", "True"]


def test_a_limit_that_cannot_be_raised_stays() -> None:
    code = f"""{ALLOCATES}
resource.setrlimit(resource.RLIMIT_DATA, ({300 * MB}, {300 * MB}))
limit_memory({10**6 * MB})
print(*resource.getrlimit(resource.RLIMIT_DATA), can_have({400 * MB}))
"""
    assert said_by(code) == [str(300 * MB), str(300 * MB), "False"]


def test_a_soft_limit_can_be_set_again() -> None:
    code = f"""{ALLOCATES}
hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
limit_memory({10 * MB})
limit_memory({200 * MB})
print(can_have({100 * MB}), resource.getrlimit(resource.RLIMIT_DATA)[1] == hard)
"""
    assert said_by(code) == ["True", "True"]


WAITS = """
import sys, time
from autoquant.isolation.limits import die_with_parent
die_with_parent()
print("waits", file=sys.stderr, flush=True)
time.sleep(30)
print("left behind")
"""
"""Ends by itself in any case."""


def test_a_process_ends_with_its_parent_however_that_ends() -> None:
    """Both write here: nothing more can come once both are gone."""
    code = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stderr=subprocess.PIPE)
assert child.stderr.readline() == b"waits\\n"
os.kill(os.getpid(), 9)
"""
    ended = subprocess.run([sys.executable, "-c", code, WAITS], stdout=subprocess.PIPE, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (-9, b"")
