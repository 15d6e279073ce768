"""The catalogue of abuse, row by row: each attack run by a real child in every set-up, and outside as its own
control.

Set-ups: root, an ordinary user, and both with a wall taken away (seccomp allows everything; Landlock is not
there; no namespaces, which is the tier `landlock`). What is expected stands beside each attack in
`attacks/*.py`; the number in a test's id is the row.
"""

from __future__ import annotations

import pytest

from tests.isolate.attacks._model import Case
from tests.isolate.runner import all_cases
from tests.isolate.setups import ROOTLESS, RUNNABLE, compare, results

CASES = {name: case for name, (_, case) in all_cases().items()}

NOT_ROWS_OF_ISOLATE = {
    68: "no part of this version speaks MCP to a server: there is no tool list that could change",
    69: "no part of this version speaks MCP to a server: there is no stdio that could be noisy",
}


def _rows(*, control: bool = False) -> list[object]:
    setups = [""] if control else RUNNABLE
    return [
        pytest.param(setup, case, id=f"{setup}-{name}".lstrip("-"))
        for setup in setups
        for name, case in CASES.items()
        if (not case.no_control if control else case.runs_in(setup)) and not name.startswith("I")
    ]


@pytest.mark.promise("isolate:attacks-are-answered")
@pytest.mark.parametrize(("setup", "case"), _rows())
def test_an_attack_gets_the_answer_of_its_row(setup: str, case: Case) -> None:
    compare(case.expected(setup), results(setup)[case.id])


@pytest.mark.promise("isolate:attacks-are-answered")
@pytest.mark.parametrize(("setup", "case"), [] if ROOTLESS else _rows(control=True))
def test_the_same_attack_succeeds_without_the_cage(setup: str, case: Case) -> None:
    compare(case.control, results("control")[case.id])


def test_every_row_of_the_catalogue_is_here_or_says_why_not() -> None:
    rows = {int(case.row) for case in CASES.values() if case.row.isdigit()}
    assert sorted(rows | set(NOT_ROWS_OF_ISOLATE)) == list(range(1, 79))
    assert rows & set(NOT_ROWS_OF_ISOLATE) == set()


def test_every_attack_names_the_wall_that_answers_first() -> None:
    assert [case.id for case in CASES.values() if not case.first] == []


_REFUSED_CALLS = {
    "4-memory-of-others": {
        "ptrace": 2,
        "process_vm_readv": 2,
        "pidfd_getfd": 1,
        "kcmp": 1,
        "process_madvise": 1,
    },
    "12-keyring": {"keyctl": 2, "add_key": 1, "request_key": 1},
    "13-kernel-log-perf-bpf": {"syslog": 1, "perf_event_open": 1, "bpf": 1},
    "22-file-handles": {"name_to_handle_at": 2, "open_by_handle_at": 1, "fanotify_init": 1},
    "25-userfaultfd-secret-splice": {"userfaultfd": 2, "memfd_secret": 1, "vmsplice": 1},
}


@pytest.mark.promise("isolate:refused-calls-are-named")
@pytest.mark.parametrize("setup", [setup for setup in RUNNABLE if "without" not in setup])
@pytest.mark.parametrize("name", sorted(_REFUSED_CALLS))
def test_refused_system_calls_are_named_and_counted(setup: str, name: str) -> None:
    assert results(setup)[name]["violations"] == _REFUSED_CALLS[name]


@pytest.mark.promise("isolate:refused-calls-are-named")
@pytest.mark.parametrize("setup", [setup for setup in RUNNABLE if "without" not in setup])
def test_an_honest_call_names_no_violation(setup: str) -> None:
    assert results(setup)["74-interpreter-state"].get("violations", {}) == {}
