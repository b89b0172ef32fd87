# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Push a checkpoint folder to the Hub."""

import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    StrictDataclassError,
)
from huggingface_hub.utils import validate_repo_id
from safetensors import SafetensorError, safe_open

from ..configuration_elmo import HUB_FILES, ElmoConfig
from ..files import one_line, read_json, read_text
from ..model_card import model_card, rename_usage

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
WEIGHT_FILE = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")
REQUIRED_FILES = ("config.json", *HUB_FILES, "tokenizer.json", "tokenizer_config.json")


def check_access(repo: str) -> HfApi:
    """Raise if the repository's name or the token is wrong, before a job that may take hours."""
    with hub_errors(repo):
        validate_repo_id(repo)
        api = HfApi()
        api.whoami()
    return api


def push(
    folder: Path, repo: str, *, private: bool = False, revision: str | None = None, message: str | None = None
) -> str:
    """Push a checkpoint as one commit, and return the commit's URL. The repository is created if it does not exist.

    A README.md is added if there is none. Its usage section loads the checkpoint from the repository.
    """
    config, num_parameters = check_checkpoint(folder)
    readme = folder / "README.md"
    card = read_text(readme) if readme.is_file() else model_card(config, repo, num_parameters)
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(part.startswith((".", "checkpoint-")) for part in path.relative_to(folder).parts)
    ]
    api = check_access(repo)
    with hub_errors(repo):
        # None keeps the organization's default; False would override it.
        repo = api.create_repo(repo, private=private or None, exist_ok=True).repo_id
        if private and not api.model_info(repo).private:
            raise ValueError(
                f"{repo} exists and is public: make it private in its settings, or push without --private."
            )
        if revision is not None:
            api.create_branch(repo, branch=revision, exist_ok=True)
        info = api.model_info(repo, revision=revision)
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            CommitOperationAdd("README.md", rename_usage(card, repo).encode())
        ]
        operations += [CommitOperationAdd(p.relative_to(folder).as_posix(), p) for p in files if p != readme]
        # Weights of an earlier push with other shards could be loaded instead of these.
        pushed = {operation.path_in_repo for operation in operations}
        old = {file.rfilename for file in info.siblings or [] if WEIGHT_FILE.fullmatch(file.rfilename)}
        operations += [CommitOperationDelete(name) for name in sorted(old - pushed)]
        message = message or "Upload ELMo checkpoint"
        return api.create_commit(repo, operations, commit_message=message, revision=revision).commit_url


def check_checkpoint(folder: Path) -> tuple[ElmoConfig, int]:
    """Return the configuration and the number of parameters of a checkpoint, or raise if it cannot be loaded."""
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise FileNotFoundError(f"{folder} must be the folder of a checkpoint; it {problem}.")
    weights = [WEIGHTS]
    if not (folder / WEIGHTS).is_file() and (folder / INDEX).is_file():
        weight_map = read_json(folder / INDEX).get("weight_map")
        if not isinstance(weight_map, dict):
            raise ValueError(f"{folder / INDEX} must have a weight_map with the file of each weight; it does not.")
        weights = sorted(set(map(str, weight_map.values())))
    missing = [name for name in (*REQUIRED_FILES, *weights) if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder} must contain a saved model and its tokenizer; it lacks {', '.join(missing)}: "
            "save both with save_pretrained."
        )
    model_type = read_json(folder / "config.json").get("model_type")
    if model_type != "elmo":
        raise ValueError(f"{folder / 'config.json'} must describe an ELMo model; its model_type is {model_type!r}.")
    try:
        config = ElmoConfig.from_pretrained(folder)
    except (StrictDataclassError, ValueError) as error:
        raise ValueError(f"{folder / 'config.json'} must describe an ELMo model: {one_line(error)}.") from error
    num_parameters = 0
    for name in weights:
        try:
            with safe_open(folder / name, "pt") as file:
                num_parameters += sum(math.prod(file.get_slice(key).get_shape()) for key in file.keys())  # noqa: SIM118
        except SafetensorError as error:
            raise OSError(f"{folder / name} must be a safetensors file; it is not, or it is truncated.") from error
    return config, num_parameters


@contextmanager
def hub_errors(repo: str) -> Iterator[None]:
    """Turn an error of the Hub or the network into one sentence."""
    try:
        yield
    except LocalTokenNotFoundError as error:
        raise OSError(
            "Pushing requires a Hub token with write access, and none was found: run `hf auth login` or set HF_TOKEN."
        ) from error
    except OfflineModeIsEnabled as error:
        raise OSError(
            "Pushing requires the Hub, and HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set: unset it."
        ) from error
    except HFValidationError as error:
        raise ValueError(f"The repository must have a name like user/elmo; got {repo!r}.") from error
    except UnicodeEncodeError as error:
        raise ValueError("The token must be plain ASCII text: set HF_TOKEN again, or run `hf auth login`.") from error
    except json.JSONDecodeError as error:
        raise OSError("The answer is not from the Hub: check the network, and HF_ENDPOINT if it is set.") from error
    except Exception as error:
        # An upload wraps the error that matters.
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ is not None else error
        if isinstance(cause, HfHubHTTPError) and cause.response is not None:
            raise OSError(status_message(repo, cause)) from error
        # By module name, as the HTTP library differs between versions of huggingface_hub.
        if isinstance(cause, ConnectionError) or type(cause).__module__.startswith("httpx"):
            raise OSError(f"The Hub cannot be reached ({one_line(cause)}): check the network and try again.") from error
        if isinstance(cause, OSError) and cause.errno and cause.filename is None:  # of reading a file
            raise OSError(f"{repo} could not be pushed: {cause.strerror}.") from error
        if type(cause).__module__.startswith("huggingface_hub"):
            raise OSError(f"{repo} could not be pushed: {' '.join(str(cause).split()).rstrip('.')}.") from error
        raise


def status_message(repo: str, error: HfHubHTTPError) -> str:
    """Explain an HTTP error to the user, with the Hub's own message."""
    status = error.response.status_code
    message = f" ({' '.join(error.server_message.split())[:200]})" if error.server_message else ""
    if status == 401:
        return (
            f"The Hub refused the token{message}: create one with write access at "
            "https://huggingface.co/settings/tokens and set HF_TOKEN to it, or unset HF_TOKEN and run `hf auth login`."
        )
    if status == 403:
        return (
            f"The token does not have write access to {repo}{message}: push to a namespace of your own, or use another "
            "token."
        )
    if status == 429 or status >= 500:
        return f"The Hub could not accept {repo}, status {status}{message}: try again later."
    return f"The Hub refused {repo}, status {status}{message}."
