"""`elmo push` to a loopback Hub: what arrives, who can load it, failures of the Hub and bad folders.

Most tests run the command in this process, with a Hub of their own. Those of the environment, of Ctrl-C and of loading
without the package run it in another process.
"""

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import numpy as np
import pytest
from huggingface_hub import ModelCard, close_session
from safetensors.numpy import load_file, save_file

from helpers.command import assert_one_sentence, run
from helpers.environments import arrays_of, load_arrays, make_environment
from helpers.environments import run as run_script
from helpers.hub_server import USER, HubError, LoopbackHub
from helpers.models import randomize, tiny_config
from helpers.released import bilm_arrays, bilm_options, write_bilm
from transformers_elmo import (
    DEFAULT_CHECKPOINT,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
    configuration_elmo,
)
from transformers_elmo.command import main
from transformers_elmo.configuration_elmo import HUB_FILES
from transformers_elmo.convert import job
from transformers_elmo.model_card import model_card

# Files of a checkpoint that not all have, and files that are never pushed.
EXTRAS = ["LICENSE", "NOTICE.txt", "CITATION.cff", "vocab.txt", "curves.png", "pictures/a b.PNG"]
OTHERS = """.hidden .hidden.png .env .git/config .cache/x checkpoint-500/model.safetensors runs/täg/events
    training_args.bin optimizer.pt trainer_state.json settings.json notes.txt notebook.ipynb other.png pictures/c.png
    pytorch_model.bin model-00001-of-00002.safetensors LICENSE.key""".split()
TEXTS = ["Ann Lee visited Paris, London.", "Rain!", "", "Any wörd 😀 will do."]


def save(folder, model_class=ElmoModel, seed=0, **options):
    """Save a checkpoint without README.md; return what its model computes."""
    config = tiny_config(max_characters_per_token=50, char_vocab_size=262)
    model, tokenizer = randomize(model_class(config), seed), ElmoTokenizer()
    arrays = arrays_of(model, tokenizer, TEXTS)
    model.save_pretrained(folder, **options)
    (Path(folder) / "README.md").unlink()
    tokenizer.save_pretrained(folder)
    return arrays


def head(hub, repo, branch="main") -> Path:
    """Return the folder with the files of a branch; its name is the SHA of the last commit."""
    return hub.store / "models" / repo / (hub.store / "models" / repo / "refs" / branch).read_text()


def tree(hub, repo, branch="main") -> dict[str, bytes]:
    """Return the files of a branch."""
    folder = head(hub, repo, branch)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def usage(card: str) -> str:
    return re.search(r"```python\n(.*?)```", card, re.DOTALL)[1]


def elmo(*arguments, env) -> tuple[int, str, str]:
    """Run `elmo ARGUMENTS` in another process; return its exit code, stdout and stderr."""
    command = [sys.executable, "-m", "transformers_elmo.command", *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def assert_fails(result, *parts):
    """Assert that the exit code is 1, and the error one sentence that contains the parts."""
    assert_one_sentence(result, *parts)
    assert result[0] == 1 and result[2].endswith(".\n")


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("push")


@pytest.fixture(scope="session")
def checkpoints(folder):
    """Folders by name, and what their models compute; their parent folder is hidden, and may be."""
    made = {name: folder / ".work" / f"checkpoint-{name}" for name in ("base", "tagger", "shards")}
    arrays = {
        "base": save(made["base"]),
        "tagger": save(made["tagger"], ElmoForTokenClassification, 1),
        "shards": save(made["shards"], seed=2, max_shard_size="2KB"),
    }
    base = made["base"]
    section = '## Curves\n\n![loss](curves.png "Loss")\n<img width=9 src="pictures/a%20b.PNG">\n![](missing.png)\n'
    section += "![](.hidden.png) ![](/etc/motd.png) ![](../tagger/x.png) ![](notes.txt) ![](https://x.org/a.png)\n"
    card = model_card(tiny_config(), str(base), 3229, "en", "apache-2.0", "A *title*", [section])
    (base / "README.md").write_text(card, encoding="utf-8")
    for name in (*EXTRAS, *OTHERS):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_bytes(b"some \0 bytes \r\n of " + name.encode())
    return {name: (made[name], arrays[name]) for name in made}


@pytest.fixture
def checkpoint(checkpoints, tmp_path):
    """A copy of a checkpoint without README.md, for tests that change it."""
    return shutil.copytree(checkpoints["tagger"][0], tmp_path / "checkpoint")


def use_only(hub, patch, home):
    """Make this process use only this Hub, and retry without delays."""
    patch.setattr("huggingface_hub.constants.ENDPOINT", hub.endpoint)
    patch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(home / "token"))
    for name, value in (("HUB_OFFLINE", False), ("HUB_DISABLE_XET", True), ("HUB_DISABLE_TELEMETRY", True)):
        patch.setattr(f"huggingface_hub.constants.HF_{name}", value)
    patch.setattr("huggingface_hub.utils._http.time", SimpleNamespace(sleep=lambda seconds: None))
    patch.setenv("HF_TOKEN", "hf_test")
    patch.setenv("NO_PROXY", "127.0.0.1")
    for name in ("HUGGING_FACE_HUB_TOKEN", "HF_OIDC_RESOURCE"):
        patch.delenv(name, raising=False)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with LoopbackHub(tmp_path / "store") as hub:
        use_only(hub, monkeypatch, tmp_path)
        yield hub


# Pushed checkpoints


@pytest.fixture(scope="session")
def published(folder, checkpoints):
    """A Hub with the checkpoints, and the output of the command for the first."""
    with LoopbackHub(folder / "store") as hub:
        result = elmo("push", checkpoints["base"][0], "me/base", env=hub.client_env(folder / "home"))
        with pytest.MonkeyPatch.context() as patch:
            use_only(hub, patch, folder)
            for name, *options in (
                ("tagger", "tagger"),
                ("shards", "me/shards"),
                ("base", "me/private", "--private"),
                ("base", "me/branch", "--revision", "v1", "--message", "First\n\nwords"),
            ):
                assert main(["push", str(checkpoints[name][0]), *options]) == 0
            source = write_bilm(folder / "source", bilm_options(), bilm_arrays(bilm_options()))
            convert = ["convert", str(source), "-o", str(folder / "converted"), "--push-to-hub", "me/converted"]
            assert main(convert) == 0
        yield hub, result


def test_files_arrive_byte_for_byte(checkpoints, published):
    hub, result = published
    base, _ = checkpoints["base"]
    here = {path.relative_to(base).as_posix(): path.read_bytes() for path in base.rglob("*") if path.is_file()}
    there = tree(hub, "me/base")
    assert here.keys() - there.keys() == set(OTHERS)
    assert there.keys() - here.keys() == {".gitattributes"}
    card, pushed_card = here.pop("README.md").decode(), there.pop("README.md").decode()
    assert all(there[name] == content for name, content in here.items() if name in there)
    assert card.count(f'"{base.name}"') == 2 and pushed_card == card.replace(f'"{base.name}"', '"me/base"')
    sha = head(hub, "me/base").name
    code, out, err = result
    uploaded, left_out, pushed = out.splitlines()
    assert (code, err, pushed) == (0, "", f"pushed       {hub.endpoint}/me/base/commit/{sha}")
    assert uploaded == f"uploaded     {', '.join(sorted({*here, 'README.md'} - set(OTHERS)))}"
    assert left_out.startswith("left out     .cache/, .env, .git/, .hidden, .hidden.png, LICENSE.key, checkpoint-500/,")
    assert left_out.endswith("notebook.ipynb, notes.txt and 8 more")
    assert hub.messages[sha] == "Upload ELMo checkpoint"
    assert not [request for request in hub.requests if request[2] == 501]


def test_push_to_a_branch_leaves_main_unchanged(published):
    hub, _ = published
    assert tree(hub, "me/branch").keys() == {".gitattributes"}
    branch = {name: content for name, content in tree(hub, "me/branch", "v1").items() if name != "README.md"}
    assert branch == {name: content for name, content in tree(hub, "me/base").items() if name != "README.md"}
    assert hub.messages[head(hub, "me/branch", "v1").name] == "First\n\nwords"


@pytest.mark.parametrize(
    "name, repo, model_class, task",
    [
        ("tagger", f"{USER}/tagger", ElmoForTokenClassification, "token-classification"),
        ("shards", "me/shards", ElmoModel, "feature-extraction"),
    ],
)
def test_missing_card_is_added(checkpoints, published, name, repo, model_class, task):
    hub, _ = published
    path, _ = checkpoints[name]
    card = tree(hub, repo)["README.md"].decode()
    data = ModelCard(card).data.to_dict()
    assert (data["library_name"], data["pipeline_tag"]) == ("transformers", task) and "elmo" in data["tags"]
    assert set(re.findall(r'"([^"]*/[^"]*)"', usage(card))) == {repo}
    assert f"| parameters | {model_class.from_pretrained(path).num_parameters():,} |" in card
    assert not (path / "README.md").exists()


@pytest.fixture(scope="session")
def loaded(folder, published):
    """A folder with the arrays computed without the package, and each repository's class, module and usage output."""
    script = """
        import contextlib
        import io
        import re

        from huggingface_hub import hf_hub_download
        from transformers import AutoModel

        try:
            AutoModel.from_pretrained("me/private", trust_remote_code=True, token=False)
        except OSError as error:
            results["without token"] = str(error)
        for repo, options in args["repos"]:
            auto_class = "AutoModelForTokenClassification" if "tagger" in repo else "AutoModel"
            model, tokenizer = open_checkpoint(repo, auto_class, trust_remote_code=True, **options)
            np.savez(repo.replace("/", " ") + ".npz", **arrays_of(model, tokenizer, args["texts"]))
            card = open(hf_hub_download(repo, "README.md", **options), encoding="utf-8").read()
            with contextlib.redirect_stdout(io.StringIO()) as out:
                if not options:
                    exec(re.search("```python\\n(.*?)```", card, re.DOTALL)[1], {})
            results[repo] = [type(model).__name__, type(model).__module__, out.getvalue()]
    """
    hub, _ = published
    repos = [("me/base", {}), (f"{USER}/tagger", {}), ("me/shards", {}), ("me/converted", {})]
    repos += [("me/private", {"token": "hf_test"}), ("me/branch", {"revision": "v1"})]
    python = make_environment(folder / "environment")
    return folder / "loaded", run_script(python, script, folder / "loaded", hub, repos=repos, texts=TEXTS)


@pytest.mark.parametrize(
    "repo, name",
    [
        ("me/base", "base"),
        (f"{USER}/tagger", "tagger"),
        ("me/shards", "shards"),
        ("me/private", "base"),
        ("me/branch", "base"),
    ],
)
def test_loads_without_the_package(checkpoints, loaded, repo, name):
    there, results = loaded
    _, arrays = checkpoints[name]
    got = load_arrays(there / f"{repo.replace('/', ' ')}.npz")
    assert got.keys() == arrays.keys() and all(np.array_equal(got[key], arrays[key]) for key in arrays)
    model_class, module, _ = results[repo]
    assert model_class == ("ElmoForTokenClassification" if name == "tagger" else "ElmoModel")
    assert module.startswith("transformers_modules.")


def test_converted_model_loads_without_the_package(folder, published, loaded):
    """Convert bilm-tf's files, push the checkpoint and load it on a machine without the package."""
    there, _ = loaded
    model, tokenizer = [opened.from_pretrained(folder / "converted") for opened in (ElmoModel, ElmoTokenizer)]
    here, got = arrays_of(model, tokenizer, TEXTS), load_arrays(there / "me converted.npz")
    assert got.keys() == here.keys() and all(np.array_equal(got[key], here[key]) for key in here)


@pytest.mark.parametrize("repo", ["me/base", f"{USER}/tagger", "me/shards", "me/converted"])
def test_usage_runs_without_the_package(published, loaded, repo):
    hub, _ = published
    _, results = loaded
    out = results[repo][2]
    if "tagger" in repo:
        assert ast.literal_eval(out.replace("np.float32", "")) is not None
    else:
        shape, layers = re.findall(r"# (.*?):", usage(tree(hub, repo)["README.md"].decode()))
        assert out == f"torch.Size([{shape.strip('()')}])\n{layers}\n"


def test_private_repository_requires_a_token(published, loaded):
    hub, _ = published
    _, results = loaded
    assert "me/private" in results["without token"] and "token" in results["without token"]
    private = {path.parent.name for path in (hub.store / "models").glob("*/*/private")}
    assert private == {"private"}


# Repeated pushes


@pytest.fixture
def commits(hub):
    """The files of each commit that the Hub receives."""
    seen = []

    def before(request):
        if "/commit/" in request.url.path:
            values = [json.loads(line)["value"] for line in request.body.splitlines()]
            seen.append(sorted(value["path"] for value in values if "path" in value))

    hub.before = before
    return seen


def test_second_push_sends_only_changes(capsys, checkpoint, hub, commits):
    first = run(capsys, "push", checkpoint, "me/again")
    assert run(capsys, "push", checkpoint, "me/again") == first  # the URL of the same commit
    (checkpoint / "LICENSE").write_text("new")
    (checkpoint / "config.json").write_text((checkpoint / "config.json").read_text() + "\n")
    assert run(capsys, "push", checkpoint, "me/again", "--message", "Second")[0] == 0
    files = {path.name for path in checkpoint.iterdir()} | {"README.md"}
    assert commits == [sorted(files - {"LICENSE"}), ["LICENSE", "config.json"]]
    assert tree(hub, "me/again").keys() == files | {".gitattributes"}
    assert [method for method, _, _ in hub.requests].count("PUT") == 1


def test_other_files_in_the_repository_stay(capsys, checkpoint, hub):
    run(capsys, "push", checkpoint, "me/again")
    (checkpoint / "LICENSE").write_text("new")
    run(capsys, "push", checkpoint, "me/again")
    (checkpoint / "LICENSE").unlink()
    run(capsys, "push", checkpoint, "me/again")
    assert tree(hub, "me/again")["LICENSE"] == b"new"


def test_weights_of_an_earlier_push_are_replaced(capsys, checkpoints, checkpoint, hub):
    run(capsys, "push", checkpoint, "me/again")
    shards, arrays = checkpoints["shards"]
    run(capsys, "push", shards, "me/again")
    model = ElmoModel.from_pretrained(head(hub, "me/again"))
    assert np.array_equal(arrays_of(model, ElmoTokenizer(), TEXTS)["mix"], arrays["mix"])


def test_private_push_to_a_public_repository(capsys, checkpoint, hub):
    run(capsys, "push", checkpoint, "me/public")
    (checkpoint / "LICENSE").write_text("secret")
    assert_fails(run(capsys, "push", checkpoint, "me/public", "--private"), "me/public exists and is public")
    assert "LICENSE" not in tree(hub, "me/public")


def test_line_ends_of_a_readme_are_kept(capsys, checkpoint, hub):
    readme = b'# Mine\r\n\r\nElmoModel.from_pretrained("x")\r\n'
    (checkpoint / "README.md").write_bytes(readme)
    run(capsys, "push", checkpoint, "me/crlf")
    assert tree(hub, "me/crlf")["README.md"] == readme


# Failures of the Hub


def test_no_token(checkpoints, hub, tmp_path):
    env = hub.client_env(tmp_path / "home", token=None)
    assert_fails(elmo("push", checkpoints["base"][0], "me/none", env=env), "hf auth login", "HF_TOKEN")
    assert hub.requests == []


def test_offline(capsys, checkpoint, hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert_fails(run(capsys, "push", checkpoint, "me/none"), "HF_HUB_OFFLINE")
    assert hub.requests == []


def test_hub_is_unreachable(capsys, checkpoint, tmp_path, monkeypatch):
    with LoopbackHub(tmp_path / "store") as gone:
        use_only(gone, monkeypatch, tmp_path)
    assert_fails(run(capsys, "push", checkpoint, "me/none"), "cannot be reached", "check the network")


def hang_up(request):
    raise ConnectionResetError


def answer(status, message):
    def refuse(request):
        raise HubError(status, message)

    return refuse


def login_page(request):
    """Answer like the login page of a public network."""
    request.reply(200, b"<html>Welcome</html>")
    raise ConnectionResetError


def reply(body):
    """Return a failure: an answer that is JSON, but not the Hub's."""

    def fail(request):
        request.reply(200, body)
        raise ConnectionError

    return fail


def cut_off(request):
    request.send_response(200)
    request.send_header("Content-Length", 1000)
    request.end_headers()
    request.wfile.write(b'{"id":')
    raise ConnectionError


ANSWERS = ["repos/create", "GET /api/models", "preupload", "lfs/objects/batch", "/commit/"]


@pytest.mark.parametrize(
    "where, fail, parts",
    [
        ("whoami", answer(401, "Invalid credentials"), ["refused the token", "settings/tokens"]),
        ("repos/create", answer(401, "Invalid credentials"), ["refused the token"]),
        ("repos/create", answer(403, "No rights"), ["does not have write access to me/failing"]),
        ("preupload", answer(403, "No rights"), ["does not have write access to me/failing"]),
        ("lfs/objects/batch", answer(403, "No rights"), ["does not have write access to me/failing"]),
        ("/commit/", answer(403, "No rights"), ["does not have write access to me/failing"]),
        ("whoami", answer(500, "It is raining"), ["me/failing", "It is raining"]),
        ("repos/create", answer(503, "It is raining"), ["me/failing", "It is raining"]),
        ("preupload", answer(500, "It is raining"), ["me/failing", "It is raining"]),
        ("/commit/", answer(500, "It is raining"), ["me/failing", "It is raining"]),
        ("/commit/", answer(413, "Too much"), ["me/failing", "Too much"]),
        ("whoami", answer(429, "Too often"), ["me/failing", "429"]),
        ("whoami", hang_up, ["cannot be reached", "try again"]),
        ("repos/create", hang_up, ["cannot be reached", "try again"]),
        ("preupload", hang_up, ["cannot be reached", "try again"]),
        ("lfs/objects/batch", hang_up, ["cannot be reached", "try again"]),
        ("/commit/", hang_up, ["cannot be reached", "try again"]),
        ("PUT", hang_up, ["cannot be reached", "try again"]),
        ("PUT", answer(403, "No rights"), ["does not have write access"]),
        ("whoami", login_page, ["Hub"]),
        ("whoami", answer(403, "\x1b[31mRed"), ["does not have write access", "Red"]),
        ("PUT", answer(413, "Too large"), ["refused", "413", "Too large"]),
        ("branch", answer(500, "It is raining"), ["could not accept", "500"]),
        ("/commit/", answer(409, "Conflict"), ["refused", "409"]),
        ("/commit/", answer(412, "Refresh"), ["refused", "412"]),
        *((where, reply(body), ["not from the Hub"]) for where in ANSWERS for body in (b"null", b"[]", b'"x"')),
        *((where, reply(b"{}"), ["not from the Hub"]) for where in ("create", "GET /api/models", "/commit/")),
        *((where, cut_off, ["cannot be reached"]) for where in ("whoami", *ANSWERS)),
    ],
)
def test_hub_fails(capsys, checkpoint, hub, where, fail, parts):
    hub.before = lambda request: fail(request) if where in f"{request.command} {request.url.path}" else None
    result = run(capsys, "push", checkpoint, "me/failing", *(["--revision", "v1"] if where == "branch" else []))
    assert_fails(result, *parts)
    assert result[2].rstrip("\n").isprintable()
    if (hub.store / "models").exists():  # nothing was pushed partially
        assert tree(hub, "me/failing").keys() == {".gitattributes"}
    hub.before = lambda request: None
    close_session()  # the server may be closing a connection that would be used again
    assert run(capsys, "push", checkpoint, "me/failing")[0] == 0


def test_temporary_failures_are_retried(capsys, checkpoint, hub):
    failures = iter([hang_up, answer(503, "It is raining")])
    hub.before = lambda request: next(failures, lambda _: None)(request) if request.command == "PUT" else None
    assert run(capsys, "push", checkpoint, "me/short")[0] == 0
    assert "model.safetensors" in tree(hub, "me/short")


@pytest.mark.parametrize("from_file", [False, True])
def test_refused_token(capsys, checkpoint, hub, tmp_path, monkeypatch, from_file):
    def before(request):
        if request.token == "Bearer hf_bad":
            raise HubError(401, "Invalid credentials in Authorization header")

    hub.before = before
    monkeypatch.setenv("HF_TOKEN", "" if from_file else "hf_bad")
    (tmp_path / "token").write_text("hf_bad")
    result = run(capsys, "push", checkpoint, "me/none")
    assert_fails(result, "refused the token")
    assert "hf_bad" not in result[2]
    assert [path for _, path, _ in hub.requests] == ["/api/whoami-v2"]


def test_token_that_is_not_ascii(capsys, checkpoint, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_tökén")
    result = run(capsys, "push", checkpoint, "me/none")
    assert_fails(result, "token")
    assert "tökén" not in result[2]


def test_trusted_publisher_without_an_id_token(capsys, checkpoint, hub, monkeypatch):
    monkeypatch.setenv("HF_OIDC_RESOURCE", "me/none")
    assert_fails(run(capsys, "push", checkpoint, "me/none"), "HF_OIDC_RESOURCE")


@pytest.mark.parametrize("repo", ["a/b/c", "with space", "", "a--b", "x.git", "me/", "/x", "x" * 97])
def test_invalid_repository_names(capsys, checkpoint, hub, repo):
    assert_fails(run(capsys, "push", checkpoint, repo), f"name like user/elmo; got {repo!r}")
    assert not (hub.store / "models").exists()


def test_ctrl_c_during_an_upload(checkpoint, hub, tmp_path):
    reached, over = threading.Event(), threading.Event()

    def before(request):
        if request.command == "PUT":
            reached.set()
            over.wait(120)

    hub.before = before
    command = [sys.executable, "-m", "transformers_elmo.command", "push", checkpoint, "me/stopped"]
    env = hub.client_env(tmp_path / "home")
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert reached.wait(120)
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=60)
        over.set()
    assert (process.returncode, *output) == (130, "", "elmo: stopped\n")
    assert tree(hub, "me/stopped").keys() == {".gitattributes"}


# Bad folders, which never reach the Hub


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "model.safetensors",
        "tokenizer_config.json",
        "tokenizer.json",
    ],
)
def test_missing_file_is_named(capsys, checkpoint, hub, name):
    (checkpoint / name).unlink()
    assert_fails(run(capsys, "push", checkpoint, "me/none"), checkpoint, f"it lacks {name}:")
    assert hub.requests == []


def test_all_missing_files_are_named(capsys, hub, tmp_path):
    (tmp_path / "empty").mkdir()
    names = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    assert_fails(run(capsys, "push", tmp_path / "empty", "me/none"), tmp_path / "empty", *names)
    assert hub.requests == []


def test_missing_shard_is_named(capsys, checkpoints, hub, tmp_path):
    path = shutil.copytree(checkpoints["shards"][0], tmp_path / "shards")
    shard = sorted(path.glob("model-*.safetensors"))[1]
    shard.unlink()
    assert_fails(run(capsys, "push", path, "me/none"), shard.name)


def test_folder_does_not_exist(capsys, hub, tmp_path):
    assert_fails(run(capsys, "push", tmp_path / "nowhere", "me/none"), tmp_path / "nowhere", "does not exist")
    assert hub.requests == []


def test_folder_is_a_file(capsys, checkpoint, hub):
    code, out, err = run(capsys, "push", checkpoint / "model.safetensors", "me/none")
    assert_fails((code, out, err), checkpoint / "model.safetensors", "folder")
    assert "does not exist" not in err and hub.requests == []


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999], ids="empty in_the_header in_the_middle at_the_end".split())
def test_truncated_weights(capsys, checkpoint, hub, share):
    weights = checkpoint / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[: int(share * weights.stat().st_size)])
    assert_fails(run(capsys, "push", checkpoint, "me/none"), weights, "truncated")
    assert hub.requests == []


@pytest.mark.parametrize(
    "content, parts",
    [
        (b'{"model_type": "bert"}', ["must describe an ELMo model", "bert"]),
        (b'{"model_type": null}', ["must describe an ELMo model"]),
        (b'{"model_type": "elmo"', ["config.json", "must be JSON"]),
        (b"", ["config.json", "must be JSON"]),
        (b"{}", ["config.json"]),
        (b"[]", ["config.json"]),
        (b'"elmo"', ["config.json"]),
        (b"\xff\xfe{}", ["config.json"]),
        (b'{"model_type": "elmo", "inputs": "bytes"}', ["inputs must be one of"]),
        (b'{"model_type": "elmo", "lstm_dim": "wide"}', ["lstm_dim"]),
    ],
)
def test_invalid_configurations(capsys, checkpoint, hub, content, parts):
    (checkpoint / "config.json").write_bytes(content)
    assert_fails(run(capsys, "push", checkpoint, "me/none"), *parts)
    assert hub.requests == []


@pytest.mark.parametrize(
    "name, content, part",
    [
        ("model.safetensors", b"\x02" + bytes(7) + b"{}", "must contain the weights of a model"),
        ("model.safetensors", b"\x02" + bytes(7) + b"[]", "must be a safetensors file"),
        ("model.safetensors", (10**15).to_bytes(8, "little") + b"{}", "must be a safetensors file"),
        ("tokenizer.json", b"{", "tokenizer.json must be JSON"),
        ("tokenizer.json", b"[" * 100_000, "tokenizer.json must be JSON"),
        ("tokenizer_config.json", b"", "tokenizer_config.json must be JSON"),
        ("tokenizer_config.json", b"[]", "tokenizer_config.json must be a JSON object"),
        ("README.md", "# Mine".encode("utf-16"), "must be UTF-8 text"),
    ],
)
def test_damaged_files(capsys, checkpoint, hub, name, content, part):
    (checkpoint / name).write_bytes(content)
    assert_fails(run(capsys, "push", checkpoint, "me/none"), checkpoint, part)
    assert hub.requests == []


@pytest.mark.parametrize(
    "name, change, part",
    [
        ("config.json", {"lstm_dim": 9}, "contradict its configuration"),
        ("config.json", {"num_hidden_layers": 3}, "contradict its configuration"),
        ("config.json", {"max_characters_per_token": 40}, "must match its config.json"),
        ("config.json", {"architectures": ["ElmoForPreTraining"]}, "lm_head.bias is missing"),
        ("tokenizer_config.json", {"max_characters_per_token": 40}, "must match its config.json"),
    ],
)
def test_files_that_do_not_belong_together(capsys, checkpoint, hub, name, change, part):
    content = json.loads((checkpoint / name).read_text())
    (checkpoint / name).write_text(json.dumps(content | change))
    assert_fails(run(capsys, "push", checkpoint, "me/none"), checkpoint, part)
    assert hub.requests == []


def test_weights_that_are_not_numbers(capsys, checkpoint, hub):
    weights = load_file(checkpoint / "model.safetensors")
    save_file(weights | {"elmo.mix.gamma": np.float32([np.nan])}, checkpoint / "model.safetensors", {"format": "pt"})
    assert_fails(run(capsys, "push", checkpoint, "me/none"), checkpoint, "mix.gamma contains NaN")
    assert hub.requests == []


def test_where_a_checkpoint_was_loaded_from_is_not_published(capsys, checkpoint, hub):
    for name in ("config.json", "tokenizer_config.json"):
        content = json.loads((checkpoint / name).read_text())
        (checkpoint / name).write_text(
            json.dumps(content | dict.fromkeys(["_name_or_path", "name_or_path"], "/home/me"))
        )
    assert run(capsys, "push", checkpoint, "me/mine")[0] == 0
    assert not any(b"/home/me" in content for content in tree(hub, "me/mine").values())


@pytest.mark.parametrize("weight_map", [None, [], {"mix.gamma": [1]}, {}], ids=str)
def test_invalid_index(capsys, checkpoint, hub, weight_map):
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert_fails(run(capsys, "push", checkpoint, "me/none"), checkpoint, "model.safetensors.index.json")
    assert hub.requests == []


@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to(path.name)], ids=["folder", "pipe", "loop"]
)
def test_names_that_are_no_files(capsys, checkpoint, hub, make):
    for name in ("README.md", "LICENSE"):
        make(checkpoint / name)
    assert run(capsys, "push", checkpoint, "me/odd")[0] == 0
    assert "LICENSE" not in tree(hub, "me/odd") and b"## Usage" in tree(hub, "me/odd")["README.md"]
    (checkpoint / "config.json").unlink()
    make(checkpoint / "config.json")
    assert_fails(run(capsys, "push", checkpoint, "me/odd"), "it lacks config.json")


@pytest.mark.parametrize("text", ["<img ", "![", "![](", "![](a\0.png)", f"![]({'x' * 999}.png)", "<img src=", "---\n"])
def test_readme_with_much_of_one_kind(capsys, checkpoint, hub, text):
    """Pictures are found in linear time, and names that no file can have are passed over."""
    (checkpoint / "README.md").write_text("# Mine\n" + text * (100_000 // len(text)))
    assert run(capsys, "push", checkpoint, "me/mine")[0] == 0


def test_readme_that_is_not_utf_8(capsys, checkpoint, hub):
    (checkpoint / "README.md").write_bytes(b"na\xefve")
    assert_fails(run(capsys, "push", checkpoint, "me/none"), checkpoint / "README.md")
    assert not (hub.store / "models").exists()


@pytest.mark.parametrize(
    "metadata",
    [
        "a: [",
        "- 1",
        "text",
        "[" * 1200,
        "model-index: 3",
        "tags: 3",
        "? [a]\n: b",
        "a: !!python/object/apply:os.getcwd []",
    ],
    ids=range(8),
)
def test_readme_with_broken_metadata(capsys, checkpoint, hub, metadata):
    (checkpoint / "README.md").write_text(f"---\n{metadata}\n---\n# Mine\n")
    assert_fails(run(capsys, "push", checkpoint, "me/none"), checkpoint / "README.md", "YAML")
    assert hub.requests == []


@pytest.mark.parametrize(
    "readme", ["", "# Mine\n", "---\nlicense: mit\n---\n", "\ufeff---\na: b\n---\n", "---\r\na: b\r\n---\r\n"]
)
def test_readme_is_pushed_unchanged(capsys, checkpoint, hub, readme):
    (checkpoint / "README.md").write_bytes(readme.encode())
    assert run(capsys, "push", checkpoint, "me/mine")[0] == 0
    assert tree(hub, "me/mine")["README.md"] == readme.encode()


@pytest.mark.parametrize(
    "name", ["README.md", "config.json", "model.safetensors", "tokenizer.json", "modeling_elmo.py", "LICENSE", "a.png"]
)
def test_link_out_of_the_folder(capsys, checkpoint, hub, tmp_path, name):
    (checkpoint / "README.md").write_text("![](a.png)")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    if (checkpoint / name).is_file():
        shutil.move(checkpoint / name, secret)
    (checkpoint / name).symlink_to(secret)
    assert_fails(run(capsys, "push", checkpoint, "me/none"), checkpoint / name, "links to", secret, "copy it there")
    assert hub.requests == []


def test_links_that_are_followed_or_left_out(capsys, checkpoint, hub, tmp_path):
    """A link within the folder is followed, and so is one to the folder; other links are not uploaded at all."""
    (checkpoint / "weights").mkdir()
    (checkpoint / "model.safetensors").rename(checkpoint / "weights" / "mine")
    (checkpoint / "model.safetensors").symlink_to("weights/mine")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "a.png").write_text("secret")
    for name, target in (("notes", "/etc/hostname"), ("loop", "."), ("dead", "nowhere"), ("more", tmp_path / "secret")):
        (checkpoint / name).symlink_to(target)
    (tmp_path / "link").symlink_to(checkpoint)
    code, out, err = run(capsys, "push", tmp_path / "link", "me/links")
    assert (code, err) == (0, "") and "left out     dead, loop/, more/, notes, weights/\n" in out
    pushed = tree(hub, "me/links")
    assert pushed["model.safetensors"] == (checkpoint / "weights" / "mine").read_bytes()
    assert not {"dead", "notes", "weights/mine", "more/a.png"} & pushed.keys()
    (checkpoint / "README.md").write_text("![](more/a.png)")
    assert_fails(run(capsys, "push", checkpoint, "me/links"), "links to", tmp_path / "secret" / "a.png")


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/passwd", "model.safetensors.index.json", "", "x\0y", "a"]
)
def test_index_that_names_other_files(capsys, checkpoint, hub, name):
    (checkpoint / "model.safetensors").unlink()
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"mix.gamma": name}}))
    assert_fails(run(capsys, "push", checkpoint, "me/none"), "model-00001-of-00002.safetensors")
    assert hub.requests == []


def test_checkpoint_without_code_gets_it(capsys, hub, tmp_path):
    """The default checkpoint has neither code nor auto_map; in the repository it has both."""
    folder = shutil.copytree(DEFAULT_CHECKPOINT, tmp_path / "copy")
    assert run(capsys, "push", folder, "me/default")[0] == 0
    pushed = tree(hub, "me/default")
    assert all(pushed[name] == (Path(configuration_elmo.__file__).parent / name).read_bytes() for name in HUB_FILES)
    for name, auto_map in (
        ("config.json", configuration_elmo.AUTO_MAP),
        ("tokenizer_config.json", {"AutoTokenizer": ["tokenization_elmo.ElmoTokenizer", None]}),
    ):
        here = json.loads((folder / name).read_text())
        assert "auto_map" not in here and json.loads(pushed[name]) == here | {"auto_map": auto_map}
    assert "curves.png" in pushed and not {path.name for path in folder.iterdir()} & set(HUB_FILES)


def test_code_of_two_versions_is_not_mixed(capsys, checkpoint, hub):
    """Code that a folder has in part is replaced, and so is an auto_map that names the code of another repository."""
    (checkpoint / "modeling_elmo.py").write_text("raise SystemExit")
    (checkpoint / "lstm_elmo.py").unlink()
    config = json.loads((checkpoint / "config.json").read_text())
    config["auto_map"] = {key: f"some/body--{value}" for key, value in config["auto_map"].items()}
    (checkpoint / "config.json").write_text(json.dumps(config))
    assert run(capsys, "push", checkpoint, "me/mended")[0] == 0
    pushed = tree(hub, "me/mended")
    assert all(pushed[name] == (Path(configuration_elmo.__file__).parent / name).read_bytes() for name in HUB_FILES)
    assert json.loads(pushed["config.json"])["auto_map"] == configuration_elmo.AUTO_MAP


def test_file_names_that_cannot_be_printed(capsys, checkpoint, hub):
    for name in (b"caf\xe9", b"two\nlines", b"\x1b[31mred"):
        (Path(os.fsdecode(os.fsencode(checkpoint) + b"/" + name))).write_bytes(b"")
    code, out, err = run(capsys, "push", checkpoint, "me/odd")
    assert (code, err) == (0, "") and "left out     \\x1b[31mred, caf\\udce9, two\\nlines\n" in out


@pytest.mark.parametrize(
    "revision",
    ["", " ", "a b", "../x", "a..b", "-x", "x" * 300, "a\nb", "v1\n", "a/", "a//b", "\udcff", "x.lock", "HEAD~1"],
)
def test_revisions_that_are_not_branches(capsys, checkpoint, hub, revision):
    assert_fails(
        run(capsys, "push", checkpoint, "me/odd", f"--revision={revision}"), "branch like v1", f"{revision!r:.80}"
    )
    assert hub.requests == []


@pytest.mark.parametrize("revision", ["v1.0", "feature/x-1", "ö"])
@pytest.mark.parametrize("message", ["", "a\nb", "\udcff", "x" * 5000, '{"key": "deletedFile"}'])
def test_revisions_and_messages(capsys, checkpoint, hub, revision, message):
    code, _, err = run(capsys, "push", checkpoint, "me/odd", "--revision", revision, "--message", message)
    assert (code, err) == (0, "") and tree(hub, "me/odd").keys() == {".gitattributes"}
    (hub.store / "models/me/odd/refs" / quote(revision, safe="")).read_text()


# Pushed by `elmo convert`


@pytest.fixture
def converted(checkpoint, hub, monkeypatch):
    """Replace the conversion by a copy; return a list of the Hub paths that were requested before each call."""
    calls = []

    def copy(source, output, *arguments, **options):
        calls.append([path for _, path, _ in hub.requests])
        shutil.copytree(checkpoint, output)

    convert = job.convert
    for module in [module for name, module in sys.modules.items() if name.startswith("transformers_elmo.")]:
        if getattr(module, "convert", None) is convert:
            monkeypatch.setattr(module, "convert", copy)
    return calls


def test_conversion_is_pushed(capsys, hub, converted, tmp_path):
    options = ["--push-to-hub", "me/converted", "--private", "--revision", "v1", "--message", "Mine"]
    code, out, err = run(capsys, "convert", tmp_path / "source", "-o", tmp_path / "out", *options)
    sha = head(hub, "me/converted", "v1").name
    assert (code, err) == (0, "") and out.endswith(f"\npushed       {hub.endpoint}/me/converted/commit/{sha}\n")
    assert converted == [["/api/whoami-v2"]]
    assert "model.safetensors" in tree(hub, "me/converted", "v1") and hub.messages[sha] == "Mine"
    assert (hub.store / "models/me/converted/private").exists()


@pytest.mark.parametrize(
    "token, fail, repo, part",
    [
        ("", None, "me/none", "hf auth login"),
        ("hf_test", answer(401, "Invalid credentials"), "me/none", "refused the token"),
        ("hf_test", hang_up, "me/none", "cannot be reached"),
        ("hf_test", None, "a/b/c", "name like"),
    ],
    ids=["no token", "refused token", "no Hub", "invalid name"],
)
def test_nothing_is_converted_if_it_cannot_be_pushed(
    capsys, hub, converted, tmp_path, monkeypatch, token, fail, repo, part
):
    monkeypatch.setenv("HF_TOKEN", token)
    hub.before = fail or hub.before
    assert_fails(run(capsys, "convert", tmp_path / "source", "-o", tmp_path / "out", "--push-to-hub", repo), part)
    assert converted == [] and not (tmp_path / "out").exists()
