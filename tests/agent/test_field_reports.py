"""What went wrong for others: each public report on messages and media that concerns one call, and the test
that plays it.

The letters are those of our own list of reports. What concerns a whole run is named with the part that has
it.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

HERE = Path(__file__).parent

PLAYED = [
    (
        "A6: thinking goes back before its call, byte for byte",
        "test_wires_reasoning.py",
        "test_anthropic_thinking_goes_back_byte_for_byte_and_in_its_order",
    ),
    (
        "A8: empty and repeated call ids",
        "test_wires_calls.py",
        "test_calls_with_one_id_or_none_are_sent_apart_and_paired",
    ),
    (
        "A9: an image that became a string",
        "test_results.py",
        "test_letters_of_an_image_are_taken_out_of_text",
    ),
    (
        "A10: a large inline result fails that call alone",
        "test_results.py",
        "test_what_may_not_enter_becomes_an_error_result_and_the_run_goes_on",
    ),
    (
        "A13: stopped in mid-reasoning",
        "test_wires_streams.py",
        "test_a_stream_that_ends_early_is_an_error_and_no_answer",
    ),
    (
        "A15: cancelled in the first call of a turn",
        "test_history.py",
        "test_a_cancelled_turn_is_answered_by_a_notice_and_takes_a_new_prompt",
    ),
    (
        "A16: cut off inside a call",
        "test_wires_calls.py",
        "test_a_call_whose_arguments_failed_is_told_as_text_and_never_as_an_empty_input",
    ),
    (
        "A20: parallel results in any order",
        "test_results.py",
        "test_results_go_out_in_the_order_of_the_calls_however_they_arrived",
    ),
    (
        "A21: a signature on one of two parallel calls",
        "test_wires_reasoning.py",
        "test_gemini_signatures_stay_on_their_own_call",
    ),
    (
        "A24: media dropped without a word",
        "test_wires_positions.py",
        "test_media_are_on_the_wire_or_refused_never_dropped",
    ),
    (
        "A25: URL-safe base64",
        "test_results.py",
        "test_base64_that_is_not_standard_is_an_error_result_with_the_reason",
    ),
    (
        "A26: captions away from their images",
        "test_wires_positions.py",
        "test_captions_stay_by_their_images",
    ),
    (
        "A19: a batch over an approval's pause",
        "test_batch.py",
        "test_a_paused_turn_is_answered_by_one_message_with_what_was_there_before",
    ),
    (
        "A22: a rule that is shown less than it decides on",
        "test_batch.py",
        "test_a_rule_is_asked_about_readable_untainted_calls_alone",
    ),
    (
        "E7: a reasoning item names a forgotten id",
        "test_wires_reasoning.py",
        "test_openai_reasoning_continues_without_any_server_side_id",
    ),
    (
        "E8: one image twice",
        "test_results.py",
        "test_the_cap_counts_letters_in_text_as_well",
    ),
    (
        "E10: a batch too large loses its image",
        "test_results.py",
        "test_the_transcripts_inline_total_turns_the_result_that_overflows_it_into_an_error",
    ),
    (
        "E14: a tool labels itself trusted",
        "test_results.py",
        "test_labels_that_a_tool_writes_into_its_own_result_are_data",
    ),
    (
        "E15: arguments that do not parse",
        "test_wires_calls.py",
        "test_each_way_that_arguments_fail_has_its_reason",
    ),
]

ELSEWHERE = {
    "A1": "the cut of a compaction: the agent loop",
    "E1": "broker",
    "E2": "broker",
    "E5": "several long-running calls: the agent loop",
    "E11": "isolate",
    "E13": "approval callbacks: the agent loop",
}


@pytest.mark.parametrize(("report", "name", "wanted"), PLAYED)
def test_the_report_is_played_by_a_test_that_exists(report: str, name: str, wanted: str) -> None:
    tree = ast.parse((HERE / name).read_text(encoding="utf-8"))
    tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert wanted in tests


def test_no_report_is_both_played_and_elsewhere() -> None:
    assert {report.partition(":")[0] for report, _, _ in PLAYED} & ELSEWHERE.keys() == set()
