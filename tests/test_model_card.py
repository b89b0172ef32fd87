"""The model card: metadata, usage, architecture, and the section of a conversion's source."""

import ast
import re
from dataclasses import replace

import pytest
from huggingface_hub import ModelCard

from helpers.models import tiny_config
from transformers_elmo import ElmoForTokenClassification, ElmoModel, ElmoTokenizer
from transformers_elmo.convert.card import Provenance
from transformers_elmo.convert.verification import Parity, Verification
from transformers_elmo.model_card import model_card, rename_usage, write_model_card

ROWS = [Parity("words", 1.25, 1e-7), Parity("lstm_1", 0.75, 2e-7), Parity("mix", 2.0, 4e-7)]
PROVENANCE = Provenance(
    "bilm-tf weights", [("a.hdf5", 12345, "ab" * 32)], Verification(ROWS, 8, 120), ["No softmax.", "No mix."]
)


@pytest.mark.parametrize(
    "inputs, rows",
    [
        ("characters", ["characters", "filters"]),
        ("words", ["words"]),
        ("words+characters", ["characters", "filters", "words"]),
    ],
)
@pytest.mark.parametrize("projection", [5, None])
def test_architecture(inputs, rows, projection):
    config = tiny_config(inputs=inputs, projection_dim=projection)
    text = model_card(config, "me/elmo", 1234567).partition("## Architecture")[2]
    table = dict(re.findall(r"^\| (\S+) \| (.*) \|$", text, re.MULTILINE))
    assert list(table) == ["parameters", *rows, "LSTM", *(["projection"] if projection else []), "options"]
    assert table["parameters"] == "1,234,567" and table["LSTM"] == "2 layers x 2 directions x 7 cells"
    assert table.get("characters", "8, up to 12 per word") == "8, up to 12 per word"
    assert table.get("words", "10") == "10" and table.get("projection", "5") == "5"


@pytest.mark.parametrize("architecture", [None, "ElmoModel", "ElmoForPreTraining", "ElmoForTokenClassification"])
@pytest.mark.parametrize("options", [{}, {"language": "pt"}, {"license": "mit"}, {"language": "en", "license": "mit"}])
def test_metadata(architecture, options):
    config = tiny_config(architectures=architecture and [architecture])
    card = ModelCard(model_card(config, "me/elmo", 1, **options))
    data = card.data.to_dict()
    assert {name: data.pop(name) for name in options} == options
    assert data.keys() == {"library_name", "pipeline_tag", "tags"} and "elmo" in data["tags"]
    is_tagger = architecture == "ElmoForTokenClassification"
    assert data["pipeline_tag"] == ("token-classification" if is_tagger else "feature-extraction")
    assert card.text.startswith("\n# elmo\n")


@pytest.mark.parametrize("notes", [[], ["No softmax."], ["No softmax.", "No mix."]])
def test_source_and_parity(notes):
    bare = model_card(tiny_config(), "me/elmo", 1, title="Mine")
    card = model_card(tiny_config(), "me/elmo", 1, title="Mine", sections=[replace(PROVENANCE, notes=notes).section()])
    assert "\n# Mine\n" in bare and "## Source" not in bare and "## Parity" not in bare
    assert card.startswith(bare)
    source, parity = card.removeprefix(bare).split("\n\n## Parity\n\n")
    assert "from bilm-tf weights:\n\n|" in source and f"| `a.hdf5` | 12,345 | `{'ab' * 32}` |" in source
    assert re.findall(r"^- (.*)$", source, re.MULTILINE) == notes
    assert "120 words in 8 sentences" in " ".join(parity.split()) and "1e-05" in parity
    rows = re.findall(r"^\| (\w+) \| (\S+) \| (\S+) \|$", parity, re.MULTILINE)
    assert rows == [(row.name, f"{row.largest:.2f}", f"{row.difference:.1e}") for row in ROWS]


@pytest.mark.parametrize("inputs", ["characters", "words", "words+characters"])
def test_paragraphs_are_filled(inputs):
    card = model_card(tiny_config(inputs=inputs), "me/elmo", 1, sections=[PROVENANCE.section()])
    text = re.sub(r"```.*?```", "", ModelCard(card).text, flags=re.DOTALL).strip()
    prose = [p.splitlines() for p in re.split(r"\n\n+", text) if not p.startswith(("#", "|", "-"))]
    assert len(prose) == 4
    for *lines, last in prose:
        assert last.endswith((".", ":")) and len(last) <= 120
        assert all(60 < len(line) <= 120 for line in lines)


@pytest.mark.parametrize("sections", [[], [PROVENANCE.section()], [replace(PROVENANCE, notes=[]).section()]])
def test_blank_lines(sections):
    card = model_card(tiny_config(), "me/elmo", 1, sections=sections)
    assert not re.search(r"\n\n\n|[ \t]$", card, re.MULTILINE) and card.endswith("|\n")
    # Markdown needs blank lines around tables and headings.
    assert not re.search(r"[^|\n]\n\|", card) and not re.search(r"\|\n[^|\n]", card)
    assert not re.search(r"[^\n]\n## |## .*\n[^\n]", card)


@pytest.mark.parametrize("architecture", ["ElmoModel", "ElmoForTokenClassification"])
@pytest.mark.parametrize("name", ["/a b/c", "pt", "bank", "first", "token-classification"])
def test_rename_usage(architecture, name):
    """The usage of a card made here loads the new name; other cards stay as they are."""
    config = tiny_config(architectures=[architecture])
    old, new = [model_card(config, loaded, 1, title="Mine") for loaded in (name, "me/new")]
    assert rename_usage(old, "me/new") == new
    assert rename_usage(new, "me/new") == new
    for other in ("no usage", 'BertModel.from_pretrained("bert-base-cased")\r\n'):
        assert rename_usage(other, "me/elmo") == other


@pytest.mark.parametrize(
    "model_class, task",
    [(ElmoModel, "feature-extraction"), (ElmoForTokenClassification, "token-classification")],
)
def test_write_model_card(tmp_path, model_class, task):
    model = model_class(tiny_config())
    write_model_card(model, tmp_path)
    written = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert ModelCard(written).data.pipeline_tag == task
    assert f"\n# {tmp_path.name}\n" in written and written.count(f'"{tmp_path.name}"') >= 1
    assert tmp_path.as_posix() not in written
    assert f"| parameters | {model.num_parameters():,} |" in written
    (tmp_path / "README.md").unlink()
    write_model_card(model, str(tmp_path), "me/my-elmo")
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == rename_usage(
        written.replace(f"# {tmp_path.name}\n", "# my-elmo\n"), "me/my-elmo"
    )


def test_write_model_card_keeps_an_existing_one(tmp_path):
    (tmp_path / "README.md").write_text("Mine")
    write_model_card(ElmoModel(tiny_config()), tmp_path, "me/my-elmo")
    assert (tmp_path / "README.md").read_text() == "Mine"


@pytest.mark.parametrize(
    "name, shown",
    [
        ("me/my-elmo", "me/my-elmo"),
        ("my-elmo", "my-elmo"),
        ("out/my.elmo_1", "out/my.elmo_1"),  # a folder in the working directory
        ("/home/me/secret/my-elmo", "my-elmo"),
        ("/home/me/secret/my-elmo/", "my-elmo"),
        ("../secret/my-elmo", "my-elmo"),
        ("a/b/c", "c"),
        ("./x", "x"),
        ("/", "elmo"),
        ("/a b/ç d", "ç d"),
        ('/x/a"); import os; ("', "a_); import os; (_"),
        ("/x/a\nb\x1b", "a_b_"),
        ("/x/a\\", "a_"),
        ("/x/{name}", "{name}"),
        ("/x/caf\udce9", "caf_"),
    ],
)
@pytest.mark.parametrize("architecture", ["ElmoModel", "ElmoForTokenClassification"])
def test_card_shows_no_local_folder_and_valid_code(name, shown, architecture):
    card = model_card(tiny_config(architectures=[architecture]), name, 1)
    code = re.search(r"```python\n(.*?)```", card, re.DOTALL)[1]
    constants = [node.value for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Constant)]
    assert shown in constants and f"\n# {shown.split('/')[-1]}\n" in card
    assert "secret" not in card and "home" not in card
    assert rename_usage(card, "me/new").count('"me/new"') == card.count(f'"{shown}", trust')
    card.encode()


@pytest.mark.parametrize(
    "text, shown",
    [
        ("elmo pretrain /home/me/a.txt -o /home/me/out --steps 5", "elmo pretrain a.txt -o out --steps 5"),
        ("elmo pretrain '/home/me/my text/train-*.gz'", "elmo pretrain 'my text/train-*.gz'"),
        ("elmo pretrain ~/a.txt ~me/b.txt ../../c.txt --output=/x/out", "elmo pretrain a.txt b.txt c.txt --output=out"),
        (r"elmo pretrain C:\Users\me\a.txt \\host\share\b.txt", "elmo pretrain a.txt b.txt"),
        ("of `/data/a.txt`, `b.txt` (/data/c)", "of `a.txt`, `b.txt` (c)"),
        ("text/novels/a.txt softmax/W 3 / 4 and/or n/a", "text/novels/a.txt softmax/W 3 / 4 and/or n/a"),
        ("https://github.com/a/b [x](https://a.b/c) </S>", "https://github.com/a/b [x](https://a.b/c) </S>"),
    ],
)
def test_sections_show_no_local_folders(text, shown):
    assert model_card(tiny_config(), "me/elmo", 1, sections=[text]).endswith(f"|\n\n{shown}")


@pytest.mark.parametrize(
    "value",
    ["no", "en", "a: b", "a\nb: c", "x\n---\n# y", "'", '"', "[1]", "{a: 1}", "&a *a", "!!int 3", "#", "\t"],
)
def test_metadata_that_looks_like_yaml(value):
    """Any text stays a text, in one block of metadata."""
    data = ModelCard(model_card(tiny_config(), "me/elmo", 1, value, value)).data
    assert (data.language, data.license) == (value, value)


def test_card_with_bytes_that_are_not_utf_8(tmp_path):
    card = model_card(tiny_config(), "me/elmo", 1, "caf\udce9", None, "t\udcff\nitle", ["of `caf\udce9.txt`\n"])
    assert "# t? itle\n" in card and "`caf?.txt`" in card
    (tmp_path / "README.md").write_text(card, encoding="utf-8")


def test_saved_checkpoints_show_no_local_folder(tmp_path):
    """Neither those of new models and tokenizers nor those of loaded ones."""
    folders = [tmp_path / "secret" / name for name in ("one", "two")]
    ElmoModel(tiny_config()).save_pretrained(folders[0])
    ElmoTokenizer(max_characters_per_token=12).save_pretrained(folders[0])
    ElmoForTokenClassification.from_pretrained(folders[0]).save_pretrained(folders[1])
    ElmoTokenizer.from_pretrained(folders[0]).save_pretrained(folders[1])
    for folder in folders:
        assert all(b"secret" not in path.read_bytes() for path in folder.iterdir())
