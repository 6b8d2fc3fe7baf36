"""Claims under the sentence that they stand for: what is read, and every error with its line."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml
from sweep_files import PRETRAIN_LINE, told, write

from fope_lab.sweep import load_sweep
from fope_lab.sweep.report_section import Sentence
from fope_lab.sweep.schema import sweep_json_schema

SWEEP = f"""name: grouped
stages:
  pretrain: {PRETRAIN_LINE}
  passkey: {{kind: passkey, from: pretrain, lengths: [32, 64], form: symbolic}}
grid:
  pretrain.embedding: [nope, rope]
report:
  claims:
    - "passkey@64: rope > nope"
"""
LINE = 10
"""The line of what is added to the claims."""


def test_claims_know_their_sentence(tmp_path: Path) -> None:
    text = f"""{SWEEP}    - quote: RoPE is ahead.
      place: §5
      note: Of two lengths, this is the shorter.
      claims:
        - "passkey@32: rope > nope"
        - "passkey@32: rope > 0.5"
    - {{note: Our own., claims: ["passkey@64: rope > 0.5"]}}
"""
    stated = load_sweep(write(tmp_path / "s.yaml", text)).report.stated
    basis = Sentence("RoPE is ahead.", "§5", "Of two lengths, this is the shorter.")
    assert [(claim.text, claim.basis) for claim in stated] == [
        ("passkey@64: rope > nope", None),
        ("passkey@32: rope > nope", basis),
        ("passkey@32: rope > 0.5", basis),
        ("passkey@64: rope > 0.5", Sentence(note="Our own.")),
    ]
    assert str(basis) == "“RoPE is ahead.” (§5) Of two lengths, this is the shorter."
    assert str(Sentence(note="Our own.")) == "Our own."
    schema = sweep_json_schema()["properties"]["report"]
    jsonschema.validate(yaml.safe_load(text)["report"], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"claims": [{"quot": "A.", "claims": ["passkey@32: > 0.5"]}]}, schema)


WRONG = {
    "{quote: A.}": "report.claims[1].claims: is missing",
    "{claims: ['passkey@32: rope > nope']}": (
        "report.claims[1]: has claims only, needs a quote, or a note on where they come from"
    ),
    "{note: N., place: §5, claims: ['passkey@32: rope > nope']}": (
        "report.claims[1].place: has no effect: there is no quote"
    ),
    "{quote: '', claims: ['passkey@32: rope > nope']}": (
        "report.claims[1].quote: found '', needs text that is not empty"
    ),
    "{quote: A., claims: []}": "report.claims[1].claims: found [], needs at least one entry",
    "{quot: A., note: N., claims: ['passkey@32: rope > nope']}": (
        "report.claims[1].quot: unknown key 'quot'; did you mean 'quote'?"
    ),
    "{quote: A., claims: ['passkey@32: rope > fope']}": "report.claims[1].claims[0]: ",
    "{quote: A., claims: ['passkey@64: rope > nope']}": (
        "report.claims[1].claims[0]: says the same as claims[0]"
    ),
    "5": "report.claims[1]: found 5, needs text or a mapping with claims",
}


@pytest.mark.parametrize("entry", WRONG)
def test_a_wrong_group_is_told_with_its_line(tmp_path: Path, entry: str) -> None:
    (found,) = told(tmp_path, f"{SWEEP}    - {entry}\n")
    assert found.startswith(f"{LINE} {WRONG[entry]}")


def test_the_limit_counts_claims_and_not_groups(tmp_path: Path) -> None:
    claims = ", ".join(f"'passkey@32: rope > 0.{i:04}'" for i in range(700))
    text = f"max_stages: 12\n{SWEEP}    - {{note: Many., claims: [{claims}]}}\n"
    (found,) = told(tmp_path, text)
    assert "report.claims: 701 claims about " in found
