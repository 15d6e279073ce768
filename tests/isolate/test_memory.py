"""What a zygote's memory looks like when it is forked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HOLDS = """
import sys
from fumehood.isolate.child import _uapi_proc
table = [str(number) * 20 for number in range(200_000)]
if sys.argv[1] == "collapsed":
    _uapi_proc.collapse_memory()
assert table == [str(number) * 20 for number in range(200_000)]
huge = [line.split()[1] for line in open("/proc/self/smaps") if line.startswith("AnonHugePages:")]
print(sum(map(int, huge)) // 1024)
"""


def test_a_large_zygote_is_held_in_huge_pages_and_holds_the_same() -> None:
    """A fork copies its page table: 200 MB take 4 ms in small pages, 1.5 in huge ones."""

    def megabytes(way: str) -> int:
        done = subprocess.run([sys.executable, "-c", HOLDS, way], capture_output=True, check=True, text=True)
        return int(done.stdout)

    assert Path("/sys/kernel/mm/transparent_hugepage").is_dir(), "this kernel has no huge pages"
    assert megabytes("plain") == 0
    assert megabytes("collapsed") >= 10
