"""User ids of zygotes: never one that somebody else has, is given, or runs under."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from fumehood.isolate._slots import BLOCKS, Slots, free_of, gaps_of, ranges_of
from fumehood.policies.errors import SandboxUnavailable

FIRST, BEHIND = BLOCKS[0]


def slots(folder: Path, handed_out: str = "", uid_map: str = "0 0 4294967295\n") -> Slots:
    (folder / "locks").mkdir(mode=0o700, exist_ok=True)
    (folder / "subuid").write_text(handed_out, encoding="utf-8")
    (folder / "uid_map").write_text(uid_map, encoding="utf-8")
    return Slots(
        True,
        lock_file=str(folder / "locks" / "slots"),
        range_files=[str(folder / "subuid")],
        maps=[str(folder / "uid_map")],
    )


def all_but(kept: Sequence[int], block: tuple[int, int] = (FIRST, BEHIND)) -> str:
    """A file that hands out the whole block but for these."""
    edges = [block[0], *(edge for number in kept for edge in (number, number + 1)), block[1]]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return "".join(f"alice:{first}:{behind - first}\n" for first, behind in pairs)


OTHERS = "".join(f"bob:{first}:{behind - first}\n" for first, behind in BLOCKS[1:])


@pytest.mark.promise("isolate:ids-are-nobodys")
def test_two_hosts_of_one_process_never_have_one_id_and_a_given_back_one_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fumehood.isolate._slots._DRAWN", 2_000_000)
    handed_out = all_but([FIRST + 5, FIRST + 9]) + OTHERS
    one, other = slots(tmp_path, handed_out), slots(tmp_path, handed_out)
    first, second = one.take(), other.take()
    assert {first, second} == {FIRST + 5, FIRST + 9}
    monkeypatch.setattr("fumehood.isolate._slots._DRAWN", 20_000)
    with pytest.raises(SandboxUnavailable, match="no user id is free for a sandbox: 200000 to 259999,"):
        one.take()
    monkeypatch.setattr("fumehood.isolate._slots._DRAWN", 2_000_000)
    other.give_back(second)
    assert one.take() == second
    one.close()
    assert {other.take(), other.take()} == {first, second}
    other.close()


@pytest.mark.promise("isolate:ids-are-nobodys")
def test_a_host_of_another_process_counts_and_is_forgotten_when_it_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_out = all_but([FIRST + 7]) + OTHERS
    mine = slots(tmp_path, handed_out)
    taking = (
        "import sys\nfrom pathlib import Path\nfrom tests.isolate import test_slots\n"
        "from fumehood.isolate import _slots\n_slots._DRAWN = 2_000_000\n"
        "taken = test_slots.slots(Path(sys.argv[1]), sys.argv[2])\n"
        "print(taken.take(), flush=True)\nsys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", taking, str(tmp_path), handed_out],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other.stdout is not None
    assert int(other.stdout.readline()) == FIRST + 7
    monkeypatch.setattr("fumehood.isolate._slots._DRAWN", 200_000)
    with pytest.raises(SandboxUnavailable):
        mine.take()
    other.kill()
    other.communicate()
    monkeypatch.setattr("fumehood.isolate._slots._DRAWN", 2_000_000)
    assert mine.take() == FIRST + 7
    mine.close()


@pytest.mark.promise("isolate:ids-are-nobodys")
def test_an_id_with_an_account_a_group_or_a_process_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import grp
    import pwd

    monkeypatch.setattr("fumehood.isolate._slots._DRAWN", 50)
    user = pwd.getpwall()[-1].pw_uid
    group = next(entry.gr_gid for entry in grp.getgrall() if entry.gr_gid not in _users())
    for number in (user, group, os.getuid()):
        monkeypatch.setattr("fumehood.isolate._slots.BLOCKS", ((number, number + 1),))
        with pytest.raises(SandboxUnavailable, match=f"{number} to {number} are all handed out"):
            slots(tmp_path).take()
    monkeypatch.setattr("fumehood.isolate._slots.BLOCKS", ((FIRST, FIRST + 1),))  # the control
    assert slots(tmp_path).take() == FIRST


def _users() -> set[int]:
    import pwd

    return {entry.pw_uid for entry in pwd.getpwall()}


@pytest.mark.promise("isolate:ids-are-nobodys")
def test_what_is_handed_out_or_not_mapped_sends_to_the_next_block(tmp_path: Path) -> None:
    whole = f"alice:100000:65536\ncarol:165536:{BEHIND - 165536}\n"
    taken = slots(tmp_path, whole).take()
    small = slots(tmp_path, "", "0 100000 65536\n").take()
    assert taken is not None
    assert small is not None
    assert BLOCKS[1][0] <= taken < BLOCKS[1][1]
    assert BLOCKS[3][0] <= small < BLOCKS[3][1]


def test_ranges_and_maps_are_read_as_their_manuals_say_and_nonsense_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "subuid").write_text("a:1:2\n# x\n\nb:x:3\n1000:10:5\nc:7\nd:1:²\n", encoding="utf-8")
    (tmp_path / "map").write_text("         0     100000      65536\n     70000 1 10\n", encoding="utf-8")
    assert ranges_of([str(tmp_path / "subuid"), str(tmp_path / "none")]) == [(1, 3), (10, 15)]
    assert gaps_of(str(tmp_path / "map")) == [(0, 0), (65536, 70000), (70010, 1 << 32)]
    assert gaps_of(str(tmp_path / "none")) == []
    assert free_of([(0, 5), (3, 7), (20, 30)], (2, 25)) == 13
    assert free_of([], (2, 25)) == 23
    assert free_of([(0, 100)], (2, 25)) == 0


def test_a_folder_of_locks_that_others_may_change_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks").chmod(0o777)
    taken = slots(tmp_path)
    assert taken.take() is not None
    assert list((tmp_path / "locks").iterdir()) == []
    assert Slots(False).take() is None
