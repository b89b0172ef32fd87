"""Test that the list of deliberate faults follows the code."""

from collections import Counter

from mutants import MUTANTS, ROOT


def test_every_fault_can_be_put_into_the_code():
    texts = {mutant.file: (ROOT / "transformers_elmo" / mutant.file).read_text(encoding="utf-8") for mutant in MUTANTS}
    assert [m.fault for m in MUTANTS if texts[m.file].count(m.old) != 1] == []
    assert [fault for fault, number in Counter(m.fault for m in MUTANTS).items() if number > 1] == []
