"""Memory of a process, as Linux tells of it."""

__all__ = ["kilobytes_in"]


def kilobytes_in(status: str, name: str) -> int:
    """One of the sizes in ``/proc/self/status``, see proc(5).

    >>> kilobytes_in("VmRSS: 10240 kB", "VmRSS")
    10240

    Raises:
        LookupError: It is not told.
    """
    for line in status.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise LookupError(name)
