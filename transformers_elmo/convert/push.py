# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Push a checkpoint to the Hub: the files that it is made of, and nothing else that is in its folder."""

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
)
from huggingface_hub.utils import validate_repo_id
from safetensors import SafetensorError, safe_open

from ..checkpoints import load
from ..configuration_elmo import AUTO_MAP, HUB_FILES, ElmoConfig
from ..files import one_line, read_json, read_text, reason
from ..model_card import model_card, rename_usage
from ..text import printable

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
WEIGHT_FILE = re.compile(r"model(-\d+-of-\d+)?\.safetensors(\.index\.json)?")
BRANCH = re.compile(r"(?!.*(?:\.\.|//|\.lock$|[./]$))\w[\w./-]{0,199}")
REQUIRED_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")
OPTIONAL_FILE = re.compile(
    r"(special_tokens_map|added_tokens)\.json|vocab\.txt|(LICEN[CS]E|COPYING|NOTICE)(\.(txt|md))?|CITATION\.(cff|bib)"
)
PICTURE = re.compile(r"""!\[[^][]*\]\(\s*<?([^)>"'\s]+)|<img\b[^<>]*?\ssrc\s*=\s*["']?([^"'>\s]+)""", re.IGNORECASE)
PICTURE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp")
AUTO_MAPS = {
    "config.json": AUTO_MAP,
    "tokenizer_config.json": {"AutoTokenizer": ["tokenization_elmo.ElmoTokenizer", None]},
}
LOCAL_PATHS = ("_name_or_path", "name_or_path")  # where a checkpoint was loaded from; older transformers saved it
CODE = Path(__file__).parents[1]  # the folder of the package's own Hub files


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
    """Push a checkpoint as one commit, print what was uploaded and left out, and return the commit's URL.

    The repository is created if it does not exist. A README.md is added if there is none. Its usage section loads the
    checkpoint from the repository. A checkpoint without code gets the package's own.
    """
    if revision is not None and not BRANCH.fullmatch(revision):
        raise ValueError(f"The revision must be the name of a branch like v1; got {revision!r:.80}.")
    config, num_parameters, weights = check_checkpoint(folder)
    readme = inside(folder, "README.md")
    card = read_text(readme) if readme is not None else model_card(config, repo, num_parameters)
    check_metadata(card, folder / "README.md")
    files = checkpoint_files(folder, weights, card)
    others = list(left_out(folder, {*files, "README.md"}))
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
        files["README.md"] = rename_usage(card, repo).encode()
        # Weights of an earlier push with other shards could be loaded instead of these.
        old = {file.rfilename for file in info.siblings or [] if WEIGHT_FILE.fullmatch(file.rfilename)}
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            *(CommitOperationAdd(name, content) for name, content in sorted(files.items())),
            *(CommitOperationDelete(name) for name in sorted(old - files.keys())),
        ]
        message = (message or "Upload ELMo checkpoint").encode("utf-8", "replace").decode()
        url = api.create_commit(repo, operations, commit_message=message, revision=revision).commit_url
    print(f"uploaded     {', '.join(map(printable, sorted(files)))}")
    if others:
        more = f" and {len(others) - 10} more" if len(others) > 10 else ""
        print(f"left out     {', '.join(map(printable, others[:10]))}{more}")
    return url


def check_metadata(card: str, path: Path):
    """Raise if the metadata at the beginning of a card is not valid YAML, which the Hub refuses."""
    try:
        ModelCard(card)
    except Exception as error:  # the YAML library has errors of its own, and huggingface_hub raises any
        raise ValueError(
            f"{path} must begin with metadata in YAML between two lines ---, or have none; they cannot be read "
            f"({one_line(error)})."
        ) from error


def checkpoint_files(folder: Path, weights: Iterable[str], card: str) -> dict[str, Path | bytes]:
    """Return the files to upload, README.md aside, by their names in the repository; edited ones as bytes."""
    names = [*REQUIRED_FILES, *weights, *pictures(card)]
    names += [path.name for path in folder.iterdir() if OPTIONAL_FILE.fullmatch(path.name)]
    has_code = all(inside(folder, name) is not None for name in HUB_FILES)  # otherwise versions could be mixed
    files: dict[str, Path | bytes] = {name: (folder if has_code else CODE) / name for name in HUB_FILES}
    files |= {name: path for name in names if (path := inside(folder, name)) is not None}
    for name, auto_map in AUTO_MAPS.items():
        content = read_json(folder / name)
        public = {key: value for key, value in content.items() if key not in LOCAL_PATHS} | {"auto_map": auto_map}
        if public != content:
            files[name] = json.dumps(public, indent=2, sort_keys=True).encode() + b"\n"
    return files


def pictures(card: str) -> list[str]:
    """Return the paths of the pictures in a model card, without hidden ones and any that lead out of the folder."""
    paths = [PurePosixPath(unquote(markdown or html)) for markdown, html in PICTURE.findall(card)]
    return [
        str(path)
        for path in paths
        if path.suffix.lower() in PICTURE_SUFFIXES and not any(part.startswith((".", "/")) for part in path.parts)
    ]


def inside(folder: Path, name: str) -> Path | None:
    """Return the path of a file in a folder, or None if there is none; raise if it is a link that leads out of it."""
    path = folder / name
    try:
        if not path.is_file():
            return None
    except (OSError, ValueError):  # no file can have this name
        return None
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path} must be in the folder that is pushed; it links to {path.resolve()}: copy it there.")
    return path


def left_out(folder: Path, uploaded: Collection[str], prefix: str = "") -> Iterator[str]:
    """Return the names of the files and folders that are not uploaded."""
    for path in sorted(folder.iterdir()):
        name = prefix + path.name
        if path.is_dir() and any(other.startswith(f"{name}/") for other in uploaded):
            yield from left_out(path, uploaded, f"{name}/")
        elif name not in uploaded:
            yield name + "/" * path.is_dir()


def check_checkpoint(folder: Path) -> tuple[ElmoConfig, int, list[str]]:
    """Return the configuration, the number of parameters and the weight files of a checkpoint that can be loaded."""
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise FileNotFoundError(f"{folder} must be the folder of a checkpoint; it {problem}.")
    weights = [WEIGHTS]
    if not (folder / WEIGHTS).is_file() and (folder / INDEX).is_file():
        weight_map = read_json(folder / INDEX).get("weight_map")
        if not isinstance(weight_map, dict):
            raise ValueError(f"{folder / INDEX} must have a weight_map with the file of each weight; it does not.")
        weights = sorted(set(map(str, weight_map.values())))
        wrong = [name for name in weights if not WEIGHT_FILE.fullmatch(name) or name == INDEX]
        if wrong:
            raise ValueError(
                f"{folder / INDEX} must name files like model-00001-of-00002.safetensors; it names {wrong[0]!r:.80}."
            )
    missing = [name for name in (*REQUIRED_FILES, *weights) if inside(folder, name) is None]
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
    except ValueError as error:
        raise ValueError(f"{folder / 'config.json'} must describe an ELMo model: {one_line(error)}.") from error
    for name in REQUIRED_FILES:
        read_json(folder / name)
    num_parameters = 0
    for name in weights:
        try:
            with safe_open(folder / name, "pt") as file:
                names = [key for key in file.keys() if not key.endswith("_scale")]  # noqa: SIM118
                num_parameters += sum(math.prod(file.get_slice(key).get_shape()) for key in names)
        except OSError as error:
            raise OSError(f"{folder / name} cannot be read: {reason(error)}.") from error
        except SafetensorError as error:
            raise OSError(f"{folder / name} must be a safetensors file; it is not, or it is truncated.") from error
    if num_parameters == 0:
        raise ValueError(f"{folder} must contain the weights of a model; {[*weights, INDEX][0]} has none.")
    load(str(folder.absolute()), with_lm_head=True)  # raises if the files do not belong together
    return config, num_parameters, weights if weights == [WEIGHTS] else [*weights, INDEX]


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
    except (json.JSONDecodeError, TypeError, KeyError, AttributeError) as error:  # no JSON, or of another shape
        raise OSError("The answer is not from the Hub: check the network, and HF_ENDPOINT if it is set.") from error
    except Exception as error:
        # An upload wraps the error that matters.
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ is not None else error
        if isinstance(cause, HfHubHTTPError) and cause.response is not None:
            raise OSError(status_message(repo, cause)) from error
        # By module name, as the HTTP library differs between versions of huggingface_hub.
        if isinstance(cause, ConnectionError) or type(cause).__module__.startswith("httpx"):
            reason = printable(one_line(cause))
            raise OSError(f"The Hub cannot be reached ({reason}): check the network and try again.") from error
        if isinstance(cause, OSError) and cause.errno and cause.filename is None:  # of reading a file
            raise OSError(f"{repo} could not be pushed: {cause.strerror}.") from error
        if type(cause).__module__.startswith("huggingface_hub"):
            reason = printable(" ".join(str(cause).split()).rstrip("."))
            raise OSError(f"{repo} could not be pushed: {reason}.") from error
        raise


def status_message(repo: str, error: HfHubHTTPError) -> str:
    """Explain an HTTP error to the user, with the Hub's own message."""
    status = error.response.status_code
    message = f" ({printable(' '.join(error.server_message.split())[:200])})" if error.server_message else ""
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
