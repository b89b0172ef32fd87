"""Settings and fixtures shared by all tests, which are seeded and run offline."""

import os
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("repeatable", derandomize=True, database=None, deadline=None, max_examples=40)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def shared_folder() -> Path:
    """Return the folder of data outside the repository: ELMO_SHARED, by default ../shared."""
    folder = Path(os.environ.get("ELMO_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist; set ELMO_SHARED to the folder with golden files and data")
    return folder
