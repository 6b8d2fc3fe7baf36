"""Devices: their numbers, their names, and what is told of an unknown one."""

from __future__ import annotations

import pytest

from fope_lab.config.devices import (
    CPU,
    GIB,
    device_named,
    known_devices,
    recorded_device,
    this_machine,
)
from fope_lab.sweep import SweepError


def test_every_device_has_what_a_plan_needs() -> None:
    for name, device in known_devices().items():
        assert device.name == name
        assert device.source
        assert device.known_as, "or else nothing measured on it is ever found"
        assert 16 * GIB <= device.memory <= 288 * GIB
        assert device.peak["bfloat16"] >= device.peak["float32"] > 1e13
        assert device.assumed_rate("bfloat16") == pytest.approx(0.35 * device.peak["bfloat16"])


def test_numbers_of_two_datasheets() -> None:
    a6000, a100 = device_named("a6000"), device_named("a100-80gb")
    assert (a6000.memory, a6000.peak["float32"]) == (48 * GIB, 38.7e12)
    assert a6000.peak["bfloat16"] == pytest.approx(309.7e12 / 2, rel=1e-3)
    assert (a100.memory, dict(a100.peak)) == (80 * GIB, {"float32": 19.5e12, "bfloat16": 312e12})


@pytest.mark.parametrize(
    ("name", "reported"),
    [("a40", 46_068), ("l40", 46_068), ("l40s", 46_068), ("a10", 23_028), ("l4", 23_034)],
)
def test_the_memory_of_a_card_with_ecc_is_what_the_driver_reports(name: str, reported: int) -> None:
    memory = device_named(name).memory / 2**20
    assert 0.99 * reported < memory <= reported, "MiB"


def test_a_name_of_the_driver_is_found_again() -> None:
    for device in known_devices().values():
        for name in device.known_as:
            assert recorded_device(name) is device
    assert recorded_device("Tesla K80") is None


def test_the_cpu_is_this_machine() -> None:
    assert device_named(CPU) is this_machine()
    assert this_machine().memory > GIB


def test_an_unknown_device_names_the_nearest_and_all() -> None:
    with pytest.raises(SweepError) as caught:
        device_named("a60000")
    message = str(caught.value)
    assert message.startswith(
        "--device: found 'a60000'; did you mean 'a6000'? (allowed: cpu, a6000"
    )
    assert all(name in message for name in known_devices())
