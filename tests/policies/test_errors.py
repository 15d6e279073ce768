"""The tree of errors: exit codes, hints, and that nothing is lost between processes."""

from __future__ import annotations

import pickle

import pytest

from fumehood.policies import (
    ConfigError,
    FumehoodError,
    HostError,
    PolicyDenied,
    RuleError,
    SandboxUnavailable,
    ToolError,
)


def test_every_leaf_has_the_exit_code_of_the_command_line() -> None:
    leaves = [kind for kind in FumehoodError.__subclasses__() if kind.__module__ == FumehoodError.__module__]
    codes = {kind.__name__: kind.exit_code for kind in leaves}
    assert codes == {
        "ConfigError": 2,
        "PolicyDenied": 3,
        "SandboxUnavailable": 4,
        "ToolError": 1,
        "HostError": 1,
    }
    assert issubclass(RuleError, ConfigError)


def test_the_hint_stands_on_its_own_line_and_only_when_there_is_one() -> None:
    assert str(ToolError("it broke")) == "it broke"
    assert str(ToolError("it broke", hint="mend it")) == "it broke\nHint: mend it"


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("two", hint="h", problems=("one", "two")),
        RuleError("bad rule"),
        PolicyDenied("no", reason="busy", hint="later"),
        SandboxUnavailable("no user namespaces", hint="another kernel"),
        HostError("disk full"),
    ],
)
def test_an_error_survives_pickling_whole(error: FumehoodError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_a_configuration_error_of_one_fault_lists_it() -> None:
    assert ConfigError("one").problems == ("one",)
