# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""A checkpoint folder becomes a repository on the Hub."""

import json
import math
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
)
from safetensors import SafetensorError, safe_open

from ..configuration_elmo import ElmoConfig
from .model_card import model_card, renamed

NEEDED = ("config.json", "configuration_elmo.py", "modeling_elmo.py", "tokenization_elmo.py", "tokenizer_config.json")


def check_access(repo: str):
    """Say what is wrong with the token or the name before hours of work depend on them."""
    with plain_errors(repo):
        HfApi().whoami()


def push(
    folder: Path, repo: str, private: bool = False, revision: str | None = None, message: str | None = None
) -> str:
    """Push a checkpoint as one commit, into a repository that is created if need be; its address.

    README.md is written where there is none, and its usage loads the repository.
    """
    parameters = check_checkpoint(folder)
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith((".", "checkpoint-")) for part in path.relative_to(folder).parts)
    ]
    with plain_errors(repo):
        api = HfApi()
        api.whoami()
        repo = api.create_repo(repo, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(repo, branch=revision, exist_ok=True)
        readme = folder / "README.md"
        if readme.is_file():
            card = renamed(readme.read_text(encoding="utf-8"), repo)
        else:
            card = model_card(ElmoConfig.from_pretrained(folder), repo, parameters)
        operations = [CommitOperationAdd("README.md", card.encode())]
        operations += [CommitOperationAdd(p.relative_to(folder).as_posix(), p) for p in files if p != readme]
        commit = api.create_commit(
            repo, operations, commit_message=message or "Upload ELMo checkpoint", revision=revision
        )
    return commit.commit_url


def check_checkpoint(folder: Path) -> int:
    """The number of parameters of a checkpoint that anybody can load, or an error that says what is missing."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} must be the folder of a checkpoint; it does not exist.")
    missing = [name for name in NEEDED if not (folder / name).is_file()]
    weights = sorted(folder.glob("*.safetensors"))
    missing += [] if weights else ["model.safetensors"]
    if missing:
        raise FileNotFoundError(
            f"{folder} must hold a saved model and its tokenizer; it lacks {', '.join(missing)}: "
            "save both with save_pretrained."
        )
    try:
        if json.loads((folder / "config.json").read_text(encoding="utf-8"))["model_type"] != "elmo":
            raise ValueError(f"{folder} must hold an ELMo model; its config.json says otherwise.")
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / 'config.json'} must describe a model; it is cut off or is none.") from error
    parameters = 0
    for path in weights:
        try:
            with safe_open(path, "pt") as file:
                parameters += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
        except SafetensorError as error:
            raise OSError(f"{path} must be a whole safetensors file; it is cut off or is none ({error}).") from error
    return parameters


class plain_errors:
    """The Hub's and the network's errors in one sentence each."""

    def __init__(self, repo: str):
        self.repo = repo

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if error is None or isinstance(error, (KeyboardInterrupt, SystemExit)):
            return
        if isinstance(error, LocalTokenNotFoundError):
            raise OSError(
                "Pushing needs a token of the Hub with write access, and there is none: run `hf auth login`, "
                "or set HF_TOKEN."
            ) from error
        if isinstance(error, OfflineModeIsEnabled):
            raise OSError("Pushing needs the Hub, and HF_HUB_OFFLINE forbids to reach it: unset it.") from error
        if isinstance(error, HFValidationError):
            raise ValueError(f"The repository must have a name like user/elmo; got {self.repo!r} ({error}).") from error
        if isinstance(error, HfHubHTTPError) and error.response is not None:
            status = error.response.status_code
            if status == 401:
                raise OSError(
                    "The Hub refused the token: it is wrong or has expired. Make one with write access at "
                    "https://huggingface.co/settings/tokens and run `hf auth login`."
                ) from error
            if status == 403:
                raise OSError(f"The token has no right to write to {self.repo}: use one with write access.") from error
            raise OSError(f"The Hub refused to take {self.repo}: {error.server_message or status}.") from error
        # The client's own library of HTTP changes its name from release to release.
        if isinstance(error, ConnectionError) or type(error).__module__.startswith("httpx"):
            raise OSError(f"The Hub cannot be reached ({error}): check the network and try again.") from error
