"""What is read of this machine's processor, from what Linux says of some processors."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fope_lab.config import processor as module
from fope_lab.config.processor import bfloat16_instruction, processor

X86 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: {model}
model name\t: AMD EPYC
stepping\t: 1
flags\t\t: fpu {flags} sse
bugs\t\t: sysret_ss_attrs

processor\t: 1
cpu family\t: 25
model\t\t: 99
flags\t\t: fpu amx_bf16
"""
ARM = """processor\t: 0
BogoMIPS\t: 50.00
Features\t: fp asimd {flags}
CPU implementer\t: 0x41
CPU architecture: 8
CPU part\t: {model}

processor\t: 1
"""
OTHER = """processor\t: 0
hart\t\t: 1
isa\t\t: rv64imafdc
"""

Reads = Callable[[str | None], None]


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    """Let Linux say this of the processor, or another system nothing."""

    def read(text: str | None) -> None:
        path = tmp_path / "cpuinfo"
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
        module._fields.cache_clear()

    monkeypatch.setattr(module, "CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    yield read
    module._fields.cache_clear()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (X86.format(model=17, flags="avx512f avx512_bf16"), "avx512_bf16"),
        (X86.format(model=17, flags="avx512_bf16 amx_bf16"), "amx_bf16"),
        (X86.format(model=1, flags="avx2"), ""),
        (ARM.format(model="0xd40", flags="bf16 svebf16"), "bf16"),
        (ARM.format(model="0xd0c", flags="sve"), ""),
        (OTHER, None),
        (None, None),
    ],
)
def test_the_instruction_is_read_from_the_system(
    text: str | None, expected: str | None, says: Reads
) -> None:
    says(text)
    assert bfloat16_instruction() == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (X86.format(model=17, flags="avx512_bf16"), "AMD EPYC (family 25, model 17, avx512_bf16)"),
        (X86.format(model=17, flags="avx2"), "AMD EPYC (family 25, model 17)"),
        (X86.format(model=1, flags="avx2"), "AMD EPYC (family 25, model 1)"),
        (ARM.format(model="0xd40", flags="bf16"), "aarch64 (implementer 0x41, part 0xd40, bf16)"),
        (OTHER, "aarch64"),
        (None, "aarch64"),
    ],
)
def test_processors_of_one_name_are_told_apart(
    text: str | None, expected: str, says: Reads
) -> None:
    says(text)
    assert processor() == expected
