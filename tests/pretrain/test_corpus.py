"""Raw text to a corpus: against a splitter and a counter that read word by word, and from files and other sources."""

import json
import os
import tempfile
import tracemalloc
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.text_files import TEXT, TEXT_FILES, gzipped, write_parquet
from transformers_elmo import text as text_module
from transformers_elmo.pretrain import corpus as corpus_module
from transformers_elmo.pretrain import output as output_module
from transformers_elmo.pretrain.corpus import CLOSING_MARKS, SENTENCE_ENDS, Corpus, Splitting, corpus_from_files
from transformers_elmo.text import read_texts
from transformers_elmo.tokenization_elmo import ElmoTokenizer

TOKENIZER = ElmoTokenizer()
SPECIALS = {"<PAD>", "<S>", "</S>", "<UNK>"}
ALREADY_SPLIT = {"pretokenized": True, "one_sentence_per_line": True}
TEXT_SENTENCES = "The cat sat . / It sat ! / Löwen roar , Mr. Smith / The cat 的"


def build(texts, folder, tokenizer=TOKENIZER, **splitting):
    return Corpus.build(texts, Path(folder) / "corpus", tokenizer, Splitting(**splitting))


def sentences_of(corpus):
    """Join words by spaces and sentences by slashes."""
    return " / ".join(
        " ".join(corpus.words[number] for number in corpus.tokens[start:end])
        for start, end in pairwise(corpus.offsets.tolist())
    )


def contents(corpus):
    return corpus.words, corpus.counts.tolist(), corpus.tokens.tolist(), corpus.offsets.tolist()


def split(text, folder, **splitting):
    return sentences_of(build([text], folder, **splitting))


def read(path, folder, **splitting):
    return build(read_texts([path]), folder, **splitting)


def naive_lines(text, splitting):
    for line in text.split("\n"):
        line = " ".join(word for word in line.split() if word not in {*SPECIALS, *splitting.drop_tokens})
        if splitting.pretokenized:
            yield line.split()
        else:
            yield [word for word, _ in TOKENIZER.backend_tokenizer.pre_tokenizer.pre_tokenize_str(line)]


def naive_sentences(words):
    """Go word by word: has a sentence ended, and which quotes are open?"""
    sentences, sentence, ended, opened = [], [], False, {'"': False, "'": False}
    for word in words:
        is_end = word in SENTENCE_ENDS or set(word) == {"."}
        if ended and not (is_end or word in CLOSING_MARKS or opened.get(word)):
            ended = False
            if not word[0].islower():
                sentences.append(sentence)
                sentence = []
        sentence.append(word)
        ended = ended or is_end
        if word in opened:
            opened[word] = not opened[word]
    return [*sentences, sentence]


def naive_corpus(texts, splitting):
    sentences = []
    for text in texts:
        for words in naive_lines(text, splitting):
            sentences += [words] if splitting.one_sentence_per_line else naive_sentences(words)
    sentences = [sentence for sentence in sentences if sentence]
    counts = Counter(word for sentence in sentences for word in sentence)  # in the order of their first appearance
    words = sorted(counts, key=lambda word: -counts[word])
    numbers = {word: number for number, word in enumerate(words)}
    tokens = [numbers[word] for sentence in sentences for word in sentence]
    return words, [counts[word] for word in words], tokens, np.cumsum([0, *map(len, sentences)]).tolist()


PIECES = "The the Mr. U.S. etc. . ! ? .. ... .... … 。 \" ' ” ) ( ] 's don't dogs' 5 No. <S> <UNK> <unk> 的 é".split()
SPACES = [" ", "\n", "\r\n", "\x01", "\u2028", "\t"]
TEXTS = st.lists(st.lists(st.sampled_from(PIECES + SPACES + [" "] * 30), max_size=60).map("".join), max_size=4)


@given(
    TEXTS, st.booleans(), st.booleans(), st.sampled_from([(), ("<unk>",), ("The", ".")]), st.sampled_from([1, 3, 4096])
)
@example(["\x01\nThe cat\n\x01 \x01\n"], False, False, (), 1)
@example(["\x01\nThe cat\n\x01 \x01\n"], False, True, (), 4096)
def test_equals_naive_splitter(texts, pretokenized, one_sentence_per_line, drop_tokens, batch_lines):
    splitting = Splitting(pretokenized, one_sentence_per_line, drop_tokens)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_module, "BATCH_LINES", batch_lines)
        found = Corpus.build(iter(texts), Path(folder) / "corpus", TOKENIZER, splitting)
        assert contents(found) == naive_corpus(texts, splitting)


SENTENCE_CASES = [
    ("", ""),
    (" \n\t\n", ""),
    ("No end", "No end"),
    ("It ended. It ended! Did it?", "It ended . / It ended ! / Did it ?"),
    ("Mr. Smith and Dr. Jones came. They left.", "Mr. Smith and Dr. Jones came . / They left ."),
    ("In the U.S. Army. Yes, in No. 5.", "In the U.S. Army . / Yes , in No. 5 ."),
    ("He waited, etc. and left.", "He waited , etc. and left ."),
    # closing marks after the period
    ('He said "Go." Then he left.', 'He said " Go . " / Then he left .'),
    ("(It rained.) We left.", "( It rained . ) / We left ."),
    ("[It rained.)] We left.", "[ It rained . ) ] / We left ."),
    ("“Go.” He went. ‘Go.’ «Go.» He", "“ Go . ” / He went . / ‘ Go . ’ / « Go . » / He"),  # noqa: RUF001
    # opening marks before the next word
    ("It rained. (We left.)", "It rained . / ( We left . )"),
    ('It rained. "We left."', 'It rained . / " We left . "'),
    ('"Go." "No." "Why?"', '" Go . " / " No . " / " Why ? "'),
    # each kind of quote is counted on its own
    ("\"He said 'go.'\" Then", "\" He said ' go . ' \" / Then"),
    ('"The dogs\' bone." It', '" The dogs \' bone . " / It'),
    ("'Go.' He went.", "' Go . ' / He went ."),
    # and anew in each line
    ('A " sign.\n"Go." He', 'A " sign . / " Go . " / He'),
    # lower case continues the sentence
    ('"Is it?" he asked. "Yes!" she said.', '" Is it ? " he asked . / " Yes ! " she said .'),
    ("Yahoo! is old... so old. éclairs", "Yahoo ! is old ... so old. éclairs"),
    # several ends in a row
    ("What?! No... Yes.... Maybe .. So", "What ? ! / No ... / Yes .... / Maybe .. / So"),
    ("Wait… He came.", "Wait … / He came ."),
    ("他来了。她走了！", "他来了 。 / 她走了 ！"),  # noqa: RUF001
    ("वह आया। वह गया।", "वह आया । / वह गया ।"),
    (". A", ". / A"),
    # the end of a line ends a sentence
    ("The cat\nsat. on\n\n\nthe mat", "The cat / sat. on / the mat"),
    ("The cat\r\nsat.\r\n", "The cat / sat ."),
    # other line separators are spaces
    ("a\rb\u2028c\u2029d\x85e\x0bf\x0cg\x1ch\u00a0i", "a b c d e f g h i"),
    # special tokens are dropped
    ("<S> The cat </S> <UNK>\n<PAD>\n<S>", "The cat"),
    ("a<S>b", "a < S > b"),
]


@pytest.mark.parametrize("text, expected", SENTENCE_CASES)
def test_sentences(tmp_path, text, expected):
    assert split(text, tmp_path) == expected


@pytest.mark.parametrize(
    "splitting, expected",
    [
        ({}, "Don 't go . / Stay , < unk > ! / It @ - @ is"),
        ({"one_sentence_per_line": True}, "Don 't go . Stay , < unk > ! / It @ - @ is"),
        ({"pretokenized": True}, "Don't go . / Stay, <unk> ! / It @-@ is"),
        (ALREADY_SPLIT, "Don't go . Stay, <unk> ! / It @-@ is"),
        ({"drop_tokens": ("<unk>", "@-@", "Stay")}, "Don 't go . / Stay , ! / It is"),  # "Stay," is not "Stay"
        ({"pretokenized": True, "drop_tokens": ("<unk>", ".")}, "Don't go Stay, ! / It @-@ is"),
    ],
)
def test_splitting(tmp_path, splitting, expected):
    assert split("Don't go . Stay, <unk> !\nIt @-@ is", tmp_path, **splitting) == expected


def test_special_tokens_of_another_tokenizer(tmp_path):
    tokenizer = ElmoTokenizer(bos_token="[B]", eos_token="[E]", extra_special_tokens=["@@"])
    corpus = build(["[B] The @@ cat [E]\n<UNK> <S>"], tmp_path, tokenizer, pretokenized=True)
    assert sentences_of(corpus) == "The cat / <S>"


def test_words_are_numbered_by_frequency(tmp_path):
    """Words of equal frequency are numbered in the order of their first appearance."""
    corpus = build(["d b b a", "c a b e", "d"], tmp_path, **ALREADY_SPLIT)
    assert corpus.words == ["b", "d", "a", "c", "e"]
    assert corpus.counts.tolist() == [3, 2, 2, 1, 1]
    assert corpus.tokens.tolist() == [1, 0, 0, 2, 3, 2, 0, 4, 1]
    assert corpus.offsets.tolist() == [0, 4, 8, 9]
    assert len(corpus) == 3
    assert isinstance(corpus.tokens, np.memmap) and isinstance(corpus.offsets, np.memmap)
    assert corpus.tokens.dtype == np.uint32 and corpus.offsets.dtype == np.int64
    assert corpus.vocabulary() == corpus.words
    assert corpus.vocabulary(2) == ["b", "d", "a"]
    assert corpus.vocabulary(2, 1) == ["b"]
    assert corpus.vocabulary(max_size=4) == ["b", "d", "a", "c"]
    assert corpus.vocabulary(4) == []


def test_loaded_from_its_folder(tmp_path):
    corpus = build([TEXT], tmp_path)
    assert {path.name for path in corpus.folder.iterdir()} == set(corpus_module.FILES)
    assert contents(Corpus(corpus.folder)) == contents(corpus)
    assert sentences_of(corpus) == TEXT_SENTENCES


def test_build_is_repeatable(tmp_path):
    folders = [build([TEXT] * 3, tmp_path / name).folder for name in "ab"]
    for path in folders[0].iterdir():
        assert path.read_bytes() == (folders[1] / path.name).read_bytes()


def test_empty_text(tmp_path):
    for number, texts in enumerate(([], ["", "\n \n"], ["\x01\n\x02"])):
        corpus = build(texts, tmp_path / str(number))
        assert contents(corpus) == ([], [], [], [0])
        assert len(corpus) == 0 and corpus.vocabulary() == []


def test_lone_surrogates_are_replaced(tmp_path):
    """JSON may contain them, and they cannot be encoded."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "The \\ud800 cat"}\n')
    assert sentences_of(read(path, tmp_path)) == "The \ufffd cat"
    assert sentences_of(build(["The\udfff cat"], tmp_path, pretokenized=True)) == "The\ufffd cat"


def test_long_run_of_sentence_ends(tmp_path):
    """Takes linear time, not quadratic."""
    corpus = build(["Go" + "!" * 200_000 + " Go"], tmp_path)
    assert corpus.offsets.tolist() == [0, 200_001, 200_002]


@pytest.mark.parametrize("splitting", [{}, {"one_sentence_per_line": True}, {"pretokenized": True}, ALREADY_SPLIT])
def test_small_batches_equal_one_large_batch(tmp_path, monkeypatch, splitting):
    draw = np.random.default_rng(0)
    pieces = [*PIECES, "\n", "\n"]
    texts = [" ".join(draw.choice(pieces, draw.integers(30))) for _ in range(60)]
    expected = contents(build(texts, tmp_path / "large", **splitting))
    for name, size in (("BATCH_LINES", 2), ("CHUNK", 3)):
        monkeypatch.setattr(corpus_module, name, size)
    assert contents(build(texts, tmp_path / "small", **splitting)) == expected
    # Nor does it matter how lines are grouped into texts.
    assert contents(build(["\n".join(texts)], tmp_path / "one", **splitting)) == expected


def test_memory_does_not_grow_with_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_module, "BATCH_LINES", 16)
    monkeypatch.setattr(corpus_module, "CHUNK", 64)
    monkeypatch.setattr(output_module, "sha256_of", lambda path: "")  # reads a megabyte at once

    def peak(texts, name):
        tracemalloc.start()
        try:
            build(texts, tmp_path / name)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    line = "The cat sat. It sat! It was a cat. So it was."
    peak((line for _ in range(100)), "first")  # imports and caches
    small, large = peak((line for _ in range(500)), "small"), peak((line for _ in range(4000)), "large")
    # The larger corpus has 56,000 words and 14,000 sentences more.
    assert large < small + 50_000
    assert peak(["\n".join([line] * 4000)], "one text") < small + 1_000_000  # two copies of the text, and its lines


def long_line(seed):
    """One line of characters of one to four bytes, with periods that belong to the word before them or do not."""
    draw = np.random.default_rng(seed)
    words = ["the", "etc.", "No.", "5", "é" * 9, "的" * 5, "😀", "end.", "Mr.", "Then", "a\u2028b", "ö\tö"]
    return " ".join(draw.choice(words, 300))


def write_as(path, text):
    if path.suffix == ".parquet":
        write_parquet(path, text=[text])
    else:
        path.write_text(text if path.suffix == ".txt" else json.dumps({"text": text}), encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", [".txt", ".jsonl", ".parquet", ""])
@pytest.mark.parametrize("limit", [64, 65, 66, 67, 250])
def test_long_lines_in_parts_have_the_same_words(tmp_path, monkeypatch, suffix, limit):
    """No word and no character is cut, and no period is separated from the next word, which decides about it."""
    text = long_line(limit)
    whole = build([text], tmp_path / "whole", one_sentence_per_line=True)
    monkeypatch.setattr(corpus_module, "MAX_CHARACTERS", limit)
    monkeypatch.setattr(text_module, "MAX_PART", limit)
    if suffix:
        parts = read(write_as(tmp_path / f"a{suffix}", text), tmp_path, one_sentence_per_line=True)
    else:
        parts = build([text], tmp_path, one_sentence_per_line=True)
    assert contents(parts)[:3] == contents(whole)[:3]
    assert len(whole) == 1 and len(parts) > 3


def test_long_line_without_spaces(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_module, "MAX_CHARACTERS", 32)
    path = write_as(tmp_path / "a.jsonl", "the cat " + 80 * "é")
    message = r"spaces between words, got 32 characters without a space after 'é+': is it text\?"
    with pytest.raises(ValueError, match=message):
        read(path, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("name, content", TEXT_FILES, ids=lambda value: value if isinstance(value, str) else "")
def test_files(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    assert sentences_of(read(path, tmp_path)) == TEXT_SENTENCES


def test_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet(path, text=[*TEXT.split("\n"), None])
    assert sentences_of(read(path, tmp_path)) == TEXT_SENTENCES


def test_several_files(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"b 1")
    (tmp_path / "b.gz").write_bytes(gzipped(b"\xef\xbb\xbfc 1"))
    assert sentences_of(build(read_texts([tmp_path / "a.txt", tmp_path / "b.gz"]), tmp_path)) == "b 1 / c 1"


def test_streamed_dataset(tmp_path):
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"text": TEXT.split("\n"), "n": range(5)}).to_iterable_dataset()
    assert sentences_of(build(dataset["text"], tmp_path)) == TEXT_SENTENCES
    assert sentences_of(build((row["text"] for row in dataset), tmp_path)) == TEXT_SENTENCES
    with pytest.raises(ValueError, match=r"A text must be a string, got \{.*; for a dataset, pass its text column"):
        build(dataset, tmp_path)


def test_single_string(tmp_path):
    with pytest.raises(
        ValueError, match="must be an iterable of strings, got a single string, 'The cat': wrap it in a list"
    ):
        build("The cat", tmp_path)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("lines", [0, 1, 10])
def test_interrupted_build_leaves_no_files(tmp_path, monkeypatch, error, lines):
    monkeypatch.setattr(corpus_module, "BATCH_LINES", 2)

    def texts():
        yield from ["The cat"] * lines
        raise error("stop")

    with pytest.raises(error, match="stop"):
        build(texts(), tmp_path)
    assert list(tmp_path.iterdir()) == []
    # An earlier corpus stays.
    before = build([TEXT], tmp_path)
    with pytest.raises(error, match="stop"):
        build(texts(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    assert contents(Corpus(before.folder)) == contents(before)


def test_full_disk_leaves_no_files(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(corpus_module, "write_array", fail)
    with pytest.raises(OSError, match="No space left"):
        build([TEXT], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_only_a_corpus_is_replaced(tmp_path):
    (tmp_path / "corpus").mkdir()
    build(["The cat"], tmp_path)
    assert sentences_of(build(["It sat"], tmp_path)) == "It sat"
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    for name in ("file", "folder"):
        with pytest.raises(ValueError, match=f"{name} must be a new folder or contain a corpus, .* choose another"):
            Corpus.build([TEXT], tmp_path / name, TOKENIZER)
    assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "thesis.tex").read_text() == "mine"


def test_cache(tmp_path, monkeypatch):
    """A corpus is built once, and again when anything has changed that it depends on."""
    cache, path, other = tmp_path / "cache", tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_text("The cat sat.\n")
    other.write_text("It sat.\n")
    builds = []

    def count_reads(files, *options):
        builds.append(files)
        return read_texts(files, *options)

    monkeypatch.setattr(corpus_module, "read_texts", count_reads)

    def cached(files=(path,), tokenizer=TOKENIZER, splitting=Splitting(), **options):  # noqa: B008
        corpus = corpus_from_files(list(files), cache=cache, tokenizer=tokenizer, splitting=splitting, **options)
        assert len(list(cache.iterdir())) == len(builds)
        return corpus

    first = cached()
    assert contents(cached()) == contents(first) and len(builds) == 1
    monkeypatch.chdir(tmp_path)
    assert cached([Path("a.txt")]).folder == first.folder and len(builds) == 1  # the same file by a relative path
    assert cached(tokenizer=ElmoTokenizer(vocab=["The"], max_characters_per_token=9)).folder == first.folder
    others = [
        cached([path, other]),
        cached([other, path]),
        cached(splitting=Splitting(one_sentence_per_line=True)),
        cached(splitting=Splitting(pretokenized=True)),
        cached(splitting=Splitting(drop_tokens=("cat",))),
        cached(tokenizer=ElmoTokenizer(bos_token="The")),
        cached(column="body"),
        cached(encoding_errors="replace"),
    ]
    assert len(builds) == 9
    assert sentences_of(others[0]) == "The cat sat . / It sat ."
    assert sentences_of(others[1]) == "It sat . / The cat sat ."
    assert sentences_of(others[4]) == "The sat ."
    assert sentences_of(others[5]) == "cat sat ."
    # Other text of the same size, with another modification time.
    time = path.stat().st_mtime_ns
    path.write_text("The dog sat.\n")
    os.utime(path, ns=(time, time + 1))
    assert sentences_of(cached()) == "The dog sat ." and len(builds) == 10
    # Other text of the same modification time, with another size.
    path.write_text("The dogs sat.\n")
    os.utime(path, ns=(time, time + 1))
    assert sentences_of(cached()) == "The dogs sat ." and len(builds) == 11
    monkeypatch.setattr(corpus_module, "VERSION", 0)
    assert sentences_of(cached()) == "The dogs sat ." and len(builds) == 12


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.gz", gzipped("".join(f"line {number}\n" for number in range(2000)).encode())[:-20]),
        ("a.xz", b"not compressed"),
        ("a.txt", b"ok\n" * 5000 + b"\xff"),
        ("a.jsonl", b'{"text": "ok"}\n' * 5000 + b"[]"),
        ("a.parquet", b"not Parquet"),
    ],
    ids=["a.gz", "a.xz", "a.txt", "a.jsonl", "a.parquet"],
)
def test_unreadable_file_leaves_nothing_in_the_cache(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=name):
        corpus_from_files([path], cache=tmp_path / "cache", tokenizer=TOKENIZER, splitting=Splitting())
    assert list((tmp_path / "cache").iterdir()) == []


DAMAGES = {
    "other word": lambda folder: (folder / "words.txt").write_text("dog\n" * 4),
    "flipped bit": lambda folder: flip_last_byte(folder / "tokens.npy"),
    "truncated": lambda folder: os.truncate(folder / "tokens.npy", 100),
    "empty": lambda folder: (folder / "offsets.npy").write_bytes(b""),
    "no words": lambda folder: (folder / "words.txt").unlink(),
    "no checksums": lambda folder: (folder / "checksums.json").unlink(),
    "list of checksums": lambda folder: (folder / "checksums.json").write_text("[]"),
    "empty checksums": lambda folder: (folder / "checksums.json").write_text("{}"),
    "only a checksum": lambda folder: [path.unlink() for path in folder.iterdir() if path.name != "checksums.json"],
    "empty folder": lambda folder: [path.unlink() for path in folder.iterdir()],
}


def flip_last_byte(path):
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_damaged_cache_is_rebuilt(tmp_path, capsys, damage):
    path = tmp_path / "a.txt"
    path.write_text("The cat sat.\n")
    options = {"cache": tmp_path / "cache", "tokenizer": TOKENIZER, "splitting": Splitting()}
    corpus = corpus_from_files([path], **options)
    expected = contents(corpus), corpus.sha256
    damage(corpus.folder)
    with pytest.raises(ValueError, match=r"must be a corpus as it was written; \w+\.\w+ (is|cannot be) \w+\."):
        Corpus(corpus.folder)
    rebuilt = corpus_from_files([path], **options)
    assert (contents(rebuilt), rebuilt.sha256) == expected
    notice = capsys.readouterr().err
    assert str(corpus.folder) in notice and notice.endswith(". The text is read again.\n")
    corpus_from_files([path], **options)
    assert capsys.readouterr().err == ""


def test_sha256_of_the_content(tmp_path):
    """The same for the same sentences, in any files; another one for the same counts in another order."""
    texts = [
        ["The cat sat.", "It ran."],
        ["The cat sat.\nIt ran."],
        ["It ran.", "The cat sat."],
        ["The cat ran.", "It sat."],
    ]
    hashes = [build(lines, tmp_path / str(number)).sha256 for number, lines in enumerate(texts)]
    assert hashes[0] == hashes[1] and len(set(hashes)) == 3


def test_text_of_the_same_size_and_time_is_read_again(tmp_path):
    path = tmp_path / "a.txt"
    options = {"cache": tmp_path / "cache", "tokenizer": TOKENIZER, "splitting": Splitting()}
    for word in ("cat", "dog"):
        path.write_text(f"The {word} sat.\n")
        os.utime(path, ns=(0, 0))
        assert sentences_of(corpus_from_files([path], **options)) == f"The {word} sat ."


def test_cache_must_be_a_folder(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("The cat sat.\n")
    with pytest.raises(ValueError, match=r"--cache must be a folder; .*a.txt is a file"):
        corpus_from_files([path], cache=path, tokenizer=TOKENIZER, splitting=Splitting())


@pytest.mark.parametrize("token", ["", "a b", "\n"])
def test_tokens_to_drop_are_words(token):
    with pytest.raises(ValueError, match="must be a word without spaces"):
        Splitting(drop_tokens=(token,))
