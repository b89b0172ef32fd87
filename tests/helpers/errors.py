"""Assertions about error messages."""

from collections.abc import Callable

import pytest


def assert_value_error(call: Callable, *parts: str):
    """Assert that a call raises a ValueError whose message contains all parts: what was expected and what came."""
    with pytest.raises(ValueError) as caught:
        call()
    missing = [part for part in parts if part not in str(caught.value)]
    assert not missing, f"the message lacks {missing}: {caught.value}"
