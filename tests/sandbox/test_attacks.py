"""Each attack in its own process, with memory watched from outside: contained, with a reason, and without
an effect on the next script.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.sandbox import _attack, attacks_js, attacks_py
from tests.sandbox.attacks_js import OK, TIMEOUT, Attack

MIB = 1 << 20
WALL_S = {"js": 0.3, "python": 0.6}
MEMORY = {"js": 64 * MIB, "python": 128 * MIB}
PATIENT_S = 10.0
SLACK_MIB = 20
PROCESS_TIMEOUT_S = 60


def request(lang: str, attack: Attack, *, in_process: bool) -> dict[str, Any]:
    # A script that ends by itself is given time, so that a busy machine doesn't make it one that ran out
    # of it.
    wall_s = WALL_S[lang] if TIMEOUT in attack.right else PATIENT_S
    limits = {"wall_s": wall_s, "memory": MEMORY[lang], "output": MIB} | attack.limits
    return {
        "lang": lang,
        "code": attack.code,
        "limits": limits,
        "in_process": in_process,
        "fetch": attack.fetch,
    }


def run_in_process(lang: str, attack: Attack) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.sandbox._attack"],
        input=json.dumps(request(lang, attack, in_process=True)),
        capture_output=True, text=True, timeout=PROCESS_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"the host process died: {done.returncode}\n{done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def judge(lang: str, attack: Attack, found: dict[str, Any]) -> None:
    assert (found["outcome"], found["reason"]) in attack.right, found
    if found["outcome"] == "ok" and attack.value is not None:
        assert found["value"] == attack.value, found
    if found["outcome"] == "tool_error" and attack.error:
        assert found["error"][0] == attack.error, found
    text = json.dumps(found)
    assert "secret" not in text and "/work" not in text, "something of the host came through"
    assert found["next"] == ["ok", 2], found
    assert found["same_worker"], "a script brought its worker down"
    cap = MEMORY[lang] / MIB
    assert found["grew_mib"] <= cap + SLACK_MIB, found
    assert found["host_grew_mib"] <= cap + SLACK_MIB, found


@pytest.mark.anyio
@pytest.mark.promise("sandbox:attack-is-contained")
@pytest.mark.requirement("R016")
@pytest.mark.parametrize("attack", attacks_js.ATTACKS, ids=lambda a: a.name)
async def test_javascript_in_a_worker_contains(attack: Attack) -> None:
    judge("js", attack, await _attack.attack(request("js", attack, in_process=False)))


@pytest.mark.anyio
@pytest.mark.promise("sandbox:attack-is-contained")
@pytest.mark.requirement("R016")
@pytest.mark.parametrize("attack", attacks_py.ATTACKS, ids=lambda a: a.name)
async def test_python_in_a_worker_contains(attack: Attack) -> None:
    judge("python", attack, await _attack.attack(request("python", attack, in_process=False)))


@pytest.mark.promise("sandbox:in-process-survives-attacks")
@pytest.mark.parametrize("attack", [a for a in attacks_js.ATTACKS if a.right[0] != OK], ids=lambda a: a.name)
def test_javascript_in_process_contains(attack: Attack) -> None:
    judge("js", attack, run_in_process("js", attack))


@pytest.mark.promise("sandbox:in-process-survives-attacks")
@pytest.mark.parametrize(
    "attack", [a for a in attacks_py.ATTACKS if a.right[0][0] == "limit"], ids=lambda a: a.name
)
def test_python_in_process_contains(attack: Attack) -> None:
    judge("python", attack, run_in_process("python", attack))


@pytest.mark.soak
@pytest.mark.anyio
@pytest.mark.requirement("R481")
async def test_python_under_fuel_ends_when_it_is_used_up() -> None:
    judge(
        "python", attacks_py.FUEL, await _attack.attack(request("python", attacks_py.FUEL, in_process=False))
    )
