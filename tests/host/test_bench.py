"""`fumehood bench`: that it runs, what it names, and how its sums are made. No figure is judged here."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import shutil
from typing import Any

import pytest

from fumehood._bench import Load, NotRun, Options, Report, Row, Section, isolate, present
from fumehood._bench._areas import AREAS, WHOLE, measuring, run_figures
from fumehood._bench._measure import Base, interleaved, opened, under_load
from fumehood._bench._model import load_ratios, percentile, with_ratios
from fumehood._bench._peers import WHERE_FROM, working
from fumehood.policies.errors import HostError
from tests.host.cli import Cli
from tests.tree import ROOT
from tests.users import PYTHON, run_as_user, user_folder

_OURS = ["fumehood, spare", "fumehood, on demand", "fumehood, on demand, own network"]


def _rows(section: dict[str, Any]) -> list[str]:
    for row in section["rows"]:
        assert set(row) == {"contestant", "what", "fresh", "isolated", "n", "p50_us", "p99_us", "ratio"}
        assert 0 < row["p50_us"] <= row["p99_us"]
        assert (row["n"], row["ratio"] is None or row["ratio"] > 0) == (3, True)
    return [row["contestant"] for row in section["rows"]]


@pytest.fixture(scope="module")
def quick() -> dict[str, Any]:
    """One run of everything that is quick, as the command line prints it."""
    from fumehood._bench import Options, run_area

    said: list[str] = []
    report = asyncio.run(run_area("isolate", Options(rounds=100, quick=True, say=said.append)))
    assert [line for line in said if not line.startswith(" ")] == list(isolate.SECTION_NAMES)
    whole: dict[str, Any] = json.loads(json.dumps(report.to_json()))
    return whole


def test_every_contestant_that_is_installed_is_measured_and_every_other_is_named(
    quick: dict[str, Any],
) -> None:
    sections = {section["name"]: section for section in quick["sections"]}
    assert list(sections) == list(isolate.SECTION_NAMES)
    absent = {peer["contestant"]: peer["remedy"] for peer in sections["python"]["not_run"]}
    for name, (command, remedy) in WHERE_FROM.items():
        if shutil.which(command) is None:
            assert absent[name] == remedy
        else:
            assert name not in absent or absent[name].startswith("installed, but ")

    def here(*names: str) -> list[str]:
        return [name for name in names if name not in absent]

    assert _rows(sections["python"]) == here(
        *_OURS, "plain fork", "fumehood, kept", "subprocess", "bubblewrap", "multiprocessing.Pool",
        "ProcessPoolExecutor", "multiprocessing.Process", "firejail", "sandbox-runtime",
    )  # fmt: skip
    assert _rows(sections["libraries"]) == here(*_OURS, "plain fork", "subprocess", "bubblewrap")
    for name in ("zygote-30", "zygote-200"):
        assert _rows(sections[name]) == [*_OURS, "plain fork"]
    assert _rows(sections["command"]) == here(*_OURS[:2], "subprocess", "bubblewrap")
    assert _rows(sections["kill"]) == ["fumehood, killed", "subprocess, killed"]
    assert _rows(sections["host"]) == ["Host.call, spare", "one row, flushed"]
    assert [(load["callers"], load["contestant"]) for load in sections["throughput"]["loads"]] == [
        (callers, name) for callers in (1, 2, 8, 32) for name in here(*_OURS[:2], "subprocess", "bubblewrap")
    ]


@pytest.mark.anyio
async def test_a_peer_that_is_installed_and_fails_is_named_with_what_it_said() -> None:
    class Failing(Base):
        async def once(self) -> None:
            raise HostError("no user namespaces")

    class Fine(Base):
        async def once(self) -> None:
            return None

    fine = Fine("plain fork", "", fresh=True, isolated=False)
    failing = Failing("bubblewrap", "", fresh=True, isolated=True)
    assert await working([fine, failing]) == (
        [fine], [NotRun("bubblewrap", "installed, but no user namespaces")],
    )  # fmt: skip


def test_rows_say_which_processes_are_fresh_and_which_have_walls(quick: dict[str, Any]) -> None:
    python = next(section for section in quick["sections"] if section["name"] == "python")
    told = {row["contestant"]: (row["fresh"], row["isolated"]) for row in python["rows"]}
    assert {name: told[name] for name in _OURS} == dict.fromkeys(_OURS, (True, True))
    assert (told["fumehood, kept"], told["plain fork"], told["multiprocessing.Pool"]) == (
        (False, True), (True, False), (False, False),
    )  # fmt: skip


def test_load_memory_and_endurance_have_their_figures(quick: dict[str, Any]) -> None:
    sections = {section["name"]: section for section in quick["sections"]}
    for load in sections["throughput"]["loads"]:
        assert set(load) == {"contestant", "callers", "n", "per_s", "p50_us", "p99_us", "ratio"}
        assert load["n"] >= load["callers"] and load["per_s"] > 0
    assert [figure["name"] for figure in sections["endurance"]["figures"]] == [
        "calls", "first tenth", "last tenth", "last over first",
    ]  # fmt: skip
    memory = {figure["name"]: figure["unit"] for figure in sections["memory"]["figures"]}
    # Where the kernel lets nobody look at another user namespace's memory there is nothing to tell.
    assert memory in ({"no-op tool": "MB", "httpx and pydantic preloaded": "MB"}, {})


def test_every_target_is_judged_and_the_machine_is_told(quick: dict[str, Any]) -> None:
    assert set(quick) == {
        "area", "machine", "rounds", "load_before", "load_after", "sections", "targets",
    }  # fmt: skip
    assert set(quick["machine"]) == {
        "fumehood", "python", "kernel", "architecture", "cpus", "root", "tier",
    }  # fmt: skip
    assert (quick["area"], quick["rounds"]) == ("isolate", 3)
    assert len(quick["load_before"]) == len(quick["load_after"]) == 3
    judged = {aim["name"]: aim for aim in quick["targets"]}
    assert list(judged) == [aim.name for aim in isolate.TARGETS]
    for aim in judged.values():
        assert set(aim) == {"name", "target", "measured", "met"}
        unmeasured = "bubblewrap" in aim["name"] or "private MB" in aim["name"]
        assert unmeasured or (aim["met"] in (True, False) and aim["measured"] is not None), aim


def test_a_target_without_its_section_is_not_judged() -> None:
    assert {(aim.measured, aim.met) for aim in (isolate._judge(aim, {}) for aim in isolate.TARGETS)} == {
        (None, None)
    }


def test_a_target_is_met_on_its_bound_and_missed_beyond() -> None:
    def judged(kept: float) -> tuple[str, float | None, bool | None]:
        rows = tuple(
            Row(name, "", True, True, 3, p50, p50)
            for name, p50 in (("fumehood, spare", 130.0), ("fumehood, kept", kept))
        )
        aim = isolate._judge(isolate.TARGETS[0], {"python": Section("python", "", rows=rows)})
        return aim.target, aim.measured, aim.met

    assert judged(100.0) == ("<= 1.3", 1.3, True)
    assert judged(99.0) == ("<= 1.3", 1.313, False)


@pytest.mark.anyio
async def test_contestants_are_called_once_a_round_in_rotating_order() -> None:
    called: list[str] = []

    class Named(Base):
        async def once(self) -> float:
            called.append(self.name)
            return len(called) / 1e6

        async def close(self) -> None:
            called.append(f"close {self.name}")

    contestants = [Named(name, "", fresh=True, isolated=False) for name in "abc"]
    async with opened(contestants):
        rows = await interleaved(contestants, 2)
    assert "".join(called[:12]) == "abcbcacababc"
    assert called[12:] == ["close c", "close b", "close a"]
    assert rows == (
        Row("a", "", True, False, 2, 8.0, 10.0), Row("b", "", True, False, 2, 9.0, 11.0),
        Row("c", "", True, False, 2, 7.0, 12.0),
    )  # fmt: skip


@pytest.mark.anyio
async def test_callers_of_a_closed_loop_wait_for_their_own_call_alone() -> None:
    running: set[int] = set()
    most: list[int] = []

    class Slow(Base):
        async def once(self) -> None:
            number = len(most)
            running.add(number)
            most.append(len(running))
            await asyncio.sleep(0)
            running.discard(number)

    (load,) = await under_load([Slow("slow", "", fresh=True, isolated=True)], 4, 0.0, 1)
    assert (load.contestant, load.callers, load.n, max(most)) == ("slow", 4, 4, 4)


def test_ratios_refer_to_the_baseline_of_the_same_section() -> None:
    rows = [Row(name, "", True, True, 1, p50, p50) for name, p50 in (("a", 50.0), ("b", 200.0))]
    assert [row.ratio for row in with_ratios(rows, "b")] == [0.25, None]
    assert [row.ratio for row in with_ratios(rows, "absent")] == [None, None]
    loads = [Load(name, callers, 1, rate, 1.0, 1.0) for name, callers, rate in
             (("a", 1, 100.0), ("b", 1, 10.0), ("a", 2, 90.0))]  # fmt: skip
    assert [load.ratio for load in load_ratios(loads, "b")] == [10.0, None, None]


@pytest.mark.parametrize(("share", "value"), [(0.0, 1.0), (0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (1.0, 4.0)])
def test_a_percentile_is_a_value_that_was_measured(share: float, value: float) -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == value


# -- the command line ----------------------------------------------------------------------------------------


def test_an_area_is_offered_when_its_part_has_a_benchmark() -> None:
    assert present() == [area for area in AREAS if area == "isolate" or (ROOT / area / "_bench.py").exists()]


@pytest.mark.parametrize(("rounds", "each"), [(100, 3), (2, 2)])
def test_a_quick_run_makes_three_rounds_and_says_so(rounds: int, each: int) -> None:
    from fumehood._bench._render import noise

    taken: list[tuple[int, bool]] = []

    def run(rounds: int = 100, quick: bool = False) -> dict[str, dict[str, int]]:
        taken.append((rounds, quick))
        return {"figures": {"a": 1}}

    def own(quick: bool = False) -> dict[str, dict[str, int]]:
        taken.append((0, quick))
        return {"figures": {"a": 1}}

    said = []
    for measured in (run, own):
        report = asyncio.run(
            run_figures("broker", measured, Options(rounds=rounds, quick=True, say=lambda line: None))
        )
        said.append((report.rounds, noise(report).partition("Linux")[0]))
    assert taken == [(each, True), (0, True)]
    assert said == [(each, f"{each} rounds; "), (None, "")]


def test_every_area_that_is_offered_can_be_run() -> None:
    for area in present():
        assert area in WHOLE or callable(measuring(area))


def test_json_is_one_object_with_a_report_for_each_area(cli: Cli) -> None:
    done = cli("bench", "isolate", "--quick", "--only", "kill", "--format", "json", "--quiet")
    assert (done.code, done.err) == (0, "")
    assert list(done.json) == ["areas"]
    report = done.json["areas"]["isolate"]
    assert [section["name"] for section in report["sections"]] == ["kill"]


def test_text_has_a_table_a_section_the_targets_and_how_quiet_the_machine_was(cli: Cli) -> None:
    done = cli("bench", "--quick", "--only", "kill", width=120)
    assert (done.code, done.err) == (0, "kill\n")
    lines = done.out.splitlines()
    assert lines[0] == "SIGKILL to reaped"
    assert lines[1].split("  ")[:2] == ["p50 us", "p99 us"]
    assert any(line.endswith("subprocess, killed (sleep, no walls)") for line in lines)
    assert any(line.startswith("<= 1.3") and "not run" in line for line in lines)
    assert lines[-1].startswith("3 rounds; Linux ") and "; load before " in lines[-1]


def test_an_area_or_section_that_is_not_there_is_a_usage_error(cli: Cli) -> None:
    assert cli("bench", "nothing").code == 2
    assert cli("bench", "--only", "nothing").code == 2


def test_an_ordinary_user_gets_the_same_sections() -> None:
    with user_folder() as folder:
        done = run_as_user(
            [PYTHON, "-m", "fumehood", "bench", "--quick", "--quiet", "--format", "json", "--only", "python",
             "--only", "memory"],
            env={"HOME": str(folder), "TMPDIR": str(folder)}, cwd=folder, timeout=300,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)["areas"]["isolate"]
    assert report["machine"]["root"] is False
    assert _rows(report["sections"][0])[: len(_OURS)] == _OURS


def test_the_page_is_filled_from_a_report() -> None:
    spec = importlib.util.spec_from_file_location("bench_docs", ROOT / "scripts/bench_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    filled = module.filled
    row = Row("fumehood, spare", "small zygote", True, True, 60, 1234.6, 2000.0, 0.013)
    section = Section("python", "Python tool", "bubblewrap", rows=(row,))
    report = Report("isolate", {"kernel": "6.1", "cpus": 2, "python": "3.11", "root": True}, 60,
                    (0.1, 0, 0), (0.2, 0, 0), (section,))  # fmt: skip
    page = "before\n<!-- bench:isolate -->\nold\n<!-- /bench:isolate -->\nafter\n"
    text = filled(page, {"isolate": report.to_json()})
    assert text.startswith("before\n<!-- bench:isolate -->\n")
    assert text.endswith("<!-- /bench:isolate -->\nafter\n")
    assert "| fumehood, spare (small zygote) | yes | yes | 1 235 | 2 000 | 0.013 |" in text
    assert "old" not in text
    assert filled(text, {"isolate": report.to_json()}) == text


def test_a_figure_has_three_digits_that_mean_something_and_no_exponent() -> None:
    from fumehood._bench._render import ratio

    figures = (None, 0.01234, 1.0, 12.345, 999.4, 1938.4, 1234567.0)
    assert [ratio(figure) for figure in figures] == ["", "0.0123", "1", "12.3", "999", "1,938", "1,234,567"]
