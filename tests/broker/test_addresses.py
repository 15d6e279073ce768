"""The address table: every special range of the registries, every way to carry IPv4 inside IPv6."""

from __future__ import annotations

import csv
import ipaddress
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.broker._addresses import (
    Address,
    AddressClass,
    dial_order,
    judge_address,
    own_addresses,
    parse_address,
)

TABLE = Path(__file__).parent.parent / "data" / "addresses.tsv"


def rows() -> list[tuple[str, str]]:
    with TABLE.open(encoding="utf-8") as file:
        return [
            (row[0], row[1]) for row in csv.reader(file, delimiter="\t") if row and not row[0].startswith("#")
        ]


@pytest.mark.promise("broker:address-table")
@pytest.mark.requirement("R472")
@pytest.mark.parametrize(("text", "kind"), rows())
def test_each_address_has_the_class_of_its_range(text: str, kind: str) -> None:
    judged = judge_address(parse_address(text))
    assert judged.kind is AddressClass(kind), judged.because


@pytest.mark.promise("broker:metadata-never")
@pytest.mark.parametrize("inner", ["169.254.169.254", "168.63.129.16", "100.96.0.96", "192.0.0.192"])
@pytest.mark.parametrize(
    "shape",
    [
        "{}",
        "::ffff:{}",
        "::{}",
        "::ffff:0:{}",
        "64:ff9b::{}",
        "64:ff9b:1::{}",
        "2001:db8::5efe:{}",
        "fe80::200:5efe:{}",
    ],
)
def test_a_metadata_address_is_found_in_every_disguise(inner: str, shape: str) -> None:
    assert judge_address(parse_address(shape.format(inner))).kind is AddressClass.METADATA


@pytest.mark.parametrize("text", ["2002:a9fe:a9fe::", "2001:0:a9fe:a9fe::", "2001:0:1:1:0:0:5601:5601"])
def test_6to4_and_teredo_of_a_metadata_address_are_metadata(text: str) -> None:
    assert judge_address(parse_address(text)).kind is AddressClass.METADATA


@given(st.integers(0, 2**32 - 1))
def test_no_ipv6_form_is_better_than_the_ipv4_address_inside(value: int) -> None:
    inner = judge_address(Address(4, value, "")).kind
    for carried in (value, 0xFFFF << 32 | value, 0x0064FF9B << 96 | value, 0xFFFF0000 << 32 | value):
        outer = judge_address(parse_address(str(ipaddress.IPv6Address(carried)))).kind
        if outer is AddressClass.PUBLIC:
            assert inner is AddressClass.PUBLIC


@given(st.integers(0, 2**128 - 1))
def test_an_address_is_public_only_inside_global_unicast_or_nat64(value: int) -> None:
    if judge_address(Address(6, value, "")).kind is AddressClass.PUBLIC:
        assert value >> 125 == 1 or value >> 32 == 0x0064FF9B << 64


@given(st.integers(0, 2**32 - 1))
def test_what_the_standard_library_calls_private_is_never_public_here(value: int) -> None:
    address = ipaddress.IPv4Address(value)
    if address.is_private or address.is_multicast or address.is_reserved or address.is_loopback:
        assert judge_address(parse_address(str(address))).kind is not AddressClass.PUBLIC


def test_the_hosts_own_addresses_are_never_public() -> None:
    mine = parse_address("93.184.216.34")
    assert judge_address(mine).kind is AddressClass.PUBLIC
    assert judge_address(mine, frozenset({mine})).kind is AddressClass.PRIVATE
    assert parse_address("127.0.0.1") in own_addresses()


def test_zone_ids_and_other_text_are_no_addresses() -> None:
    for text in ("fe80::1%lo", "127.1", "0x7f.1", "2130706433", "", "127.0.0.1 ", "::1\x00"):
        with pytest.raises(ValueError):
            parse_address(text)


def test_dialling_interleaves_the_families_and_repeats_nothing() -> None:
    texts = ["1.1.1.1", "1.1.1.2", "1.1.1.1", "1.1.1.3", "2606::1", "2606::2", "::ffff:1.1.1.2"]
    order = dial_order([parse_address(text) for text in texts])
    assert [address.text for address in order] == ["1.1.1.1", "2606::1", "1.1.1.2", "2606::2", "1.1.1.3"]
    assert order[0].family is socket.AF_INET and order[1].family is socket.AF_INET6
