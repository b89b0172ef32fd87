"""Raw text to a corpus: against a splitter and a counter that read word by word, and from files of every kind."""

import gzip
import json
import lzma
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

from transformers_elmo import text as text_module
from transformers_elmo.pretrain import corpus as corpus_module
from transformers_elmo.pretrain.corpus import CLOSES, ENDS, Corpus, Splitting, corpus_of_files
from transformers_elmo.text import find_files, read_texts
from transformers_elmo.tokenization_elmo import ElmoTokenizer

TOKENIZER = ElmoTokenizer()
SPECIALS = {"<PAD>", "<S>", "</S>", "<UNK>"}
AS_GIVEN = {"words": True, "lines": True}
TEXT = "The cat sat. It sat!\n\nLöwen roar, Mr. Smith\nThe cat 的\n"
TEXT_SENTENCES = "The cat sat . / It sat ! / Löwen roar , Mr. Smith / The cat 的"


def build(texts, folder, tokenizer=TOKENIZER, **splitting):
    return Corpus.build(texts, Path(folder) / "corpus", tokenizer, Splitting(**splitting))


def sentences_of(corpus):
    """Words, separated by spaces, and sentences, separated by slashes."""
    return " / ".join(
        " ".join(corpus.words[number] for number in corpus.tokens[start:end])
        for start, end in pairwise(corpus.offsets.tolist())
    )


def contents(corpus):
    return corpus.words, corpus.counts.tolist(), corpus.tokens.tolist(), corpus.offsets.tolist()


def split(text, folder, **splitting):
    return sentences_of(build([text], folder, **splitting))


def read(path, folder, column="text", errors="strict", **splitting):
    return build(read_texts([path], column, errors), folder, **splitting)


def naive_lines(text, splitting):
    for line in text.split("\n"):
        line = " ".join(word for word in line.split() if word not in {*SPECIALS, *splitting.leave_out})
        if splitting.words:
            yield line.split()
        else:
            yield [word for word, _ in TOKENIZER.backend_tokenizer.pre_tokenizer.pre_tokenize_str(line)]


def naive_sentences(words):
    """Word by word: whether a sentence has ended, and which quotes are open."""
    sentences, sentence, ended, opened = [], [], False, {'"': False, "'": False}
    for word in words:
        is_end = word in ENDS or set(word) == {"."}
        if ended and not (is_end or word in CLOSES or opened.get(word)):
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
            sentences += [words] if splitting.lines else naive_sentences(words)
    sentences = [sentence for sentence in sentences if sentence]
    counts = Counter(word for sentence in sentences for word in sentence)  # in the order of their first appearance
    words = sorted(counts, key=lambda word: -counts[word])
    numbers = {word: number for number, word in enumerate(words)}
    tokens = [numbers[word] for sentence in sentences for word in sentence]
    return words, [counts[word] for word in words], tokens, np.cumsum([0, *map(len, sentences)]).tolist()


# ---------------------------------------------------------------------------------------------------------------------
# Sentences and words
# ---------------------------------------------------------------------------------------------------------------------

PIECES = "The the Mr. U.S. etc. . ! ? .. ... .... … 。 \" ' ” ) ( ] 's don't dogs' 5 No. <S> <UNK> <unk> 的 é".split()
SPACES = [" ", "\n", "\r\n", "\x01", "\u2028", "\t"]
TEXTS = st.lists(st.lists(st.sampled_from(PIECES + SPACES + [" "] * 30), max_size=60).map("".join), max_size=4)


@given(
    TEXTS, st.booleans(), st.booleans(), st.sampled_from([(), ("<unk>",), ("The", ".")]), st.sampled_from([1, 3, 4096])
)
@example(["\x01\nThe cat\n\x01 \x01\n"], False, False, (), 1)
@example(["\x01\nThe cat\n\x01 \x01\n"], False, True, (), 4096)
def test_equals_what_is_read_word_by_word(texts, words, lines, leave_out, at_once):
    splitting = Splitting(words, lines, leave_out)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus_module, "LINES", at_once)
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
    # what closes after the period
    ('He said "Go." Then he left.', 'He said " Go . " / Then he left .'),
    ("(It rained.) We left.", "( It rained . ) / We left ."),
    ("[It rained.)] We left.", "[ It rained . ) ] / We left ."),
    ("“Go.” He went. ‘Go.’ «Go.» He", "“ Go . ” / He went . / ‘ Go . ’ / « Go . » / He"),  # noqa: RUF001
    # what opens before the next word
    ("It rained. (We left.)", "It rained . / ( We left . )"),
    ('It rained. "We left."', 'It rained . / " We left . "'),
    ('"Go." "No." "Why?"', '" Go . " / " No . " / " Why ? "'),
    # each kind of quote closes its own
    ("\"He said 'go.'\" Then", "\" He said ' go . ' \" / Then"),
    ('"The dogs\' bone." It', '" The dogs \' bone . " / It'),
    ("'Go.' He went.", "' Go . ' / He went ."),
    # quotes are counted anew in each line
    ('A " sign.\n"Go." He', 'A " sign . / " Go . " / He'),
    # lower case goes on
    ('"Is it?" he asked. "Yes!" she said.', '" Is it ? " he asked . / " Yes ! " she said .'),
    ("Yahoo! is old... so old. éclairs", "Yahoo ! is old ... so old. éclairs"),
    # several ends
    ("What?! No... Yes.... Maybe .. So", "What ? ! / No ... / Yes .... / Maybe .. / So"),
    ("Wait… He came.", "Wait … / He came ."),
    ("他来了。她走了！", "他来了 。 / 她走了 ！"),  # noqa: RUF001
    ("वह आया। वह गया।", "वह आया । / वह गया ।"),
    (". A", ". / A"),
    # a line ends its sentence
    ("The cat\nsat. on\n\n\nthe mat", "The cat / sat. on / the mat"),
    ("The cat\r\nsat.\r\n", "The cat / sat ."),
    # other separators are spaces
    ("a\rb\u2028c\u2029d\x85e\x0bf\x0cg\x1ch\u00a0i", "a b c d e f g h i"),
    # special tokens are not there
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
        ({"lines": True}, "Don 't go . Stay , < unk > ! / It @ - @ is"),
        ({"words": True}, "Don't go . / Stay, <unk> ! / It @-@ is"),
        (AS_GIVEN, "Don't go . Stay, <unk> ! / It @-@ is"),
        ({"leave_out": ("<unk>", "@-@", "Stay")}, "Don 't go . / Stay , ! / It is"),  # "Stay," is not set off
        ({"words": True, "leave_out": ("<unk>", ".")}, "Don't go Stay, ! / It @-@ is"),
    ],
)
def test_splitting(tmp_path, splitting, expected):
    assert split("Don't go . Stay, <unk> !\nIt @-@ is", tmp_path, **splitting) == expected


def test_special_tokens_of_another_tokenizer(tmp_path):
    tokenizer = ElmoTokenizer(bos_token="[B]", eos_token="[E]", extra_special_tokens=["@@"])
    corpus = build(["[B] The @@ cat [E]\n<UNK> <S>"], tmp_path, tokenizer, words=True)
    assert sentences_of(corpus) == "The cat / <S>"


def test_words_are_numbered_by_frequency(tmp_path):
    """Of equally frequent words the one that came first has the lower number."""
    corpus = build(["d b b a", "c a b e", "d"], tmp_path, **AS_GIVEN)
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


def test_opened_again(tmp_path):
    corpus = build([TEXT], tmp_path)
    assert {path.name for path in corpus.folder.iterdir()} == {"words.txt", "counts.npy", "tokens.npy", "offsets.npy"}
    assert contents(Corpus(corpus.folder)) == contents(corpus)
    assert sentences_of(corpus) == TEXT_SENTENCES


def test_build_is_repeatable(tmp_path):
    folders = [build([TEXT] * 3, tmp_path / name).folder for name in "ab"]
    for path in folders[0].iterdir():
        assert path.read_bytes() == (folders[1] / path.name).read_bytes()


def test_nothing_to_read(tmp_path):
    for number, texts in enumerate(([], ["", "\n \n"], ["\x01\n\x02"])):
        corpus = build(texts, tmp_path / str(number))
        assert contents(corpus) == ([], [], [], [0])
        assert len(corpus) == 0 and corpus.vocabulary() == []


def test_lone_surrogates_are_replaced(tmp_path):
    """As JSON may hold them; they cannot be written."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "The \\ud800 cat"}\n')
    assert sentences_of(read(path, tmp_path)) == "The \ufffd cat"
    assert sentences_of(build(["The\udfff cat"], tmp_path, words=True)) == "The\ufffd cat"


def test_line_of_nothing_but_ends(tmp_path):
    """In time that grows with its length and not with the square of it."""
    corpus = build(["Go" + "!" * 200_000 + " Go"], tmp_path)
    assert corpus.offsets.tolist() == [0, 200_001, 200_002]


@pytest.mark.parametrize("splitting", [{}, {"lines": True}, {"words": True}, AS_GIVEN])
def test_small_chunks_equal_a_large_one(tmp_path, monkeypatch, splitting):
    draw = np.random.default_rng(0)
    pieces = [*PIECES, "\n", "\n"]
    texts = [" ".join(draw.choice(pieces, draw.integers(30))) for _ in range(60)]
    expected = contents(build(texts, tmp_path / "large", **splitting))
    for name, size in (("LINES", 2), ("CHUNK", 3)):
        monkeypatch.setattr(corpus_module, name, size)
    assert contents(build(texts, tmp_path / "small", **splitting)) == expected
    # Nor does it matter where texts end, as long as lines do not.
    assert contents(build(["\n".join(texts)], tmp_path / "one", **splitting)) == expected


def test_memory_does_not_grow_with_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_module, "LINES", 16)
    monkeypatch.setattr(corpus_module, "CHUNK", 64)

    def peak(texts, name):
        tracemalloc.start()
        try:
            build(texts, tmp_path / name)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    line = "The cat sat. It sat! It was a cat. So it was."
    peak((line for _ in range(100)), "first")  # what is made once
    small, large = peak((line for _ in range(500)), "small"), peak((line for _ in range(4000)), "large")
    # The larger corpus has 56,000 words more, and 14,000 sentences.
    assert large < small + 50_000
    assert peak(["\n".join([line] * 4000)], "one text") < small + 1_000_000  # the text twice, and its lines


# ---------------------------------------------------------------------------------------------------------------------
# Long lines
# ---------------------------------------------------------------------------------------------------------------------


def long_line(seed):
    """One line of words in one to four bytes, with periods that belong to the word before or do not."""
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
@pytest.mark.parametrize("longest", [64, 65, 66, 67, 250])
def test_long_lines_in_parts_have_the_same_words(tmp_path, monkeypatch, suffix, longest):
    """No word or character is torn, nor a period from a word that it belongs to because of the next one."""
    text = long_line(longest)
    whole = build([text], tmp_path / "whole", lines=True)
    for module in (corpus_module, text_module):
        monkeypatch.setattr(module, "LONGEST", longest)
    if suffix:
        parts = read(write_as(tmp_path / f"a{suffix}", text), tmp_path, lines=True)
    else:
        parts = build([text], tmp_path, lines=True)
    assert contents(parts)[:3] == contents(whole)[:3]
    assert len(whole) == 1 and len(parts) > 3


def test_line_numbers_after_long_lines(tmp_path, monkeypatch):
    for module in (corpus_module, text_module):
        monkeypatch.setattr(module, "LONGEST", 8)
    for text in (
        b"aaa bbb ccc\n",
        b"aaa bbb \n",
        b"aaaa bbb cccc\n",
        b"aaaaaaa\n",
        b"aaaaaa\n",
        b"\xef\xbb\xbfaaa bb c\n",
    ):
        path = tmp_path / "a.txt"
        path.write_bytes(text + b"ok\n\xff\n")
        with pytest.raises(ValueError, match="line 3 holds the byte 0xff"):
            list(read_texts([path]))


def test_word_longer_than_a_line_may_be(tmp_path, monkeypatch):
    for module in (corpus_module, text_module):
        monkeypatch.setattr(module, "LONGEST", 32)
    path = tmp_path / "a.txt"
    path.write_text("ok\nthe cat " + 80 * "é")
    with pytest.raises(ValueError, match=r"a.txt must have spaces .* line 2 has none in \d\d bytes: is it text\?"):
        list(read_texts([path]))
    path = write_as(tmp_path / "a.jsonl", "the cat " + 80 * "é")
    with pytest.raises(ValueError, match=r"spaces between its words, got 32 characters without one after 'é+': is it"):
        read(path, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


# ---------------------------------------------------------------------------------------------------------------------
# Files and other sources
# ---------------------------------------------------------------------------------------------------------------------


def write_parquet(path, **columns):
    table = pytest.importorskip("pyarrow").table(columns)
    pytest.importorskip("pyarrow.parquet").write_table(table, path, row_group_size=2)


def zipped(content):
    return gzip.compress(content, mtime=0)


def text_of(value):
    """For names of tests."""
    return value if isinstance(value, str) else ""


def json_lines(text, column="text"):
    return "".join(json.dumps({"id": 1, column: line}) + "\n" for line in text.split("\n")).encode()


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.txt", TEXT.encode()),
        ("a", TEXT.encode()),
        ("a.json.txt", TEXT.encode()),
        ("a.txt.gz", zipped(TEXT.encode())),
        ("a.gz", zipped(TEXT[:9].encode()) + zipped(TEXT[9:].encode())),
        ("a.xz", lzma.compress(TEXT.encode())),
        ("a.jsonl", json_lines(TEXT)),
        ("a.json", json_lines(TEXT) + b"\n \n" + b'{"text": null}'),
        ("a.jsonl", json.dumps({"text": TEXT}, ensure_ascii=False).encode()),
        ("a.jsonl.gz", zipped(json_lines(TEXT))),
        ("a.jsonl.xz", lzma.compress(json_lines(TEXT))),
        # the line ends of Windows, and the mark at the beginning of its files
        ("a.txt", TEXT.replace("\n", "\r\n").encode("utf-8-sig")),
        ("a.txt.gz", zipped(TEXT.encode("utf-8-sig"))),
        ("a.jsonl", b"\xef\xbb\xbf" + json_lines(TEXT).replace(b"\n", b"\r\n")),
    ],
    ids=text_of,
)
def test_files(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    assert sentences_of(read(path, tmp_path)) == TEXT_SENTENCES


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    texts, path = [*TEXT.split("\n"), None], tmp_path / "a.parquet"
    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())):
        columns = {"text": pyarrow.array(texts).cast(kind), "text.b": pyarrow.array(texts[::-1]), "n": range(6)}
        write_parquet(path, **columns)
        assert sentences_of(read(path, tmp_path)) == TEXT_SENTENCES
    assert "的 / Löwen" in sentences_of(read(path, tmp_path, column="text.b"))


def test_another_column(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json_lines(TEXT, "body"))
    assert sentences_of(read(path, tmp_path, column="body")) == TEXT_SENTENCES


def test_files_one_after_the_other(tmp_path):
    """The last line of a file ends with it."""
    names = ["b.txt", "a.jsonl", "c.txt.gz"]
    for name, content in zip(names, (b"b 1", b'{"text": "a 1"}', zipped(b"\xef\xbb\xbfc 1"))):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "empty.jsonl").write_bytes(b"\xef\xbb\xbf")
    (tmp_path / "empty.gz").write_bytes(b"")
    files = [tmp_path / name for name in ["empty.jsonl", *names, "empty.gz"]]
    assert sentences_of(build(read_texts(files), tmp_path)) == "b 1 / a 1 / c 1"


def test_globs(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.txt", "c[1].txt", "sub/d.txt", "e.gz"):
        (tmp_path / name).write_text("a")

    def found(*patterns):
        return [str(path.relative_to(tmp_path)) for path in find_files([f"{tmp_path}/{p}" for p in patterns])]

    assert found("*.txt") == ["a.txt", "b.txt", "c[1].txt"]
    assert found("c[1].txt") == ["c[1].txt"]
    assert found("[b-c]*", "a.txt") == ["b.txt", "c[1].txt", "a.txt"]
    assert found("b.txt", "*.txt", "./b.txt") == ["b.txt", "a.txt", "c[1].txt"]  # each once
    assert found("**/*.txt") == ["a.txt", "b.txt", "c[1].txt", "sub/d.txt"]
    assert found("*") == ["a.txt", "b.txt", "c[1].txt", "e.gz"]  # folders are passed over


def test_streamed_dataset(tmp_path):
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"text": TEXT.split("\n"), "n": range(5)}).to_iterable_dataset()
    assert sentences_of(build(dataset["text"], tmp_path)) == TEXT_SENTENCES
    assert sentences_of(build((row["text"] for row in dataset), tmp_path)) == TEXT_SENTENCES
    with pytest.raises(ValueError, match=r"A text must be a string, got \{.*; of rows, give the column"):
        build(dataset, tmp_path)


def test_one_string_is_not_its_characters(tmp_path):
    with pytest.raises(ValueError, match="must be an iterable of strings, got one string, 'The cat': give a list"):
        build("The cat", tmp_path)


# ---------------------------------------------------------------------------------------------------------------------
# Bad input
# ---------------------------------------------------------------------------------------------------------------------

LONG_TEXT = "".join(f"line {number}\n" for number in range(2000)).encode()


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.txt", b"ok\nnot\0ok\n", "UTF-8 text, and line 2 holds a zero byte: convert it if .* leave it out if"),
        ("a.txt", TEXT.encode("utf-16"), "line 1 holds (a zero byte|the byte 0xff)"),
        ("a.txt", b"ok\n\nL\xf6wen\n", "UTF-8 text, and line 3 holds the byte 0xf6; convert it, or .* replace"),
        ("a.txt.gz", zipped(b"ok\nL\xf6wen\n"), "a.txt.gz must be UTF-8 text, and line 2 holds the byte 0xf6"),
        ("a.jsonl", b'{"text": "ok"}\n{"text": "\xf6"}', "line 2 holds the byte 0xf6"),
        ("a.gz", zipped(LONG_TEXT)[:-20], r"cannot be unpacked \(.*\); it is cut off, or no .gz file: get it"),
        ("a.gz", zipped(LONG_TEXT)[:4], "a.gz cannot be unpacked .* get it again"),
        ("a.gz", zipped(LONG_TEXT)[:-6] + b"\1" * 6, "a.gz cannot be unpacked .* get it again"),
        ("a.gz", zipped(b"")[:10] + b"\xff" * 30, "a.gz cannot be unpacked .* get it again"),  # zlib's
        ("a.gz", LONG_TEXT, "a.gz cannot be unpacked .* no .gz file"),
        ("a.xz", lzma.compress(LONG_TEXT)[:-20], "a.xz cannot be unpacked .* it is cut off, or no .xz file: get it"),
        ("a.xz", lzma.compress(LONG_TEXT)[:9], "a.xz cannot be unpacked"),
        ("a.xz", LONG_TEXT, "a.xz cannot be unpacked .* no .xz file"),
        ("a.jsonl.gz", zipped(LONG_TEXT)[:-20], "a.jsonl.gz (cannot be unpacked|must hold a JSON object)"),
        ("a.jsonl", b'{"text": "ok"}\nThe cat', "a JSON object a line, got 'The cat' in line 2 .* mend the line, or"),
        ("a.jsonl", b'{"text": "cut', "a JSON object a line, got .* in line 1 .* mend the line, or name"),
        ("a.json", b'[\n{"text": "ok"}]', r"a JSON object a line, got '\[' in line 1"),
        ("a.jsonl", b"[" * 100_000, "a JSON object a line, got"),
        ("a.jsonl", b'["ok"]', "have a text in column 'text', line 1 has: a list; name another with --column"),
        ("a.jsonl", b'"ok"', "have a text in column 'text', line 1 has: a str"),
        ("a.jsonl", b"null", "have a text in column 'text', line 1 has: a NoneType"),
        ("a.jsonl", b'\n{"body": "ok", "n": 1}', "a text in column 'text', line 2 has: body, n; name another with --c"),
        ("a.jsonl", b'{"text": 5}', "a text in column 'text', line 1 has: text; name another"),
        (
            "a.parquet",
            LONG_TEXT,
            r"a.parquet cannot be read as Parquet \(.*\); it is cut off, or no .parquet file: get",
        ),
        ("a.parquet", b"", "a.parquet cannot be read as Parquet"),
    ],
    ids=text_of,
)
def test_bad_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read(path, tmp_path / "made")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not any((tmp_path / "made").iterdir())


def test_bad_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    write_parquet(path, body=["ok"] * 500, n=range(500))
    with pytest.raises(
        ValueError, match=r"a.parquet must have a column 'text', it has: body, n; name another with --c"
    ):
        read(path, tmp_path)
    with pytest.raises(ValueError, match=r"must have a text in column 'n', it has: a int; name another .* of body, n"):
        read(path, tmp_path, column="n")
    content = path.read_bytes()
    for broken in (content[:-9], b"PAR1" + b"\xff" * 200 + content[204:]):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"a.parquet cannot be read as Parquet"):
            read(path, tmp_path, column="body")


def test_bad_bytes_are_replaced(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"L\xf6wen roar\nok \xe7\x9a\n")
    assert sentences_of(read(path, tmp_path, errors="replace", words=True)) == "L\ufffdwen roar / ok \ufffd"


def test_missing_files_and_folders(tmp_path):
    for pattern in ("a.txt", "*.txt", "[a.txt"):
        with pytest.raises(ValueError, match=r"\.txt names no file; give text, .gz, .xz, .jsonl or .parquet files"):
            find_files([f"{tmp_path}/{pattern}"])
    with pytest.raises(ValueError, match=r"is a folder; give the files in it, as in '.*/\*.txt'"):
        find_files([str(tmp_path)])
    with pytest.raises(FileNotFoundError, match=r"a\.txt"):
        list(read_texts([tmp_path / "a.txt"]))


# ---------------------------------------------------------------------------------------------------------------------
# Folders and the cache
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("lines", [0, 1, 10])
def test_interrupted_build_leaves_nothing(tmp_path, monkeypatch, error, lines):
    monkeypatch.setattr(corpus_module, "LINES", 2)

    def texts():
        yield from ["The cat"] * lines
        raise error("stop")

    with pytest.raises(error, match="stop"):
        build(texts(), tmp_path)
    assert list(tmp_path.iterdir()) == []
    # What was there before stays.
    before = build([TEXT], tmp_path)
    with pytest.raises(error, match="stop"):
        build(texts(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    assert contents(Corpus(before.folder)) == contents(before)


def test_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(corpus_module, "write_array", full)
    with pytest.raises(OSError, match="No space left"):
        build([TEXT], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_corpus_is_replaced_and_nothing_else(tmp_path):
    (tmp_path / "corpus").mkdir()
    build(["The cat"], tmp_path)
    assert sentences_of(build(["It sat"], tmp_path)) == "It sat"
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    for name in ("file", "folder"):
        with pytest.raises(ValueError, match=f"{name} must be a new folder or that of a corpus, .* name another"):
            Corpus.build([TEXT], tmp_path / name, TOKENIZER)
    assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "thesis.tex").read_text() == "mine"


def test_cache(tmp_path, monkeypatch):
    """Found again as long as nothing has changed, made anew when anything has."""
    cache, path, other = tmp_path / "cache", tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_text("The cat sat.\n")
    other.write_text("It sat.\n")
    made = []

    def counted(files, *options):
        made.append(files)
        return read_texts(files, *options)

    monkeypatch.setattr(corpus_module, "read_texts", counted)

    def cached(files=(path,), tokenizer=TOKENIZER, splitting=Splitting(), **options):  # noqa: B008
        corpus = corpus_of_files(list(files), cache, tokenizer, splitting, **options)
        assert len(list(cache.iterdir())) == len(made)
        return corpus

    first = cached()
    assert contents(cached()) == contents(first) and len(made) == 1
    monkeypatch.chdir(tmp_path)
    assert cached([Path("a.txt")]).folder == first.folder and len(made) == 1  # the same file by another name
    assert cached(tokenizer=ElmoTokenizer(vocab=["The"], max_characters_per_token=9)).folder == first.folder
    others = [
        cached([path, other]),
        cached([other, path]),
        cached(splitting=Splitting(lines=True)),
        cached(splitting=Splitting(words=True)),
        cached(splitting=Splitting(leave_out=("cat",))),
        cached(tokenizer=ElmoTokenizer(bos_token="The")),
        cached(column="body"),
        cached(errors="replace"),
    ]
    assert len(made) == 9
    assert sentences_of(others[0]) == "The cat sat . / It sat ."
    assert sentences_of(others[1]) == "It sat . / The cat sat ."
    assert sentences_of(others[4]) == "The sat ."
    assert sentences_of(others[5]) == "cat sat ."
    # Other text of the same length: its time tells.
    time = path.stat().st_mtime_ns
    path.write_text("The dog sat.\n")
    os.utime(path, ns=(time, time + 1))
    assert sentences_of(cached()) == "The dog sat ." and len(made) == 10
    # Other text of the same time: its length tells.
    path.write_text("The dogs sat.\n")
    os.utime(path, ns=(time, time + 1))
    assert sentences_of(cached()) == "The dogs sat ." and len(made) == 11
    monkeypatch.setattr(corpus_module, "VERSION", 0)
    assert sentences_of(cached()) == "The dogs sat ." and len(made) == 12


def test_interrupted_build_is_not_cached(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(zipped(LONG_TEXT)[:-20])
    with pytest.raises(ValueError, match="cut off"):
        corpus_of_files([path], tmp_path / "cache", TOKENIZER, Splitting())
    assert list((tmp_path / "cache").iterdir()) == []
