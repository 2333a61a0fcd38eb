#!/usr/bin/env python3
"""Runs a command inside a memory control group of its own and tells the group's peak.

    limited.py LIMIT_BYTES COMMAND...      the peak goes to stderr as "peak N"

Works with control groups v1 and v2; needs root. The peak counts everything that the kernel charges to the group,
page cache included.
"""
import os
import subprocess
import sys


class Group:
    """A fresh group below this process's own, removed when it closes."""

    def __init__(self, limit):
        v1 = "/sys/fs/cgroup/memory"
        name = f"moewe-compare-{os.getpid()}"
        self.v1 = os.path.isdir(v1)
        if self.v1:
            own = next((line.split(":", 2)[2].strip() for line in open("/proc/self/cgroup")
                        if line.split(":")[1] == "memory"), "/")
            self.path = os.path.join(v1, own.lstrip("/"), name)
            self.limit_file, self.peak_file = "memory.limit_in_bytes", "memory.max_usage_in_bytes"
        else:
            self.path = os.path.join("/sys/fs/cgroup", name)
            self.limit_file, self.peak_file = "memory.max", "memory.peak"
        os.mkdir(self.path)
        self._write(self.limit_file, str(limit))
        if not self.v1:
            self._write("memory.swap.max", "0")

    def _write(self, name, text):
        with open(os.path.join(self.path, name), "w") as file:
            file.write(text)

    def enter(self):
        """For the child, between fork and exec."""
        self._write("cgroup.procs", str(os.getpid()))

    def peak(self):
        with open(os.path.join(self.path, self.peak_file)) as file:
            return int(file.read())

    def close(self):
        os.rmdir(self.path)


def run(limit, command, **options):
    """subprocess.run inside a new group of `limit` bytes; gives (result, peak bytes)."""
    group = Group(limit)
    try:
        result = subprocess.run(command, preexec_fn=group.enter, **options)
        return result, group.peak()
    finally:
        group.close()


def drop_cached_pages(*paths):
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    result, peak = run(int(sys.argv[1]), sys.argv[2:])
    print(f"peak {peak}", file=sys.stderr)
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
