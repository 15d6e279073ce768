"""What the requirements ask of a cage, each shown by the attacks that try to break it: in the whole
cage, as root and as an ordinary user.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.isolate.runner import all_cases
from tests.isolate.setups import RUNNABLE, compare, results

CASES = {name: case for name, (_, case) in all_cases().items()}
WHOLE = [setup for setup in RUNNABLE if "without" not in setup]


def shown_by(*names: str) -> Callable[[Callable[[str, str], None]], pytest.MarkDecorator]:
    """Parametrise a test by set-up and case."""
    rows = [pytest.param(setup, name, id=f"{setup}-{name}") for setup in WHOLE for name in names]
    return pytest.mark.parametrize(("setup", "name"), rows)


def hold(setup: str, name: str) -> None:
    compare(CASES[name].expected(setup), results(setup)[name])


@pytest.mark.promise("isolate:env-exact")
@pytest.mark.requirement("R005")
@shown_by("2-own-environment", "1-host-environment")
def test_the_environment_is_the_declared_one_and_path(setup: str, name: str) -> None:
    hold(setup, name)


@pytest.mark.promise("isolate:fresh-child")
@pytest.mark.requirement("R006")
@shown_by(
    "11-credentials-of-another",
    "11-folder-of-a-neighbour",
    "12-keyring",
    "56-leftovers",
    "71-patched-modules",
    "78-generators",
)
def test_a_credential_and_a_state_are_one_calls_own(setup: str, name: str) -> None:
    hold(setup, name)


@pytest.mark.promise("isolate:the-view-is-what-was-granted")
@pytest.mark.requirement("R007")
@shown_by(
    "2-own-memory",
    "7-files-outside",
    "8-inherited-descriptors",
    "9-directory-descriptors",
    "37-path-sockets",
    "42-metadata-of-host-files",
)
def test_no_handle_and_no_file_of_the_host_crosses_the_border(setup: str, name: str) -> None:
    hold(setup, name)


@pytest.mark.promise("isolate:limits-hold")
@pytest.mark.requirement("R008")
@shown_by(
    "50-busy-loop",
    "50-holding-the-interpreter",
    "50-cpu-time",
    "51-deaf-to-signals",
    "51-stopped",
    "51-endless-destructor",
    "61-trickle",
)
def test_time_is_enforced_without_the_tools_help(setup: str, name: str) -> None:
    hold(setup, name)


@pytest.mark.promise("isolate:limits-hold")
@shown_by("44-fork-bomb", "45-many-pieces", "45-in-many-processes", "46-tmp-and-shared-memory", "47-disk",
          "48-inodes", "49-descriptors",
          "58-lines-without-end", "58-events-without-end", "I25-neighbours-at-sixty-percent",
          "I27-limits-up-and-down")  # fmt: skip
def test_every_other_limit_holds_and_says_its_name(setup: str, name: str) -> None:
    hold(setup, name)


@pytest.mark.promise("isolate:nothing-outlives-a-call")
@pytest.mark.requirement("R477")
@shown_by("44-fork-bomb-of-forks", "52-daemon", "I29-grandchild-on-the-pipe")
def test_no_grandchild_outlives_its_call(setup: str, name: str) -> None:
    hold(setup, name)


@pytest.mark.promise("isolate:no-byte-but-by-the-broker")
@pytest.mark.requirement("R011")
@shown_by(
    "14-host-loopback",
    "14-host-loopback-with-egress",
    "14-own-server",
    "35-other-sockets",
    "36-abstract-sockets",
    "37-path-sockets",
)
def test_no_byte_leaves_but_by_the_broker(setup: str, name: str) -> None:
    hold(setup, name)


@pytest.mark.promise("isolate:verdict-from-the-host")
@pytest.mark.requirement("R010")
@shown_by("67-order-of-many-threads", "60-forged-frames")
def test_events_come_in_order_and_before_the_result(setup: str, name: str) -> None:
    hold(setup, name)


@pytest.mark.promise("isolate:host-does-not-grow")
@pytest.mark.requirement("R478")
@shown_by("39-requests-without-end", "39-large-bodies-at-once", "58-one-long-line",
          "58-both-streams-events-and-lines", "58-empty-log-lines",
          "61-length-prefix", "62-objects-out-of-bytes")  # fmt: skip
def test_a_flood_makes_the_host_grow_by_a_bounded_number_of_bytes(setup: str, name: str) -> None:
    hold(setup, name)


@pytest.mark.promise("isolate:verdict-from-the-host")
@pytest.mark.requirement("R479")
@shown_by(
    "60-forged-frames",
    "60-frames-before-the-call",
    "60-frame-on-standard-output",
    "65-ends-that-pretend",
    "66-text-like-a-verdict",
)
def test_nothing_that_a_child_says_of_itself_is_believed(setup: str, name: str) -> None:
    hold(setup, name)
