"""Sizes are read one way, written one way, and corrected when they are unclear."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.policies.sizes import MAX_SIZE, format_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 1048576),
        ("1 B", 1),
        ("512 MiB", 512 * 1024**2),
        ("512MiB", 512 * 1024**2),
        ("512 mib", 512 * 1024**2),
        ("8 MB", 8_000_000),
        ("1 kB", 1000),
        ("1 KB", 1000),
        ("2 GiB", 2 * 1024**3),
        ("1 TB", 10**12),
        ("9223372036854775807", MAX_SIZE),
    ],
)
def test_a_size_is_a_number_and_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("512M", '\'512M\' has an unclear unit; write "512 MiB" or "512 MB"'),
        ("64 k", '\'64 k\' has an unclear unit; write "64 KiB" or "64 kB"'),
        ("1 Gi", '\'1 Gi\' has an unclear unit; write "1 GiB" or "1 GB"'),
        ("1.5 GiB", "'1.5 GiB' is not a size; fractions are not read, write \"1536 MiB\""),
        ("0.5 MB", "'0.5 MB' is not a size; fractions are not read, write \"500000 B\""),
        ("1_000", "'1_000' is not a size; write \"1000\""),
        ("1,5 GiB", "'1,5 GiB' is not a size; fractions are not read, write \"1536 MiB\""),
        ("1,000 MiB", "'1,000 MiB' is not a size; write \"1000 MiB\""),
        (" 8 MiB ", "' 8 MiB ' is not a size; write \"8 MiB\""),
        ("8  MiB", "'8  MiB' is not a size; write \"8 MiB\""),
        (
            "3 pages",
            "'3 pages' has the unknown unit 'pages'; units are B, KiB, MiB, GiB, TiB, kB, MB, GB, TB",
        ),
        ("", "'' is not a size; write a number and a unit, like \"512 MiB\""),
        ("-1 MiB", "'-1 MiB' is not a size; write a number and a unit, like \"512 MiB\""),
        ("０ MiB", "'０ MiB' is not a size; write a number and a unit, like \"512 MiB\""),
        ("8388608 TiB", "'8388608 TiB' is more than the kernel can count (9223372036854775807 bytes)"),
    ],
)
def test_what_is_not_a_size_is_corrected(text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_size(text)
    assert str(caught.value) == said


@given(st.integers(min_value=0, max_value=MAX_SIZE))
def test_a_written_size_is_read_back_as_itself(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.one_of(st.text(), st.from_regex(r"[0-9 .,_]{0,20}[A-Za-z]{0,4}", fullmatch=True)))
def test_any_text_is_a_size_within_bounds_or_a_value_error(text: str) -> None:
    try:
        assert 0 <= parse_size(text) <= MAX_SIZE
    except ValueError as error:
        assert str(error)


@given(st.from_regex(r"[0-9]{1,6}[._,]?[0-9]{0,3} {0,2}(k|m|g|Ki|KiB|MiB|mb|GB)", fullmatch=True))
def test_a_correction_is_itself_a_size(text: str) -> None:
    try:
        parse_size(text)
    except ValueError as error:
        offered = str(error).partition('write "')[2].partition('"')[0]
        assert not offered or parse_size(offered) >= 0
