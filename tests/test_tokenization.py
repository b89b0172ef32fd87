"""Test ElmoTokenizer against naive versions of bilm-tf's and ELMoForManyLangs' code, and in stock transformers code.

Words, their ids, characters and offsets; batches, padding, truncation and decoding; vocabularies; saving and loading.
"""

import copy
import itertools
import json
import logging
import pickle
import re
import sys
import threading
import unicodedata

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers
from transformers import AutoTokenizer, DataCollatorForTokenClassification, DataCollatorWithPadding
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from helpers.errors import assert_value_error
from transformers_elmo.tokenization_elmo import NONBREAKING_PREFIXES, NUMERIC_PREFIXES, ElmoTokenizer, word_pattern

SPLIT = pre_tokenizers.Split(Regex(word_pattern()), behavior="removed", invert=True)
GRAPHEMES = pre_tokenizers.Split(Regex(r"\X"), behavior="isolated")

VOCAB = ["the", "cat", "sat", ".", "New"]
IDS = {"<PAD>": 0, "<S>": 1, "</S>": 2, "<UNK>": 3, "the": 4, "cat": 5, "sat": 6, ".": 7, "New": 8}
TOKENIZER = ElmoTokenizer(vocab=VOCAB)
CHAR_VOCAB = ["<pad>", "a", "<oov>", "b", "é", "<bow>", "中", "<eow>", "<bos>", "👩", "<eos>", " "]


def split(text):
    return [word for word, _ in SPLIT.pre_tokenize_str(text)]


def encode_words(tokenizer, words, *args, **options):
    return tokenizer(words, *args, is_split_into_words=True, **options)


def bilm_row(word, width=50):
    """Return the character ids that bilm-tf's Batcher gives a word, plus one; zeros for None, which is padding."""
    if word is None:
        return [0] * width
    if word in ("<S>", "</S>"):
        characters = [256 if word == "<S>" else 257]
    else:
        characters = list(word.encode("utf-8", "ignore"))[: width - 2]
    row = [258, *characters, 259]
    return [symbol_id + 1 for symbol_id in row + [260] * (width - len(row))]


def many_langs_row(word, swapped, width=50):
    """Return the character ids that ELMoForManyLangs' create_one_batch gives a word, plus one."""
    ids = {symbol: index for index, symbol in enumerate(CHAR_VOCAB)}
    first, last = ("<eow>", "<bow>") if swapped else ("<bow>", "<eow>")
    characters = [word] if word in ("<bos>", "<eos>") else list(word[: width - 2])
    row = [ids[first], *(ids.get(character, ids["<oov>"]) for character in characters), ids[last]]
    return [symbol_id + 1 for symbol_id in row + [ids["<pad>"]] * (width - len(row))]


def bilm_rows(words):
    return [bilm_row(word) for word in words]


def naive_outputs(words):
    """Return the model inputs of one sentence of tokens, None for padding."""
    return {
        "input_ids": [0 if word is None else IDS.get(word, IDS["<UNK>"]) for word in words],
        "char_ids": bilm_rows(words),
        "attention_mask": [int(word is not None) for word in words],
    }


def naive_batch(sentences):
    outputs = [naive_outputs(words) for words in sentences]
    return {name: [output[name] for output in outputs] for name in outputs[0]}


def as_lists(encoding):
    """Convert the values of a BatchEncoding or dictionary to plain lists."""
    return {name: value if isinstance(value, list) else value.tolist() for name, value in encoding.items()}


# Splitting raw text into words.

# Text and its words, separated by spaces.
SPLIT_CASES = [
    (
        "Don't stop, Mr. Smith's U.S. 6-3 win (5/7) cost $1,000.50...",
        "Don 't stop , Mr. Smith 's U.S. 6-3 win ( 5 / 7 ) cost $ 1,000.50 ...",
    ),
    ("", ""),
    (" \t\r\n\u00a0\u2003\u3000", ""),
    # other characters are words of their own, including typographic quotes and dashes
    ('He said: "It\'s 50% off!"', 'He said : " It \'s 50 % off ! "'),
    ("“Don’t” — she_said…", "“ Don ’ t ” — she _ said …"),  # noqa: RUF001
    ("10² + ½ = x@y.com #tag", "10 ² + ½ = x @ y.com # tag"),
    ("?!?!", "? ! ? !"),
    # hyphens and backticks
    ("a -- b--c well-known -x ``q''", "a -- b--c well-known -x ``q ' '"),
    # runs of periods
    ("What the ...heck... a.. b", "What the ... heck ... a .. b"),
    ("a.b.. Mr... .", "a.b .. Mr ... ."),
    # commas
    ("a,b, 5,a a,5 5, 5,000,000 1,,2 ,5", "a , b , 5 , a a , 5 5 , 5,000,000 1 , , 2 , 5"),
    # apostrophes
    ("O'Neil's dogs' 'tis 'n' x'", "O 'Neil 's dogs ' ' tis ' n ' x '"),
    ("1990's '90s 90'S 5'b 6'2 5'", "1990 's ' 90s 90'S 5'b 6 ' 2 5 '"),
    ("rock'n'roll a'b'c'd", "rock 'n'roll a 'b'c 'd"),
    ("U.S.'s a.b's a''b 'Mr. X'", "U.S. ' s a.b 's a ' ' b ' Mr. X '"),
    # final periods: inner period and a letter
    ("U.S. e.g. a.1. 1.2. .5 .5. .a. 1.2.a. x-1.2. 3.", "U.S. e.g. a.1. 1.2 . .5 .5 . .a. 1.2.a. x-1.2. 3 ."),
    ("foo.bar. Fr.-X. end.-- -.- X", "foo.bar. Fr.-X. end.-- -.- X"),
    # final periods: before a lower-case word
    ("etc. and Etc. And 5. then 1.2. then 's. x é. é", "etc. and Etc . And 5. then 1.2. then ' s. x é. é"),
    ("end.\n\x00\u00a0next end. “next end.", "end. next end . “ next end ."),
    # final periods: prefixes
    ("Mr. Dr. J. St. v. Mr.) (Mr. X.", "Mr. Dr. J. St. v. Mr. ) ( Mr. X."),
    ("aMr. X-Mr. Mr.x Mr.5 'Mr. d'Mr. É. X", "aMr . X-Mr . Mr.x Mr.5 ' Mr. d 'Mr . É . X"),
    ("No. 5 No. Five No. five No.5 Art. 6, pp. 7.", "No. 5 No . Five No. five No.5 Art. 6 , pp. 7 ."),
    # quotes after a final period
    ("it.' it.\" (it.) it.,", "it . ' it . \" ( it . ) it . ,"),
    # control characters separate words
    ("a\x00b\x07c\x7fd\x85e", "a b c d e"),
    # graphemes and scripts
    ("cafe\u0301's e\u0301.e\u0301. I", "cafe\u0301 's e\u0301.e\u0301. I"),
    ("x,\u0301y '\u0301t \u201c\u0301z", "x ,\u0301 y '\u0301 t \u201c\u0301 z"),
    ("हिन्दी में लिखा। க்ஷி ബാല്‍", "हिन्दी में लिखा । க்ஷி ബാല്‍"),
    ("می\u200cخواهم، السَّلَامُ؟ \u0600١٢٣", "می\u200cخواهم ، السَّلَامُ ؟ \u0600١٢٣"),  # noqa: RUF001
    ('שָׁלוֹם, צה"ל.', 'שָׁלוֹם , צה " ל .'),
    ("東京は、いい。한국어 ภาษาไทย", "東京は 、 いい 。 한국어 ภาษาไทย"),
    ("한국", "한국"),
    ("hi👩‍👩‍👧👍🏽!🇫🇷🇩🇪🇯 1️⃣#️⃣❤️‍🔥🏴󠁧󠁢󠁥󠁮󠁧󠁿", "hi 👩‍👩‍👧 👍🏽 ! 🇫🇷 🇩🇪 🇯 1️⃣ #️⃣ ❤️‍🔥 🏴󠁧󠁢󠁥󠁮󠁧󠁿"),
    ("Ⓜ\u200d😀 \u0600,x \u0600🇫🇷🇩", "Ⓜ\u200d😀 \u0600, x \u0600🇫🇷 🇩"),
]

# Arbitrary text, and text dense in characters that the rules treat specially.
RULES = [*"aZs1.,'`-_ \n\x00é中ि\u0301\u200c\u200d\u200b\u00ad\u0600ൎ👩👍🏽🇫Ⓜ½Ⅳ·\U000e0067שع", "Mr", "No"]
TEXT = st.text() | st.lists(st.sampled_from(RULES)).map("".join)
# The same with special tokens, and with surrogates, which the backend rejects.
ANY_TEXT = st.text(st.characters()) | st.lists(st.sampled_from([*RULES, "<S>", "<PAD>", "\ud800"])).map("".join)
ANY_WORD = ANY_TEXT | st.sampled_from(["<S>", "</S>", "<UNK>", "<PAD>", "", "the"]) | st.text(min_size=45, max_size=60)


def is_separator(character):
    return character.isspace() or unicodedata.category(character) == "Cc"


@pytest.mark.parametrize("text, expected", SPLIT_CASES)
def test_text_is_split_like_moses(text, expected):
    assert TOKENIZER.tokenize(text) == split(text) == expected.split()


def test_period_stays_with_nonbreaking_prefixes():
    for prefix in NONBREAKING_PREFIXES + list("ABCXYZ") + ["i.e", "e.g"]:
        assert split(f"{prefix}. X") == [f"{prefix}.", "X"]
    for prefix in NUMERIC_PREFIXES:
        assert split(f"{prefix}. 7") == [f"{prefix}.", "7"]
        assert split(f"{prefix}. X") == [prefix, ".", "X"]


@settings(max_examples=1000)
@given(TEXT)
def test_every_character_belongs_to_a_word_or_separates_words(text):
    last_end = 0
    for word, (start, end) in SPLIT.pre_tokenize_str(text):
        assert word and word == text[start:end] and start >= last_end
        assert all(map(is_separator, text[last_end:start]))
        assert not any(map(is_separator, word))
        last_end = end
    assert all(map(is_separator, text[last_end:]))


@settings(max_examples=1000)
@given(TEXT)
def test_no_grapheme_is_split(text):
    boundaries = {0} | {end for _, (_, end) in GRAPHEMES.pre_tokenize_str(text)}
    spans = [span for _, span in SPLIT.pre_tokenize_str(text)]
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert end != start or start in boundaries


# A unit, and the words of n repetitions of it followed by "a". Quadratic time would take minutes.
LONG_LINES = {
    "a": lambda n: ["a" * n + "a"],
    "A": lambda n: ["A" * n + "a"],
    "1": lambda n: ["1" * n + "a"],
    "-": lambda n: ["-" * n + "a"],
    "中": lambda n: ["中" * n + "a"],
    "\u0301": lambda n: ["\u0301" * n + "a"],
    "1.": lambda n: ["1." * n + "a"],
    "a.": lambda n: ["a." * n + "a"],
    ".": lambda n: ["." * n, "a"],
    "👩\u200d": lambda n: ["👩\u200d" * n, "a"],
    "1,": lambda n: ["1," * (n - 1) + "1", ",", "a"],
    "'": lambda n: ["'"] * n + ["a"],
    ",": lambda n: [","] * n + ["a"],
    " ": lambda n: ["a"],
    "\x00": lambda n: ["a"],
    "a. ": lambda n: ["a."] * n + ["a"],
    "Mr. ": lambda n: ["Mr."] * n + ["a"],
    "a'": lambda n: ["a"] + ["'a'a"] * (n // 2) + ["'a"] * (n % 2),
    "🇫": lambda n: ["🇫🇫"] * (n // 2) + ["🇫"] * (n % 2) + ["a"],
}


@pytest.mark.parametrize("unit", LONG_LINES, ids=ascii)
def test_long_lines_are_split_in_linear_time(unit):
    repeats = 200_000 // len(unit)
    # Compared outside the assertion: pytest would spend minutes on the difference of such lists.
    is_same = split(unit * repeats + "a") == LONG_LINES[unit](repeats)
    assert is_same


def test_text_with_many_words():
    words = [f"w{index}" for index in range(10_000)]
    encoding = TOKENIZER(" ".join(words), return_tensors="np")
    assert encoding.word_ids() == [None, *range(10_000), None]
    assert np.array_equal(encoding["char_ids"][0], bilm_rows(["<S>", *words, "</S>"]))


# Characters.

WIDTHS = {width: ElmoTokenizer(max_characters_per_token=width) for width in (3, 4, 9, 50)}
MANY_LANGS = {
    swapped: ElmoTokenizer(char_vocab=CHAR_VOCAB, swap_word_marks=swapped, bos_token="<bos>", eos_token="<eos>")
    for swapped in (True, False)
}


@settings(max_examples=300)
@given(st.lists(ANY_WORD), st.sampled_from(list(WIDTHS)))
@example(["é" * 24, "é" * 25, "a" + "é" * 24, "a" * 48, "a" * 49], 50)  # truncated inside a character, and not at all
@example(["<S>", "</S>", "<UNK>", "<PAD>", "", "x<S>y", "\ud800", "a\udfffb"], 3)
def test_characters_match_bilm_tf(words, width):
    encoding = encode_words(WIDTHS[width], words)
    assert encoding["char_ids"] == [bilm_row(word, width) for word in ["<S>", *words, "</S>"]]


MANY_LANGS_WORD = st.text(st.sampled_from("abé中👩 ") | st.characters(exclude_categories=["Cs"]), max_size=60)


@settings(max_examples=300)
@given(st.lists(MANY_LANGS_WORD), st.booleans())
@example(["<bos>", "<eos>", "<bow>", "<oov>", "", "ab", "👩" * 48, "👩" * 49], True)
def test_characters_match_many_langs(words, swapped):
    encoding = encode_words(MANY_LANGS[swapped], words)
    assert encoding["char_ids"] == [many_langs_row(word, swapped) for word in ["<bos>", *words, "<eos>"]]


def test_surrogates_are_unknown_characters_in_a_character_vocabulary():
    words = ["a\ud800b"]
    assert encode_words(MANY_LANGS[True], words)["char_ids"][1] == many_langs_row(words[0], True)


def test_convert_words_to_char_ids():
    words = ["<S>", "cat", None, "cat", "é"]
    assert TOKENIZER.convert_words_to_char_ids(words).tolist() == bilm_rows(words)
    assert TOKENIZER.convert_words_to_char_ids([]).shape == (0, 50)
    assert TOKENIZER.convert_char_ids_to_words(bilm_rows(words)) == ["<S>", "cat", "cat", "é"]


@pytest.mark.parametrize(
    "options, words, message",
    [
        ({}, ["a" * 49, "é" * 25, "a" * 49, "fine", "b" * 48], "3 of 7 words are longer than 48 bytes"),
        ({"max_characters_per_token": 5}, ["abcd"], "1 of 3 words are longer than 3 bytes"),
        ({"char_vocab": CHAR_VOCAB}, ["é" * 49, "é" * 48], "1 of 4 words are longer than 48 characters"),
    ],
)
def test_truncated_words_are_reported_once(caplog, options, words, message):
    tokenizer = ElmoTokenizer(bos_token="S", eos_token="E", **options)
    with caplog.at_level(logging.WARNING):
        encode_words(tokenizer, ["fit"])
        assert not caplog.messages
        for _ in range(2):
            encode_words(tokenizer, words)
            tokenizer("x" * 500)
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith(message)


# Raw text, pretokenized words, pairs.


@given(st.lists(ANY_WORD))
@example(["New York", " ", "don't", "U.S.", "a,b!", "x<S>y", "", "a", "", "\n", "\x00", "x" * 2000, "thecat", "catsat"])
@example(["<S>"])
def test_pretokenized_words_are_never_split(words):
    tokens = ["<S>", *words, "</S>"]
    encoding = encode_words(TOKENIZER, words, return_offsets_mapping=True)
    assert encoding.word_ids() == [None, *range(len(words)), None]
    offsets = encoding.pop("offset_mapping")[1:-1]
    assert [word[start:end] for word, (start, end) in zip(words, offsets)] == words
    assert encoding == naive_outputs(tokens)
    assert TOKENIZER.tokenize(words, is_split_into_words=True) == words


def test_pretokenized_words_are_never_split_into_words_of_the_vocabulary():
    tokenizer = ElmoTokenizer(vocab=["New", " York", "York", "##York", "N", "e", "w"])
    words = ["NewYork", "New York", " York", "New", "New##York"]
    assert encode_words(tokenizer, words)["input_ids"] == [1, 3, 3, 5, 4, 3, 2]


@settings(max_examples=300)
@given(ANY_TEXT)
@example("the cat\ud800 <S>é</S>\u200e שלום 👩\u200d👩 \x00x")
@example("é\ud800")  # as many bytes as characters, but at other offsets
def test_offsets_slice_the_text(text):
    encoding = TOKENIZER(text, return_offsets_mapping=True)
    words = [text[start:end] for start, end in encoding["offset_mapping"][1:-1]]
    assert TOKENIZER.tokenize(text) == words
    assert encoding["offset_mapping"][0] == encoding["offset_mapping"][-1] == (0, 0)
    assert encoding["char_ids"] == bilm_rows(["<S>", *words, "</S>"])
    assert encoding["input_ids"] == naive_outputs(["<S>", *words, "</S>"])["input_ids"]
    assert len({*encoding.word_ids()} - {None}) == len(words)
    # No character is lost or repeated.
    assert "".join(words) == "".join(character for character in text if not is_separator(character))


def test_special_tokens_in_text():
    text = "the<S>cat <PAD> </S>"
    encoding = TOKENIZER(text, add_special_tokens=False)
    assert encoding == {
        **naive_outputs(["the", "<S>", "cat", "<PAD>", "</S>"]),
        "attention_mask": [1] * 5,
    }
    assert TOKENIZER.tokenize(text, split_special_tokens=True) == "the < S > cat < PAD > < / S >".split()


PRETOKENIZED = {"is_split_into_words": True}


@pytest.mark.parametrize(
    "arguments, options, expected",
    [
        # one text, batches of texts
        (["the cat"], {}, [1, 4, 5, 2]),
        ([["the cat"]], {}, [[1, 4, 5, 2]]),
        ([["the cat", "sat"]], {}, [[1, 4, 5, 2], [1, 6, 2]]),
        ([("the cat", "sat")], {}, [[1, 4, 5, 2], [1, 6, 2]]),
        # one sentence of words, batches of them; two words are never a pair
        ([["the", "cat"]], PRETOKENIZED, [1, 4, 5, 2]),
        ([("the", "cat")], PRETOKENIZED, [1, 4, 5, 2]),
        ([["the cat"]], PRETOKENIZED, [1, 3, 2]),
        ([[["the"]]], PRETOKENIZED, [[1, 4, 2]]),
        ([[("the", "cat")]], PRETOKENIZED, [[1, 4, 5, 2]]),
        ([[("the", "cat"), ("sat", ".")]], PRETOKENIZED, [[1, 4, 5, 2], [1, 6, 7, 2]]),
        # pairs
        (["the cat", "sat"], {}, [1, 4, 5, 2, 1, 6, 2]),
        ([["the", "cat"], ["sat", "sat"]], {}, [[1, 4, 2, 1, 6, 2], [1, 5, 2, 1, 6, 2]]),
        ([[("the", "sat"), ("cat", "sat")]], {}, [[1, 4, 2, 1, 6, 2], [1, 5, 2, 1, 6, 2]]),
        ([["the", "cat"], ["sat"]], PRETOKENIZED, [1, 4, 5, 2, 1, 6, 2]),
        ([[["the"], ["cat"]], [["sat"], ["."]]], PRETOKENIZED, [[1, 4, 2, 1, 6, 2], [1, 5, 2, 1, 7, 2]]),
        ([[(["the"], ["sat", "."])]], PRETOKENIZED, [[1, 4, 2, 1, 6, 7, 2]]),
        # empty input
        ([""], {}, [1, 2]),
        ([" \n"], {"add_special_tokens": False}, []),
        ([[]], {}, []),
        ([["", "the", ""]], {}, [[1, 2], [1, 4, 2], [1, 2]]),
        ([[]], PRETOKENIZED, [1, 2]),
        ([[[]]], PRETOKENIZED, [[1, 2]]),
        ([[[], ["the"], []]], PRETOKENIZED, [[1, 2], [1, 4, 2], [1, 2]]),
        (["the", ""], {}, [1, 4, 2, 1, 2]),
        ([["the"], []], PRETOKENIZED, [1, 4, 2, 1, 2]),
        # without special tokens
        (["the cat"], {"add_special_tokens": False}, [4, 5]),
        (["the", "cat"], {"add_special_tokens": False}, [4, 5]),
        ([["the"], ["cat", "sat"]], PRETOKENIZED | {"add_special_tokens": False}, [4, 5, 6]),
    ],
)
def test_texts_pretokenized_words_and_batches(arguments, options, expected):
    encoding = TOKENIZER(*arguments, **options)
    words = {word_id: word for word, word_id in IDS.items()} | {3: "the cat"}
    assert encoding["input_ids"] == expected
    if expected and isinstance(expected[0], list):
        assert encoding["char_ids"] == [bilm_rows(map(words.get, row)) for row in expected]
        assert encoding["attention_mask"] == [[1] * len(row) for row in expected]
    else:
        assert encoding["char_ids"] == bilm_rows(map(words.get, expected))
        assert encoding["attention_mask"] == [1] * len(expected)


def test_token_attributes_of_a_pair():
    encoding = TOKENIZER("the cat", "sat.", return_special_tokens_mask=True, return_token_type_ids=True)
    assert encoding.tokens() == ["<S>", "the", "cat", "</S>", "<S>", "sat", ".", "</S>"]
    assert encoding["special_tokens_mask"] == [1, 0, 0, 1, 1, 0, 0, 1]
    assert encoding["token_type_ids"] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert encoding.word_ids() == [None, 0, 1, None, None, 0, 1, None]
    assert encoding.sequence_ids() == [None, 0, 0, None, None, 1, 1, None]
    assert encoding.word_to_tokens(1, sequence_index=1) == (6, 7)
    assert encoding.char_to_token(3, sequence_index=1) == 6
    assert TOKENIZER.tokenize("the zebra", "sat", add_special_tokens=True) == "<S> the zebra </S> <S> sat </S>".split()


A_TEXT = "A text must be a string, got "
A_LIST = "With is_split_into_words=True a sentence must be a list of words, got "
BOTH = "A batch must contain either single texts or pairs of texts, got both."
PAIRS = "text_pair must be a list of 2 texts, like text, got "


@pytest.mark.parametrize(
    "arguments, options, message",
    [
        ([5], {}, A_TEXT + "5: pass words with is_split_into_words=True, texts as a list."),
        ([b"the"], {}, A_TEXT + "b'the':"),
        ([[5]], {}, A_TEXT + "5:"),
        ([["the", None]], {}, A_TEXT + "None:"),
        ([[["the", "cat", "sat"], ["the"]]], {}, A_TEXT + "['the', 'cat', 'sat']:"),
        ([[["the"]]], {}, A_TEXT + "['the']:"),
        ([["the", ("the", "cat")]], {}, BOTH),
        ([["the", "cat"], ["sat"]], {}, PAIRS + "['sat']."),
        ([["the", "cat"], "sat"], {}, PAIRS + "'sat'."),
        (["the", ["cat"]], {}, A_TEXT + "('the', ['cat']):"),
        (["the cat"], PRETOKENIZED, A_LIST + "'the cat'."),
        ([5], PRETOKENIZED, A_LIST + "5."),
        ([["the", None]], PRETOKENIZED, A_LIST + "['the', None]."),
        ([["the", 5]], PRETOKENIZED, A_LIST + "['the', 5]."),
        ([[["the"], None]], PRETOKENIZED, A_LIST + "None."),
        ([[["the"], "cat"]], PRETOKENIZED, A_LIST + "'cat'."),
        ([["the", ["cat"]]], PRETOKENIZED, A_LIST + "['the', ['cat']]."),
        ([[["the"], [["cat"], ["sat"]]]], PRETOKENIZED, BOTH),
        ([[["the"], ["cat"]], [["sat"]]], PRETOKENIZED, PAIRS + "[['sat']]."),
        ([["the"], [["cat"]]], PRETOKENIZED, A_LIST + "(['the'], [['cat']])."),
        (["the"], {"max_length": -1, "truncation": True}, "max_length must be an integer, at least 1, got -1."),
        (["the"], {"max_length": 0, "truncation": True}, "max_length must be an integer, at least 1, got 0."),
        (["the"], {"max_length": "5", "truncation": True}, "max_length must be an integer, at least 1, got '5'."),
        (["the"], {"max_length": 5, "truncation": True, "stride": -1}, "stride must be an integer, at least 0"),
        (["the"], {"padding": True, "pad_to_multiple_of": -3}, "pad_to_multiple_of must be an integer"),
    ],
)  # fmt: skip
def test_bad_input_raises_an_error(arguments, options, message):
    assert_value_error(lambda: TOKENIZER(*arguments, **options), message)


BAD_CALLS = {
    "a number as a word": (lambda: TOKENIZER.convert_words_to_char_ids([5]), "A list of words is expected, got [5]."),
    "a string as words": (lambda: TOKENIZER.convert_words_to_char_ids("the"), "words is expected, got 'the'."),
    "words without their last mark": (lambda: TOKENIZER.convert_char_ids_to_words([[259, 5]]), "got [259, 5]."),
    "unknown characters": (lambda: TOKENIZER.convert_char_ids_to_words([[259, 999, 260]]), "those of this tokenizer"),
    "flat characters": (lambda: TOKENIZER.convert_char_ids_to_words([259, 5, 260]), "shape (words, characters)"),
    "float characters": (lambda: TOKENIZER.convert_char_ids_to_words([[259.5]]), "must be integers"),
    "training on numbers": (lambda: TOKENIZER.train_new_from_iterator([5], 10), "An iterator over texts"),
    "a negative vocabulary": (lambda: TOKENIZER.train_new_from_iterator(["a"], -1), "vocab_size must be an"),
}  # fmt: skip


@pytest.mark.parametrize("call, message", BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_bad_calls_raise_an_error(call, message):
    assert_value_error(call, message)


def test_tokenize_truncates_and_rejects_a_batch():
    assert TOKENIZER.tokenize("the cat sat", truncation=True, max_length=2) == ["the", "cat"]
    with pytest.raises(ValueError, match="tokenize expects one text, got a batch of 2"):
        TOKENIZER.tokenize(["the cat", "sat"])


# Truncation, padding, tensors.

LONG = ["the", "zebra", "cat", "ünïcode", "sat", "on", "the", "mat", "."]
SHORT = ["cat"]


@pytest.mark.parametrize("pretokenized", [True, False])
@pytest.mark.parametrize("max_length, stride", [(5, 0), (5, 1), (5, 2), (3, 0), (11, 3), (20, 3)])
def test_overflowing_chunks_cover_every_word(pretokenized, max_length, stride):
    batch = [LONG, SHORT, LONG]
    encoding = TOKENIZER(
        batch if pretokenized else [" ".join(words) for words in batch],
        is_split_into_words=pretokenized,
        truncation=True,
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
    )
    num_words = max_length - 2
    chunks, sample_mapping = [], []
    for sample, words in enumerate(batch):
        starts = range(0, max(len(words) - stride, 1), num_words - stride)
        chunks += [["<S>", *words[start : start + num_words], "</S>"] for start in starts]
        sample_mapping += [sample] * len(starts)
    assert encoding.pop("overflow_to_sample_mapping") == sample_mapping
    assert encoding == naive_batch(chunks)
    for sample, words in enumerate(batch):
        chunks_of_sample = [chunk for chunk, other in enumerate(sample_mapping) if other == sample]
        covered = {word for chunk in chunks_of_sample for word in encoding.word_ids(chunk)}
        assert covered == {None, *range(len(words))}


def test_truncation_side_and_truncation_of_pairs():
    left = ElmoTokenizer(vocab=VOCAB, truncation_side="left")
    assert encode_words(left, LONG, truncation=True, max_length=5) == naive_outputs(["<S>", *LONG[-3:], "</S>"])
    pair = encode_words(TOKENIZER, LONG, LONG, truncation="only_second", max_length=len(LONG) + 6)
    assert pair == naive_outputs(["<S>", *LONG, "</S>", "<S>", *LONG[:2], "</S>"])
    # Truncation does not carry over to the next call.
    assert encode_words(TOKENIZER, LONG) == naive_outputs(["<S>", *LONG, "</S>"])
    assert TOKENIZER(" ".join(LONG)) == naive_outputs(["<S>", *LONG, "</S>"])


def padded(sentences, length, side):
    """Add special tokens and padding to sentences of words."""
    result = []
    for words in sentences:
        tokens = ["<S>", *words, "</S>"]
        padding = [None] * (length - len(tokens))
        result.append(tokens + padding if side == "right" else padding + tokens)
    return result


PADDING = [
    ({"padding": True}, 11),
    ({"padding": "longest"}, 11),
    ({"padding": "longest", "pad_to_multiple_of": 8}, 16),
    ({"padding": "max_length", "max_length": 13}, 13),
    ({"padding": "max_length", "max_length": 13, "pad_to_multiple_of": 4}, 16),
]
both_sides = pytest.mark.parametrize("side", ["left", "right"])


@both_sides
@pytest.mark.parametrize("options, length", PADDING)
def test_padding_when_encoding(options, length, side):
    expected = naive_batch(padded([SHORT, LONG, []], length, side))
    for tokenizer, sides in (
        (ElmoTokenizer(vocab=VOCAB, padding_side=side), {}),
        (TOKENIZER, {"padding_side": side}),
    ):
        assert encode_words(tokenizer, [SHORT, LONG, []], **options, **sides) == expected
        encoding = encode_words(
            tokenizer, [SHORT, LONG, []], **options, **sides, return_tensors="np", return_special_tokens_mask=True
        )
        is_padding = np.array(encoding["attention_mask"]) == 0
        assert is_padding.any() and encoding["special_tokens_mask"][is_padding].all()
        assert not encoding["char_ids"][is_padding].any()
        assert as_lists(encoding) == expected | {"special_tokens_mask": encoding["special_tokens_mask"].tolist()}


@both_sides
@pytest.mark.parametrize("options, length", PADDING)
@pytest.mark.parametrize("kind", ["encodings", "one encoding", "lists", "numpy", "torch"])
def test_pad_method(kind, options, length, side):
    singles = [encode_words(TOKENIZER, words) for words in (SHORT, LONG, [])]
    convert = {"numpy": np.array, "torch": torch.tensor}.get(kind, list)
    if kind == "encodings":
        batch = singles
    elif kind == "one encoding":
        batch = encode_words(TOKENIZER, [SHORT, LONG, []])
    else:
        batch = [{name: convert(value) for name, value in single.items()} for single in singles]
    expected = naive_batch(padded([SHORT, LONG, []], length, side))
    result = TOKENIZER.pad(batch, padding_side=side, **options)
    assert {type(value) for value in result.values()} == {type(convert([0]))}
    assert as_lists(result) == expected
    tensors = TOKENIZER.pad([dict(single) for single in singles], padding_side=side, return_tensors="pt", **options)
    assert {value.dtype for value in tensors.values()} == {torch.int64}
    assert as_lists(tensors) == expected


def test_pad_method_with_ids_only_and_with_one_sentence():
    singles = [{"input_ids": [1, 2]}, {"input_ids": [1, 4, 2]}]
    assert TOKENIZER.pad(singles)["input_ids"] == [[1, 2, 0], [1, 4, 2]]
    one = TOKENIZER.pad(TOKENIZER("cat"), padding="max_length", max_length=5)
    assert one == naive_outputs(["<S>", "cat", "</S>", None, None])
    empty = dict(TOKENIZER("", add_special_tokens=False))
    assert as_lists(TOKENIZER.pad([empty, dict(TOKENIZER("cat"))])) == naive_batch([[None] * 3, ["<S>", "cat", "</S>"]])


@both_sides
def test_stock_collators(side):
    tokenizer = ElmoTokenizer(vocab=VOCAB, padding_side=side)
    expected = naive_batch(padded([SHORT, LONG], 16, side))
    examples = [dict(encode_words(tokenizer, words)) for words in (SHORT, LONG)]
    assert as_lists(DataCollatorWithPadding(tokenizer, pad_to_multiple_of=16)(examples)) == expected

    examples = [{**features, "labels": [7] * len(features["input_ids"])} for features in examples]
    batch = DataCollatorForTokenClassification(tokenizer, pad_to_multiple_of=16)(examples)
    labels = [[7 if is_word else -100 for is_word in row] for row in expected["attention_mask"]]
    assert as_lists(batch) == expected | {"labels": labels}


@pytest.mark.parametrize("pretokenized", [True, False])
def test_tensors_equal_lists(pretokenized):
    batch = [LONG, SHORT] if pretokenized else [" ".join(LONG), " ".join(SHORT)]
    options = {
        "is_split_into_words": pretokenized,
        "padding": True,
        "return_special_tokens_mask": True,
        "return_offsets_mapping": True,
        "return_token_type_ids": True,
        "return_length": True,
    }
    lists = dict(TOKENIZER(batch, **options))
    lists["offset_mapping"] = [[list(pair) for pair in row] for row in lists["offset_mapping"]]
    for kind, expected in (("np", np.ndarray), ("pt", torch.Tensor)):
        tensors = TOKENIZER(batch, **options, return_tensors=kind)
        assert {type(value) for value in tensors.values()} == {expected}
        assert as_lists(tensors) == lists
        # One sentence becomes a batch of one.
        single = TOKENIZER(batch[0], is_split_into_words=pretokenized, return_tensors=kind)
        assert as_lists(single) == naive_batch([["<S>", *LONG, "</S>"]])


@pytest.mark.parametrize("kind", ["np", "pt"])
def test_shapes_of_empty_tensors(kind):
    for texts, batch in (([], 0), (["", ""], 2), ("", 1)):
        tensors = TOKENIZER(texts, add_special_tokens=False, return_tensors=kind)
        shapes = {name: tuple(value.shape) for name, value in tensors.items()}
        assert shapes == {"input_ids": (batch, 0), "char_ids": (batch, 0, 50), "attention_mask": (batch, 0)}
        assert {str(value.dtype).removeprefix("torch.") for value in tensors.values()} == {"int64"}


@pytest.mark.parametrize("kind", ["np", "pt"])
def test_tensors_of_unequal_length_raise_an_error(kind):
    with pytest.raises(ValueError, match="padding=True"):
        encode_words(TOKENIZER, [LONG, SHORT], return_tensors=kind)


def test_unknown_tensor_type_raises_an_error():
    with pytest.raises(ValueError, match="tensorflow"):
        TOKENIZER("the cat", return_tensors="tensorflow")


# Decoding.


@pytest.mark.parametrize("convert", [list, np.array, torch.tensor])
def test_decode(convert):
    batch = encode_words(TOKENIZER, [["the", "zébra", "<S>"], ["cat"]], padding=True)
    ids, characters = convert(batch["input_ids"]), convert(batch["char_ids"])
    assert TOKENIZER.decode(ids) == ["<S> the <UNK> <S> </S>", "<S> cat </S> <PAD> <PAD>"]
    assert TOKENIZER.decode(ids[0]) == "<S> the <UNK> <S> </S>"
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == ["the", "cat"]
    assert TOKENIZER.decode(characters) == ["<S> the zébra <S> </S>", "<S> cat </S>"]
    assert TOKENIZER.decode(characters[0]) == "<S> the zébra <S> </S>"
    assert TOKENIZER.decode(characters[1]) == "<S> cat </S>"
    assert TOKENIZER.decode(characters[:1]) == ["<S> the zébra <S> </S>"]
    assert TOKENIZER.decode(characters, skip_special_tokens=True) == ["the zébra", "cat"]
    assert TOKENIZER.batch_decode(characters, skip_special_tokens=True) == ["the zébra", "cat"]


def test_decode_unequal_and_empty_sentences():
    batch = encode_words(TOKENIZER, [[], ["the", "zebra"], []], add_special_tokens=False)
    assert TOKENIZER.decode(batch["char_ids"]) == ["", "the zebra", ""]
    assert TOKENIZER.decode(batch["input_ids"]) == ["", "the <UNK>", ""]
    assert TOKENIZER.decode([]) == ""


def test_decode_does_not_mistake_fifty_word_ids_for_characters():
    ids = np.full((2, 50), IDS["cat"])
    assert TOKENIZER.decode(ids) == [" ".join(["cat"] * 50)] * 2


@pytest.mark.parametrize("swapped", [True, False])
def test_decode_with_a_character_vocabulary(swapped):
    characters = encode_words(MANY_LANGS[swapped], ["ab", "é中👩", "axb"])["char_ids"]
    assert MANY_LANGS[swapped].decode(characters) == "<bos> ab é中👩 a<oov>b <eos>"


# Vocabularies.

SPECIAL_IDS = {"<PAD>": 0, "<S>": 1, "</S>": 2, "<UNK>": 3}


@pytest.mark.parametrize(
    "vocab, expected",
    [
        (None, SPECIAL_IDS),
        ([], SPECIAL_IDS),
        (["b", "a"], SPECIAL_IDS | {"b": 4, "a": 5}),
        (("b", "a"), SPECIAL_IDS | {"b": 4, "a": 5}),
        (["</S>", "<S>", "<UNK>", "b", "a"], {"<PAD>": 0, "</S>": 1, "<S>": 2, "<UNK>": 3, "b": 4, "a": 5}),
        (["b", "<UNK>", "a"], {"<PAD>": 0, "<S>": 1, "</S>": 2, "b": 3, "<UNK>": 4, "a": 5}),
        (["<PAD>", "<S>", "</S>", "<UNK>", "b"], SPECIAL_IDS | {"b": 4}),
        ({"<PAD>": 0, "a": 1, "<S>": 2, "</S>": 3, "<UNK>": 4}, {"<PAD>": 0, "a": 1, "<S>": 2, "</S>": 3, "<UNK>": 4}),
    ],
)
def test_ids_of_a_vocabulary(vocab, expected):
    tokenizer = ElmoTokenizer(vocab=vocab)
    assert tokenizer.get_vocab() == expected
    words = ["a", "b", "zebra"]
    encoding = encode_words(tokenizer, words)
    tokens = ["<S>", *words, "</S>"]
    assert encoding["input_ids"] == [expected.get(token, expected["<UNK>"]) for token in tokens]
    assert encoding["char_ids"] == bilm_rows(tokens)  # unknown words keep their own characters


def test_ids_of_long_words():
    """ELMoForManyLangs truncates a word before it looks it up, bilm-tf only spells the beginning."""
    words = ["a" * 300, "a" * 48, "a" * 47]
    for char_vocab, ids in ((None, [4, 5, 3]), (CHAR_VOCAB, [5, 5, 3])):
        tokenizer = ElmoTokenizer(vocab=words[:2], char_vocab=char_vocab)
        assert encode_words(tokenizer, words)["input_ids"][1:-1] == ids
        assert tokenizer(" ".join(words))["input_ids"][1:-1] == ids


@pytest.mark.parametrize(
    "vocab, message",
    [
        ({"a": 0, "<S>": 1}, "the first with id 0; missing: <PAD>, </S>, <UNK>."),
        ({"<PAD>": 4, "<S>": 1, "</S>": 2, "<UNK>": 3}, "the first with id 0; <PAD> has id 4."),
        (SPECIAL_IDS | {"a": 3}, "must have an id of its own, got ['<UNK>', 'a'] with id 3."),
        (SPECIAL_IDS | {"a": 5}, "of 5 words must have the ids 0 to 4, got 'a' with id 5."),
        (SPECIAL_IDS | {"a": -1}, "of 5 words must have the ids 0 to 4, got 'a' with id -1."),
        (SPECIAL_IDS | {"a": 10**30}, "must have the ids 0 to 4, got 'a' with id 1000"),
        (SPECIAL_IDS | {"a": 4.0}, "must map words to integers, got 'a': 4.0."),
        (SPECIAL_IDS | {"a": True}, "must map words to integers, got 'a': True."),
        (SPECIAL_IDS | {5: 4}, "must map words to integers, got 5: 4."),
        ("vocab.txt", "must be a list of words or a dictionary from words to ids, got 'vocab.txt'."),
        ([1, 2], "must be a list of words or a dictionary from words to ids, got [1, 2]."),
        ({"a"}, "must be a list of words or a dictionary from words to ids, got {'a'}."),
        (5, "must be a list of words or a dictionary from words to ids, got 5."),
        (["\ud800"], "must be valid Unicode, got '\\ud800'."),
    ],
)
def test_bad_vocabularies_raise_an_error(vocab, message):
    assert_value_error(lambda: ElmoTokenizer(vocab=vocab), message)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"char_vocab": ["a", "<bos>", "<eos>", "<pad>", "<oov>"]}, "<bow>, <eow>."),
        ({"char_vocab": "abc"}, "char_vocab must be a list of characters, got 'abc'."),
        ({"char_vocab": [5]}, "char_vocab must be a list of characters, got [5]."),
        ({"max_characters_per_token": 2}, "at least 3 and below 32768, got 2."),
        ({"max_characters_per_token": 10**9}, "at least 3 and below 32768, got 1000000000."),
        ({"max_characters_per_token": "50"}, "at least 3 and below 32768, got '50'."),
        ({"max_characters_per_token": True}, "at least 3 and below 32768, got True."),
        ({"pad_token": None}, "pad_token must be a string, got None."),
        ({"bos_token": 5}, "bos_token must be a string, got 5."),
        ({"swap_word_marks": "x"}, "swap_word_marks must be True or False, got 'x'."),
        ({"add_bos_token": "x"}, "add_bos_token must be True or False, got 'x'."),
        ({"model_max_length": "x"}, "model_max_length must be a number of words, got 'x'."),
        ({"model_max_length": -5}, "model_max_length must be a number of words, got -5."),
        ({"model_max_length": float("nan")}, "model_max_length must be a number of words, got nan."),
    ],
)
def test_bad_options_raise_an_error_with_the_value(options, message):
    with pytest.raises(ValueError, match=re.escape(message) + "$"):
        ElmoTokenizer(**options)


# The content of a file, and its words in the order of their ids: bilm-tf's plus one if the file has special tokens.
@pytest.mark.parametrize(
    "content, words",
    [
        ("</S>\n<S>\n<UNK>\nthe\ncafé\n", ["<PAD>", "</S>", "<S>", "<UNK>", "the", "café"]),
        ("</S>\r\n<S>\r\n<UNK>\r\nthe\r\ncafé", ["<PAD>", "</S>", "<S>", "<UNK>", "the", "café"]),
        ("the\n<UNK>\n</S>\n<S>\n", ["<PAD>", "the", "<UNK>", "</S>", "<S>"]),
        ("the\ncafé\n", ["<PAD>", "<S>", "</S>", "<UNK>", "the", "café"]),
        ("</S>\n<S>\n<UNK>\n!!!MAXTERMID\nthe\n", ["<PAD>", "</S>", "<S>", "<UNK>", "the"]),  # skipped by bilm-tf
        ("the\na\u2028b\n", ["<PAD>", "<S>", "</S>", "<UNK>", "the", "a\u2028b"]),
    ],
)
def test_vocabulary_file_is_read_and_written(tmp_path, content, words):
    (tmp_path / "vocab.txt").write_bytes(content.encode())
    tokenizer = ElmoTokenizer(vocab_file=tmp_path / "vocab.txt")
    assert tokenizer.get_vocab() == {word: index for index, word in enumerate(words)}
    assert encode_words(tokenizer, ["the"])["input_ids"] == list(map(words.index, ["<S>", "the", "</S>"]))
    (path,) = tokenizer.save_vocabulary(tmp_path, "saved")
    assert path == str(tmp_path / "saved-vocab.txt")
    assert (tmp_path / "saved-vocab.txt").read_text(encoding="utf-8").split("\n") == [*words[1:], ""]
    assert ElmoTokenizer(vocab_file=path).get_vocab() == tokenizer.get_vocab()


def test_vocabulary_with_a_duplicate_raises_an_error(tmp_path):
    """Dropping the duplicate would shift all later ids away from their rows of the output layer."""
    (tmp_path / "vocab.txt").write_text("</S>\n<S>\n<UNK>\nthe\ncat\nthe\nsat\n")
    with pytest.raises(ValueError, match="'the'"):
        ElmoTokenizer(vocab_file=tmp_path / "vocab.txt")


def test_vocabulary_of_the_released_size(tmp_path):
    words = ["</S>", "<S>", "<UNK>", *(f"w{index:x}" for index in range(793_468))]
    ElmoTokenizer(vocab=words).save_pretrained(tmp_path)
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == tokenizer.vocab_size == 793_472
    indices = [3, 1000, 500_000, 793_470]
    expected = [2, *(index + 1 for index in indices), 3, 1]
    assert encode_words(tokenizer, [*map(words.__getitem__, indices), "v0"])["input_ids"] == expected
    assert tokenizer(" ".join([*map(words.__getitem__, indices), "v0"]))["input_ids"] == expected


def test_train_new_from_iterator_counts_words():
    texts = ["the zebra, the cat, the", "zebra don't sat", "the"]
    counts = {"the": 4, "zebra": 2, ",": 2, "cat": 1, "don": 1, "'t": 1, "sat": 1}
    base = ElmoTokenizer(vocab=VOCAB, max_characters_per_token=20, padding_side="left", add_bos_token=False)

    def train(tokenizer=base, vocab_size=100, **options):
        return tokenizer.train_new_from_iterator(texts, vocab_size, show_progress=False, **options)

    full = train()
    assert (full.max_characters_per_token, full.padding_side, full.add_bos_token) == (20, "left", False)
    order = sorted(full.get_vocab(), key=full.get_vocab().get)
    assert order[:5] == ["<PAD>", "<S>", "</S>", "<UNK>", "the"]
    assert set(order[4:]) == set(counts)
    assert [counts[word] for word in order[4:]] == sorted(counts.values(), reverse=True)
    assert sorted(full.get_vocab().values()) == list(range(len(order)))
    assert full("the", add_special_tokens=False)["char_ids"] == [bilm_row("the", 20)]

    assert sorted(train(vocab_size=5).get_vocab()) == sorted([*SPECIAL_IDS, "the"])
    assert set(train(min_frequency=2).get_vocab()) == {*SPECIAL_IDS, "the", "zebra", ","}

    with_new_token = train(new_special_tokens=["<N>"])
    assert "<N>" in with_new_token.all_special_tokens and len(with_new_token) == len(full) + 1
    assert with_new_token.tokenize("x<N>y") == ["x", "<N>", "y"]
    with_a_word = train(new_special_tokens=["zebra"])  # which the texts contain
    assert with_a_word.get_vocab()["zebra"] == 4 and len(with_a_word) == len(full)
    renamed = train(special_tokens_map={"<S>": "[B]"})
    assert renamed.bos_token == "[B]" and renamed.get_vocab()["[B]"] == 1 and "<S>" not in renamed.get_vocab()


def test_renamed_boundaries_are_added(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    renamed = ElmoTokenizer.from_pretrained(tmp_path, bos_token="[B]")
    assert renamed.tokenize("a", add_special_tokens=True) == ["[B]", "a", "</S>"]


def test_limits_that_need_no_truncation():
    expected = TOKENIZER("a b c")["input_ids"]
    for limit in (TOKENIZER.model_max_length, np.int64(9)):
        assert TOKENIZER("a b c", truncation=True, max_length=limit, stride=None)["input_ids"] == expected


def test_tokenizer_without_a_padding_token():
    tokenizer = copy.deepcopy(TOKENIZER)
    tokenizer.pad_token = None
    assert tokenizer(["a", "a b"])["input_ids"] == TOKENIZER(["a", "a b"])["input_ids"]


def test_train_new_from_iterator_with_a_loaded_tokenizer(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    trained = ElmoTokenizer.from_pretrained(tmp_path).train_new_from_iterator(["b b a"], 100, show_progress=False)
    assert trained.get_vocab() == SPECIAL_IDS | {"b": 4, "a": 5}
    assert TOKENIZER.get_vocab() == IDS


def test_added_tokens(tmp_path):
    tokenizer = ElmoTokenizer(vocab=VOCAB)
    assert tokenizer.add_tokens(["New York"]) == tokenizer.add_special_tokens({"mask_token": "<MASK>"}) == 1
    assert (tokenizer.vocab_size, len(tokenizer)) == (9, 11)
    tokenizer.save_pretrained(tmp_path)
    words = ["the", "New York", "<MASK>", "xNew York"]
    for same in (tokenizer, ElmoTokenizer.from_pretrained(tmp_path)):
        from_text = same("the New York<MASK>")
        assert from_text["input_ids"] == [1, 4, 9, 10, 2]
        assert from_text["char_ids"] == bilm_rows(["<S>", *words[:3], "</S>"])
        from_words = encode_words(same, words)
        assert from_words["input_ids"] == [1, 4, 9, 10, 3, 2]
        assert from_words["char_ids"] == bilm_rows(["<S>", *words, "</S>"])
        assert same.decode(from_text["char_ids"], skip_special_tokens=True) == "the New York"


# Saving, loading, copying, threads.

OPTIONS = {
    "defaults": {},
    "vocabulary": {"vocab": VOCAB},
    "dictionary": {"vocab": IDS},
    "characters": {"char_vocab": CHAR_VOCAB, "swap_word_marks": True},
    "width": {"max_characters_per_token": 9},
    "no begin": {"add_bos_token": False},
    "no end": {"add_eos_token": False},
    "no boundaries": {"add_bos_token": False, "add_eos_token": False},
    "other special tokens": {"pad_token": "[P]", "bos_token": "[B]", "eos_token": "[E]", "unk_token": "[U]"},
    "more special tokens": {"mask_token": "<MASK>", "extra_special_tokens": ["<X>"]},
    "split special tokens": {"split_special_tokens": True},
    "sides": {"padding_side": "left", "truncation_side": "left"},
    "maximum length": {"model_max_length": 7},
    "words only": {"model_input_names": ["input_ids", "attention_mask"]},
}


def behaviour(tokenizer):
    """Return the options, the vocabulary and some outputs of a tokenizer, to compare it with a copy."""
    names = "special_tokens_map extra_special_tokens char_vocab swap_word_marks max_characters_per_token add_bos_token"
    names += " add_eos_token padding_side truncation_side model_max_length model_input_names split_special_tokens"
    texts = ["the cat é <X> <MASK> [U]sat<S> zzzzzzzzzzzz", "a"]
    return (
        {name: getattr(tokenizer, name) for name in names.split()},
        tokenizer.get_vocab(),
        tokenizer(texts, padding=True, truncation=True, max_length=12).data,
        encode_words(tokenizer, texts, ["b"]).data,
        tokenizer.tokenize(texts[0]),
    )


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_saved_pickled_and_copied_tokenizers_are_the_same(tmp_path, monkeypatch, options):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    tokenizer = ElmoTokenizer(**options)
    expected = behaviour(tokenizer)
    for name, value in options.items():
        assert expected[0].get(name, value) == value or name in expected[0]["special_tokens_map"]
    tokenizer.save_pretrained(tmp_path / "first")
    loaded = ElmoTokenizer.from_pretrained(tmp_path / "first")
    loaded.save_pretrained(tmp_path / "second")
    saved_class = get_class_from_dynamic_module("tokenization_elmo.ElmoTokenizer", str(tmp_path / "second"))
    assert saved_class is not ElmoTokenizer
    copies = {
        "loaded": loaded,
        "loaded twice": ElmoTokenizer.from_pretrained(tmp_path / "second"),
        "auto": AutoTokenizer.from_pretrained(tmp_path / "first"),
        "with the saved code": saved_class.from_pretrained(tmp_path / "second"),
        "pickled": pickle.loads(pickle.dumps(tokenizer)),
        "copied": copy.deepcopy(tokenizer),
    }
    for name, same in copies.items():
        assert type(same).__name__ == "ElmoTokenizer"
        assert behaviour(same) == expected, name


def test_saved_tokenizer_contains_its_code(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "tokenization_elmo.py",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["auto_map"]["AutoTokenizer"][0] == "tokenization_elmo.ElmoTokenizer"
    assert config["tokenizer_class"] == "ElmoTokenizer"


def test_options_can_be_changed_when_loading(tmp_path):
    TOKENIZER.save_pretrained(tmp_path)
    tokenizer = ElmoTokenizer.from_pretrained(tmp_path, max_characters_per_token=9, add_eos_token=False)
    assert tokenizer("the")["char_ids"] == [bilm_row("<S>", 9), bilm_row("the", 9)]


def test_threads_share_a_tokenizer():
    words = ["New York", "x<S>y", "the"] * 50
    text = "the cat sat on Mr. Smith's mat. " * 20
    calls = [
        lambda: encode_words(TOKENIZER, words)["input_ids"],
        lambda: TOKENIZER(text)["input_ids"],
        lambda: TOKENIZER(text, truncation=True, max_length=7, padding="max_length")["input_ids"],
    ]
    expected = [call() for call in calls]
    failures = []

    def repeat(index):
        for _ in range(200):
            try:
                if calls[index]() != expected[index]:
                    failures.append(f"call {index} returned another result")
            except Exception as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=repeat, args=[index]) for index in range(len(calls))]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failures == []


def change_json(*keys, value):
    """Return a function that sets an item of a JSON object, found by its keys."""

    def change(content):
        item = content
        for key in keys[:-1]:
            item = item[key]
        item[keys[-1]] = value
        return content

    return change


DEEP = "[" * 100_000 + "]" * 100_000
DAMAGED_FILES = {
    "a list": ("tokenizer.json", lambda content: []),
    "a number": ("tokenizer_config.json", lambda content: 5),
    "a string": ("tokenizer.json", lambda content: "abc"),
    "an empty object": ("tokenizer.json", lambda content: {}),
    "no model": ("tokenizer.json", lambda content: {k: v for k, v in content.items() if k != "model"}),
    "vocabulary as a list": ("tokenizer.json", change_json("model", "vocab", value=["a"])),
    "empty vocabulary": ("tokenizer.json", change_json("model", "vocab", value={})),
    "one id twice": ("tokenizer.json", change_json("model", "vocab", "cat", value=5)),
    "a hole": ("tokenizer.json", change_json("model", "vocab", "cat", value=9)),
    "a negative id": ("tokenizer.json", change_json("model", "vocab", "cat", value=-1)),
    "a huge id": ("tokenizer.json", change_json("model", "vocab", "cat", value=2**32 - 1)),
    "an id above 64 bits": ("tokenizer.json", change_json("model", "vocab", "cat", value=10**30)),
    "padding elsewhere": ("tokenizer.json", change_json("model", "vocab", value={"cat": 0, "<PAD>": 1})),
    "another prefix": ("tokenizer.json", change_json("model", "continuing_subword_prefix", value="##")),
    "a subword model": ("tokenizer.json", change_json("model", value={"type": "BPE", "vocab": {"a": 0}, "merges": []})),
    "an unknown model": ("tokenizer.json", change_json("model", "type", value="Nonsense")),
    "added tokens as an object": ("tokenizer.json", change_json("added_tokens", value={"a": 1})),
    "added tokens of numbers": ("tokenizer.json", change_json("added_tokens", value=[1, 2])),
    "an unknown pre-tokenizer": ("tokenizer.json", change_json("pre_tokenizer", value={"type": "Nonsense"})),
    "an invalid pattern": ("tokenizer.json", change_json("pre_tokenizer", "pattern", value={"Regex": "(("})),
    "no special token": ("tokenizer_config.json", change_json("pad_token", value=None)),
    "a number as special token": ("tokenizer_config.json", change_json("bos_token", value=5)),
    "an unknown token for unknown words": ("tokenizer.json", change_json("model", "unk_token", value="<nothing>")),
    "a text as length": ("tokenizer_config.json", change_json("model_max_length", value="long")),
    "a negative length": ("tokenizer_config.json", change_json("model_max_length", value=-1)),
    "very wide words": ("tokenizer_config.json", change_json("max_characters_per_token", value=10**9)),
    "words of a text's width": ("tokenizer_config.json", change_json("max_characters_per_token", value="50")),
    "characters as a text": ("tokenizer_config.json", change_json("char_vocab", value="abc")),
    "an unknown side": ("tokenizer_config.json", change_json("padding_side", value="up")),
}  # fmt: skip


@pytest.mark.parametrize("name, change", DAMAGED_FILES.values(), ids=DAMAGED_FILES.keys())
def test_damaged_files_raise_an_error(tmp_path, name, change):
    ElmoTokenizer(["cat", "dog"]).save_pretrained(tmp_path)
    content = change(json.loads((tmp_path / name).read_text(encoding="utf-8")))
    (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises((OSError, ValueError)):
        ElmoTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize("content", [DEEP, '{"a":' * 100_000, "\xff\xfe", "", "\0" * 100], ids=range(5))
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_files_of_other_content_raise_an_error(tmp_path, name, content):
    ElmoTokenizer(["cat", "dog"]).save_pretrained(tmp_path)
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    with pytest.raises(OSError, match=r"cannot be read .*: a file is truncated or damaged\. Download"):
        ElmoTokenizer.from_pretrained(tmp_path)


def test_padding_in_a_file_is_ignored(tmp_path):
    """A length of 2 ** 40 would be allocated for the first text."""
    ElmoTokenizer(["cat", "dog"]).save_pretrained(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    padding = {"strategy": {"Fixed": 2**40}, "direction": "Right", "pad_to_multiple_of": None}
    content["padding"] = {**padding, "pad_id": 0, "pad_type_id": 0, "pad_token": "<PAD>"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    assert ElmoTokenizer.from_pretrained(tmp_path)("cat dog")["input_ids"] == [1, 4, 5, 2]


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_truncated_files_raise_an_error(tmp_path, name):
    ElmoTokenizer(["cat", "dog"]).save_pretrained(tmp_path)
    file = tmp_path / name
    file.write_text(file.read_text()[:150])
    with pytest.raises(OSError, match="truncated"):
        ElmoTokenizer.from_pretrained(tmp_path)


def test_folder_without_a_vocabulary_raises_an_error(tmp_path):
    ElmoTokenizer(["cat", "dog"]).save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(OSError, match=r"tokenizer\.json"):
        ElmoTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize("side", ["right", "left"])
def test_encodings_are_padded_like_the_tensors(side):
    batch = ElmoTokenizer()(["the cat sat", "", "on"], padding=True, padding_side=side, return_tensors="pt")
    for encoded in (batch, pickle.loads(pickle.dumps(batch))):
        assert [len(encoding) for encoding in encoded.encodings] == [5, 5, 5]
        assert [encoding.attention_mask for encoding in encoded.encodings[1:]] == batch["attention_mask"][1:].tolist()
        expected = [None, 0, None, None, None] if side == "right" else [None, None, None, 0, None]
        assert encoded.word_ids(2) == expected == encoded[-1].word_ids
