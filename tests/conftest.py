"""Settings and fixtures of all tests. Everything is seeded and offline."""

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
    """Data that is no part of the repository: the folder that ELMO_SHARED names, by default ../shared."""
    folder = Path(os.environ.get("ELMO_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no folder {folder}; set ELMO_SHARED to the folder with golden files and data")
    return folder
