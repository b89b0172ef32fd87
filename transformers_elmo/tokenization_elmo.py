# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Tokenizer of ELMo: words, with their ids and their characters.

Raw text is split as the Moses tokenizer splits English, like ELMo's training data; pretokenized words are never split.
A word's characters are its UTF-8 bytes, as in bilm-tf, or ids from a character vocabulary, as in ELMoForManyLangs.
"""

import json
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import BatchEncoding, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import TruncationStrategy
from transformers.utils import PaddingStrategy, TensorType, logging

logger = logging.get_logger(__name__)

BACKEND_LOCK = threading.RLock()  # shared by all tokenizers: a tokenizer that owned a lock could not be pickled
SURROGATE = re.compile("[\ud800-\udfff]")
# Replaces, for the backend only, lone surrogates, which it rejects, and empty pretokenized words, which it would drop.
# Offsets stay correct: those of an empty word slice "" out of "".
REPLACEMENT = "\ufffd"
# Symbols that are not characters of a word, with their ids in bilm-tf, where ids 0 to 255 are the bytes.
MARKS = {"<bos>": 256, "<eos>": 257, "<bow>": 258, "<eow>": 259, "<pad>": 260}


class ElmoTokenizer(PreTrainedTokenizerFast):
    r"""
    Converts text to `input_ids` (B, T), `char_ids` (B, T, W) and `attention_mask` (B, T).

    Id 0 is padding in `input_ids` and `char_ids`, so all other ids are those of bilm-tf plus one. A word that is not
    in the vocabulary is `<UNK>` in `input_ids`, but keeps its own characters in `char_ids`.

    Args:
        vocab (`list[str]` or `dict[str, int]`, *optional*): words in the order of the language model's output layer,
            or a mapping from words to ids. Special tokens missing from a list are put first. Without a vocabulary,
            every word has the id of `<UNK>`.
        vocab_file (`str`, *optional*): a file with one word per line, such as bilm-tf's `vocab.txt`.
        char_vocab (`list[str]`, *optional*): the characters of ELMoForManyLangs' `char.dic` in their order, including
            `<bos>`, `<eos>`, `<bow>`, `<eow>`, `<pad>` and `<oov>`. By default, characters are UTF-8 bytes.
        swap_word_marks (`bool`): begin words with the end-of-word mark and end them with the begin-of-word mark, as
            the released models of ELMoForManyLangs expect.
        max_characters_per_token (`int`): width W of a word including its two marks; longer words are truncated.

    Example:

    ```python
    >>> tokenizer = ElmoTokenizer()
    >>> tokenizer.tokenize("Don't stop!")
    ['Don', "'t", 'stop', '!']
    >>> tokenizer([["Don", "'t", "stop"], ["Yes"]], is_split_into_words=True, padding=True)["attention_mask"]
    [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    ```
    """

    vocab_files_names = {"tokenizer_file": "tokenizer.json", "vocab_file": "vocab.txt"}
    model_input_names = ["input_ids", "char_ids", "attention_mask"]
    padding_side = "right"

    def __init__(
        self,
        vocab: list[str] | dict[str, int] | None = None,
        vocab_file: str | os.PathLike | None = None,
        tokenizer_file: str | None = None,
        char_vocab: list[str] | None = None,
        swap_word_marks: bool = False,
        max_characters_per_token: int = 50,
        pad_token: str = "<PAD>",
        bos_token: str = "<S>",
        eos_token: str = "</S>",
        unk_token: str = "<UNK>",
        add_bos_token: bool | None = None,
        add_eos_token: bool | None = None,
        **kwargs,
    ):
        if type(max_characters_per_token) is not int or not 3 <= max_characters_per_token < 2**15:
            raise ValueError(
                f"max_characters_per_token must be an integer, at least 3 and below {2**15}, "
                f"got {max_characters_per_token!r:.80}."
            )
        if char_vocab is not None and not is_list_of_strings(char_vocab):
            raise ValueError(f"char_vocab must be a list of characters, got {char_vocab!r:.80}.")
        named = {"pad_token": pad_token, "bos_token": bos_token, "eos_token": eos_token, "unk_token": unk_token}
        for name, token in named.items():
            if not isinstance(token, (str, AddedToken)):
                raise ValueError(f"{name} must be a string, got {token!r:.80}.")
        flags = {"swap_word_marks": swap_word_marks, "add_bos_token": add_bos_token, "add_eos_token": add_eos_token}
        for name, flag in flags.items():
            if flag not in (True, False, None):
                raise ValueError(f"{name} must be True or False, got {flag!r:.80}.")
        special_tokens = [str(token) for token in named.values()]
        if tokenizer_file is not None and vocab is not None:
            raise ValueError("A tokenizer is made from a vocabulary or from a tokenizer.json, got both.")
        if tokenizer_file is not None and not os.path.isfile(tokenizer_file):
            raise FileNotFoundError(f"tokenizer_file must be a tokenizer.json; there is no file {tokenizer_file}.")
        if tokenizer_file is None:
            if vocab is None and vocab_file is not None:
                vocab = read_vocabulary(vocab_file)
            self._tokenizer = build_backend(vocab, special_tokens)
        super().__init__(
            tokenizer_file=tokenizer_file,
            char_vocab=char_vocab,
            swap_word_marks=swap_word_marks,
            max_characters_per_token=max_characters_per_token,
            **named,
            **kwargs,
        )
        if tokenizer_file is not None:
            check_backend(self._tokenizer, special_tokens[0])
        if not isinstance(self.model_max_length, (int, float)) or not self.model_max_length >= 1:
            raise ValueError(f"model_max_length must be a number of words, got {self.model_max_length!r:.80}.")
        # transformers does not save whether boundaries are added, but tokenizer.json does.
        added = [self.bos_token_id, self.eos_token_id] if tokenizer_file is None else self._tokenizer.encode("").ids
        both = len(added) > 1  # also where a boundary has been renamed
        self.add_bos_token = both or self.bos_token_id in added if add_bos_token is None else add_bos_token
        self.add_eos_token = both or self.eos_token_id in added if add_eos_token is None else add_eos_token
        self.init_kwargs |= {"add_bos_token": self.add_bos_token, "add_eos_token": self.add_eos_token}
        self.char_vocab, self.swap_word_marks = char_vocab, swap_word_marks
        self.max_characters_per_token = max_characters_per_token
        self._warned_about_long_words = False
        # Ids are shifted by one: 0 is padding.
        if char_vocab is None:
            self._mark_ids = {mark: index + 1 for mark, index in MARKS.items()}
            self._symbol_ids = np.arange(1, 257)  # by byte
        else:
            ids = {symbol: index + 1 for index, symbol in enumerate(char_vocab)}
            missing = [mark for mark in (*MARKS, "<oov>") if mark not in ids]
            if missing:
                raise ValueError(f"char_vocab needs {', '.join(MARKS)} and <oov>; missing: {', '.join(missing)}.")
            self._mark_ids = {mark: ids[mark] for mark in MARKS}
            self._symbol_ids = np.full(0x110000, ids["<oov>"])  # by Unicode code point
            for symbol, symbol_id in ids.items():
                if len(symbol) == 1:
                    self._symbol_ids[ord(symbol)] = symbol_id
        self._first_mark, self._last_mark = self._mark_ids["<bow>"], self._mark_ids["<eow>"]
        if swap_word_marks:
            self._first_mark, self._last_mark = self._last_mark, self._first_mark

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs) -> "ElmoTokenizer":
        """Load a tokenizer as transformers does, with a clear error for a damaged file."""
        try:
            return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        except BaseException as error:
            # Damaged files raise errors of every kind, in transformers and in the backend.
            is_ours = isinstance(error, (OSError, ValueError)) and not isinstance(
                error, (json.JSONDecodeError, UnicodeError)
            )
            is_about_an_option = any(f"{name} " in str(error) for name in kwargs)
            if is_ours or is_about_an_option or not (isinstance(error, Exception) or is_panic(error)):
                raise
            raise OSError(
                f"The tokenizer of {pretrained_model_name_or_path} cannot be read ({type(error).__name__}: {error}): "
                "a file is truncated or damaged. Download or save it again."
            ) from error

    @classmethod
    def convert_to_native_format(cls, trust_remote_code=False, **kwargs):
        """Pass the file names on to `__init__`, which reads the files itself."""
        if kwargs.get("tokenizer_file") is None and kwargs.get("vocab_file") is None:
            raise OSError(f"A tokenizer needs a file {' or '.join(cls.vocab_files_names.values())}; found neither.")
        return kwargs

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str]:
        """Write the vocabulary as bilm-tf's `vocab.txt`: one word per line, sorted by id, without padding."""
        words = sorted(self._tokenizer.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
        name = (filename_prefix + "-" if filename_prefix else "") + self.vocab_files_names["vocab_file"]
        path = os.path.join(save_directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{word}\n" for word, word_id in words if word_id != self.pad_token_id)
        return (path,)

    def tokenize(self, text: str, pair: str | None = None, add_special_tokens: bool = False, **kwargs) -> list[str]:
        """Split a text into words, spelled as in the text even if they are not in the vocabulary."""
        is_split_into_words = kwargs.get("is_split_into_words", False)
        samples, batched = as_samples(text, pair, is_split_into_words)
        if batched:
            raise ValueError(f"tokenize expects one text, got a batch of {len(samples)}.")
        encoding = self(text, pair, add_special_tokens=add_special_tokens, **kwargs).encodings[0]
        text, starts, ends, _ = word_spans([encoding], [0], samples, is_split_into_words)
        return [
            token if special else text[start:end]
            for token, special, start, end in zip(encoding.tokens, encoding.special_tokens_mask, starts, ends)
        ]

    def convert_words_to_char_ids(self, words: list[str | None]) -> np.ndarray:
        """Return the character ids of words, (len(words), W); None stands for padding and becomes zeros.

        Words are truncated to W - 2 characters, or to W - 2 bytes, which may split the last character, as in the
        original implementations.
        """
        if not isinstance(words, (list, tuple)) or not all(isinstance(word, (str, NoneType)) for word in words):
            raise ValueError(f"A list of words is expected, got {words!r:.80}.")
        ends = np.cumsum([0, *(len(word or "") for word in words)])
        char_ids = self._spell("".join(word or "" for word in words), ends[:-1], ends[1:])
        boundaries = {self.bos_token: "<bos>", self.eos_token: "<eos>"}
        for row, word in enumerate(words):
            if word is None:
                char_ids[row] = 0
            elif word in boundaries:
                char_ids[row] = self._boundary(boundaries[word])
        return char_ids

    def _boundary(self, mark: str) -> np.ndarray:
        """Return the character ids of `<bos>` or `<eos>`, (W,)."""
        row = np.full(self.max_characters_per_token, self._mark_ids["<pad>"])
        row[:3] = self._first_mark, self._mark_ids[mark], self._last_mark
        return row

    def _spell(self, text: str, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return the character ids of the words `text[start:end]`: starts, ends (words,) -> (words, W)"""
        if self.char_vocab is not None:
            symbols = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        else:
            symbols = np.frombuffer(text.encode("utf-8", "ignore"), dtype=np.uint8)
            if not text.isascii():
                if SURROGATE.search(text):  # surrogates have no UTF-8 bytes; bilm-tf drops them
                    byte_offsets = np.cumsum([0, *(len(character.encode("utf-8", "ignore")) for character in text)])
                else:
                    byte_offsets = np.append(((symbols & 0xC0) != 0x80).nonzero()[0], len(symbols))
                starts, ends = byte_offsets[starts], byte_offsets[ends]
        max_length = self.max_characters_per_token - 2
        lengths = ends - starts  # (words,)
        num_long = int((lengths > max_length).sum())
        if num_long:
            lengths = np.minimum(lengths, max_length)
            if not self._warned_about_long_words:
                self._warned_about_long_words = True
                unit = "bytes" if self.char_vocab is None else "characters"
                logger.warning(
                    f"{num_long} of {len(lengths)} words are longer than {max_length} {unit} and were truncated. "
                    "This warning is shown only once."
                )
        char_ids = np.full((len(lengths), self.max_characters_per_token), self._mark_ids["<pad>"])  # (words, W)
        char_ids[:, 0] = self._first_mark
        rows = np.repeat(np.arange(len(lengths)), lengths)  # (characters,)
        columns = np.arange(len(rows)) - np.repeat(lengths.cumsum() - lengths, lengths)
        char_ids[rows, columns + 1] = self._symbol_ids[symbols[starts[rows] + columns]]
        char_ids[np.arange(len(lengths)), lengths + 1] = self._last_mark
        return char_ids

    def convert_char_ids_to_words(self, char_ids) -> list[str]:
        """Return the words that `char_ids` (T, W) spell, without padding."""
        if self.char_vocab is None:
            symbols = {byte + 1: bytes([byte]) for byte in range(256)}
        else:
            symbols = {index + 1: symbol.encode() for index, symbol in enumerate(self.char_vocab)}
        boundaries = {self._mark_ids["<bos>"]: self.bos_token, self._mark_ids["<eos>"]: self.eos_token}
        words = []
        rows = np.asarray(char_ids)
        if rows.size and (rows.ndim != 2 or not np.issubdtype(rows.dtype, np.integer)):
            raise ValueError(f"char_ids must be integers of shape (words, characters), got {char_ids!r:.80}.")
        known = {0, *symbols, *self._mark_ids.values()}
        for row in rows.tolist():
            if any(row):
                if not known.issuperset(row) or self._last_mark not in row[1:]:
                    raise ValueError(f"char_ids must be those of this tokenizer, got {row!r:.80}.")
                characters = row[1 : row.index(self._last_mark, 1)]
                if len(characters) == 1 and characters[0] in boundaries:
                    words.append(boundaries[characters[0]])
                else:
                    words.append(b"".join(symbols[character] for character in characters).decode("utf-8", "replace"))
        return words

    def decode(self, token_ids, skip_special_tokens: bool = False, **kwargs) -> str | list[str]:
        """Decode `input_ids` or `char_ids` of one sentence or of a batch; `char_ids` also restore unknown words."""
        sentences, batched = self._as_char_ids(token_ids)
        if sentences is None:
            with id_errors(token_ids):
                return super().decode(token_ids, skip_special_tokens=skip_special_tokens, **kwargs)
        specials = set(self.all_special_tokens) if skip_special_tokens else ()
        texts = [
            " ".join(word for word in self.convert_char_ids_to_words(rows) if word not in specials)
            for rows in sentences
        ]
        return texts if batched else texts[0]

    def convert_ids_to_tokens(self, ids, skip_special_tokens: bool = False) -> str | list[str]:
        """Return the word of each id."""
        with id_errors(ids):
            return super().convert_ids_to_tokens(ids, skip_special_tokens=skip_special_tokens)

    def _as_char_ids(self, ids) -> tuple[list[np.ndarray] | None, bool]:
        """Return a list of sentences (T, W) if ids are character ids, else None, and whether they are a batch.

        Two-dimensional ids are either one sentence of character ids or a batch of word ids. They are taken for
        character ids if all rows have width W, start with the first mark of a word and contain the last.
        """
        try:
            first: list = next((row for row in ids if len(row)), [])
        except TypeError:
            return None, False
        depth = np.ndim(first[0]) + 2 if len(first) else 0
        if depth == 3:
            return [np.asarray(rows) for rows in ids], True
        if depth == 2 and all(len(row) == self.max_characters_per_token for row in ids):
            rows = np.asarray(ids)
            words = rows[rows.any(1)]
            if len(words) and (words[:, 0] == self._first_mark).all() and (words == self._last_mark).any(1).all():
                return [rows], False
        return None, False

    def train_new_from_iterator(
        self, text_iterator, vocab_size, length=None, new_special_tokens=None, special_tokens_map=None, **kwargs
    ) -> "ElmoTokenizer":
        """Return a tokenizer with the same options, and with the most frequent words of the texts as its vocabulary."""
        if isinstance(text_iterator, str) or isinstance(new_special_tokens, str):
            raise ValueError("Texts and new special tokens must be lists, got a string; put it in a list.")
        renames = special_tokens_map or {}
        special_tokens = {name: renames.get(token, token) for name, token in self.special_tokens_map.items()}
        first_tokens = [special_tokens[name] for name in ("pad_token", "bos_token", "eos_token", "unk_token")]
        first_tokens += map(str, new_special_tokens or [])
        counter = Tokenizer(models.WordLevel({special_tokens["unk_token"]: 0}, unk_token=special_tokens["unk_token"]))
        counter.pre_tokenizer = self._tokenizer.pre_tokenizer
        if type(vocab_size) is not int or vocab_size < 1:
            raise ValueError(f"vocab_size must be an integer, at least 1, got {vocab_size!r:.80}.")
        try:
            counter.train_from_iterator(
                text_iterator,
                trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=first_tokens, **kwargs),
                length=length,
            )
        except TypeError as error:
            raise ValueError(f"An iterator over texts or lists of texts is expected, got {error}.") from error
        options = {key: value for key, value in self.init_kwargs.items() if key not in ("tokenizer_file", "vocab_file")}
        options |= special_tokens | {"add_bos_token": self.add_bos_token, "add_eos_token": self.add_eos_token}
        if new_special_tokens:
            options["extra_special_tokens"] = [*self.extra_special_tokens, *new_special_tokens]
        ids = counter.get_vocab()
        # A special token that is also a word of the texts has been counted twice.
        return type(self)(vocab=[*dict.fromkeys([*first_tokens, *sorted(ids, key=ids.__getitem__)])], **options)

    def _encode_plus(
        self,
        text,
        text_pair=None,
        add_special_tokens=True,
        padding_strategy=PaddingStrategy.DO_NOT_PAD,
        truncation_strategy=TruncationStrategy.DO_NOT_TRUNCATE,
        max_length=None,
        stride=0,
        is_split_into_words=False,
        pad_to_multiple_of=None,
        padding_side=None,
        return_tensors=None,
        return_token_type_ids=None,
        return_attention_mask=None,
        return_overflowing_tokens=False,
        return_special_tokens_mask=False,
        return_offsets_mapping=False,
        return_length=False,
        verbose=True,
        split_special_tokens=None,
        **kwargs,
    ) -> BatchEncoding:
        """Encode as transformers does, with `char_ids`, in flat arrays of all tokens, which are faster than lists."""
        samples, batched = as_samples(text, text_pair, is_split_into_words)
        for name, number, minimum in (
            ("max_length", max_length, 1),
            ("stride", stride, 0),
            ("pad_to_multiple_of", pad_to_multiple_of, 1),
        ):
            if number is not None and (not isinstance(number, (int, np.integer)) or number < minimum):
                raise ValueError(f"{name} must be an integer, at least {minimum}, got {number!r:.80}.")
        truncation = None
        if truncation_strategy != TruncationStrategy.DO_NOT_TRUNCATE:
            stride = int(stride or 0)
            num_special = self.num_special_tokens_to_add(any(len(each) == 2 for each in samples))
            room = max_length - (num_special if add_special_tokens else 0)
            # The backend would not truncate, or panic.
            if room < 0 or (room <= stride and (stride or return_overflowing_tokens)):
                raise ValueError(
                    f"max_length must leave room for {num_special * add_special_tokens} special tokens and more words "
                    f"than stride={stride}, got max_length={max_length}."
                )
            truncation = {"max_length": min(int(max_length), sys.maxsize), "stride": stride}
            truncation |= {"strategy": truncation_strategy.value, "direction": self.truncation_side}
        if split_special_tokens is None:
            split_special_tokens = self.split_special_tokens
        encodings = self._run_backend(
            samples,
            add_special_tokens=add_special_tokens,
            is_split_into_words=is_split_into_words,
            split_special_tokens=split_special_tokens,
            truncation=truncation,
        )
        sample_indices = list(range(len(encodings)))  # of the sample that each encoding belongs to
        if return_overflowing_tokens:
            sample_indices = [i for i, encoding in enumerate(encodings) for _ in range(1 + len(encoding.overflowing))]
            encodings = [part for encoding in encodings for part in (encoding, *encoding.overflowing)]

        text, starts, ends, offsets = word_spans(encodings, sample_indices, samples, is_split_into_words)
        # Tokens that are not in the text. An empty pretokenized word is not empty to the backend, see REPLACEMENT.
        is_special = (starts == ends) & (offsets[:, 0] == offsets[:, 1])
        ids = concatenate(encodings, "ids")
        ids = self._correct_ids(ids, text, starts, ends, is_split_into_words=is_split_into_words)
        # The values of all tokens, and the value at padding.
        outputs: dict[str, tuple[np.ndarray, int]] = {"input_ids": (ids, self.pad_token_id)}
        if return_token_type_ids or (return_token_type_ids is None and "token_type_ids" in self.model_input_names):
            outputs["token_type_ids"] = concatenate(encodings, "type_ids"), self.pad_token_type_id
        if return_attention_mask or (return_attention_mask is None and "attention_mask" in self.model_input_names):
            outputs["attention_mask"] = np.ones_like(ids), 0
        if return_special_tokens_mask:
            outputs["special_tokens_mask"] = is_special.astype(np.int64), 1
        if return_offsets_mapping:
            outputs["offset_mapping"] = offsets, 0
        if "char_ids" in self.model_input_names:
            char_ids = self._spell(text, starts, ends)
            outputs["char_ids"] = self._spell_special_tokens(char_ids, ids, is_special), 0

        lengths = np.array([len(encoding) for encoding in encodings], dtype=np.int64)  # (B,)
        padded_to = padded_lengths(lengths, padding_strategy, max_length, pad_to_multiple_of)  # (B,)
        side = padding_side or self.padding_side
        padding = {"pad_id": self.pad_token_id or 0, "pad_type_id": self.pad_token_type_id}
        padding["pad_token"] = self.pad_token or ""  # it can be unset
        encodings = PaddedEncodings(encodings, padded_to.tolist(), {"direction": side, **padding})
        data = pad_rows(outputs, lengths, padded_to, side)
        if return_length:
            data["length"] = padded_to
        if return_overflowing_tokens:
            data["overflow_to_sample_mapping"] = np.array(sample_indices, dtype=np.int64)
        self._eventual_warn_about_too_long_sequence(range(lengths.max(initial=0)), max_length, verbose)

        if return_tensors is not None:
            if len(set(padded_to.tolist())) > 1:  # BatchEncoding raises an error that recommends padding
                return BatchEncoding({"input_ids": [row.tolist() for row in data["input_ids"]]}, tensor_type="pt")
            if TensorType(return_tensors) == TensorType.PYTORCH:
                return BatchEncoding({name: torch.from_numpy(values) for name, values in data.items()}, encodings)
            return BatchEncoding(data, encodings, tensor_type=return_tensors)
        data = {name: [row.tolist() for row in values] for name, values in data.items()}
        if "offset_mapping" in data:
            data["offset_mapping"] = [[tuple(pair) for pair in row] for row in data["offset_mapping"]]
        if not batched and not return_overflowing_tokens:
            data = {name: values[0] for name, values in data.items()}
        return BatchEncoding(data, encodings)

    def _run_backend(
        self,
        samples: list[tuple],
        add_special_tokens: bool,
        is_split_into_words: bool,
        split_special_tokens: bool,
        truncation: dict | None,
    ) -> list:
        """Return the backend's encodings, without padding."""
        if is_split_into_words:
            # A backend with the same vocabulary, but without a pre-tokenizer and added tokens, so that words are
            # neither split nor searched for special tokens.
            backend = Tokenizer(self._tokenizer.model)
            backend.post_processor = self._tokenizer.post_processor
            set_truncation(backend, truncation)
            return encode_samples(backend, samples, add_special_tokens, is_split_into_words)
        backend = self._tokenizer
        with BACKEND_LOCK:  # threads share the backend's settings
            if backend.encode_special_tokens != split_special_tokens:
                backend.encode_special_tokens = split_special_tokens
            if backend.padding is not None:
                backend.no_padding()
            set_truncation(backend, truncation)
            return encode_samples(backend, samples, add_special_tokens, is_split_into_words)

    def _correct_ids(
        self, ids: np.ndarray, text: str, starts: np.ndarray, ends: np.ndarray, is_split_into_words: bool
    ) -> np.ndarray:
        """Replace the backend's ids (tokens,) of added tokens and of truncated words, which it does not know."""
        if is_split_into_words and (added_tokens := self._added_token_ids()):
            words = (text[start:end] for start, end in zip(starts, ends))
            ids = np.array([added_tokens.get(word, word_id) for word, word_id in zip(words, ids.tolist())], np.int64)
        if self.char_vocab is not None:
            # ELMoForManyLangs truncates a word before it looks up its id too.
            max_length = self.max_characters_per_token - 2
            for index in (ends - starts > max_length).nonzero()[0]:
                truncated_word = text[starts[index] : starts[index] + max_length]
                ids[index] = self._convert_token_to_id_with_added_voc(truncated_word)
        return ids

    def _spell_special_tokens(self, char_ids: np.ndarray, ids: np.ndarray, is_special: np.ndarray) -> np.ndarray:
        """Set the character ids of special tokens: char_ids (tokens, W), ids, is_special (tokens,) -> (tokens, W)"""
        # Boundaries have a symbol of their own, also in the text; other special tokens are spelled by their names.
        by_name = is_special.copy()
        for boundary_id, mark in ((self.bos_token_id, "<bos>"), (self.eos_token_id, "<eos>")):
            char_ids[ids == boundary_id] = self._boundary(mark)
            by_name &= ids != boundary_id
        for index in by_name.nonzero()[0]:
            char_ids[index] = self.convert_words_to_char_ids([self._tokenizer.id_to_token(int(ids[index]))])
        return char_ids

    def _added_token_ids(self) -> dict[str, int]:
        """Return the ids of tokens added by `add_tokens`, which are not in the backend's vocabulary."""
        if len(self) == self.vocab_size:
            return {}
        return {token: token_id for token, token_id in self.added_tokens_encoder.items() if token_id >= self.vocab_size}

    def _pad(self, encoded_inputs, *args, **kwargs) -> dict:
        """Pad one example as transformers does, and its `char_ids` with zeros."""
        length = len(encoded_inputs["input_ids"])
        encoded_inputs = super()._pad(encoded_inputs, *args, **kwargs)
        num_padding = len(encoded_inputs["input_ids"]) - length
        if num_padding > 0 and "char_ids" in encoded_inputs:
            padding = [[0] * self.max_characters_per_token for _ in range(num_padding)]
            char_ids = list(encoded_inputs["char_ids"])
            side = kwargs.get("padding_side") or self.padding_side
            encoded_inputs["char_ids"] = char_ids + padding if side == "right" else padding + char_ids
        return encoded_inputs


def read_vocabulary(path: str | os.PathLike) -> list[str]:
    """Read a vocabulary file, one word per line."""
    with open(path, encoding="utf-8", newline="\n") as file:
        words = [line.rstrip("\r\n") for line in file]
    return [word for word in words if word != "!!!MAXTERMID"]  # skipped by bilm-tf too


def is_list_of_strings(value) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


@contextmanager
def id_errors(ids) -> Iterator[None]:
    """Raise a ValueError for ids that the backend cannot look up."""
    try:
        yield
    except (KeyError, OverflowError, TypeError) as error:
        shown = " ".join(f"{ids!r:.80}".split())
        raise ValueError(f"Ids must be integers, at least 0, got {shown}: replace -100, which is no word.") from error


def is_panic(error: BaseException) -> bool:
    """Return whether the backend, which is written in Rust, has panicked; its exception is not an Exception."""
    return type(error).__name__ == "PanicException"


def check_ids(vocab: dict[str, int]):
    """Raise an error unless words have the ids 0, 1, 2 ... in any order."""
    are_types_right = {*map(type, vocab)} <= {str} and {*map(type, vocab.values())} <= {int}
    if are_types_right and sorted(vocab.values()) == list(range(len(vocab))):
        return
    for word, word_id in vocab.items():
        if type(word) is not str or type(word_id) is not int:
            raise ValueError(f"A vocabulary must map words to integers, got {word!r:.80}: {word_id!r:.80}.")
        if not 0 <= word_id < len(vocab):
            raise ValueError(
                f"A vocabulary of {len(vocab)} words must have the ids 0 to {len(vocab) - 1}, "
                f"got {word!r:.80} with id {word_id}."
            )
    repeated = next(word_id for word_id, count in Counter(vocab.values()).items() if count > 1)
    words = [word for word, word_id in vocab.items() if word_id == repeated]
    raise ValueError(f"Every word of a vocabulary must have an id of its own, got {words[:2]} with id {repeated}.")


def check_backend(backend: Tokenizer, pad_token: str):
    """Raise an error if a backend that was read from a file is not that of an ElmoTokenizer."""
    prefix = getattr(backend.model, "continuing_subword_prefix", "")
    if not isinstance(backend.model, (models.WordLevel, models.WordPiece)) or prefix.strip(" "):
        kind = type(backend.model).__name__
        raise ValueError(
            f"tokenizer.json must look up whole words, got the subword model {kind}: use an ElmoTokenizer's."
        )
    if backend.model.token_to_id(backend.model.unk_token) is None:
        raise ValueError(f"The vocabulary of tokenizer.json must contain {backend.model.unk_token!r:.80}.")
    pad_id = backend.model.token_to_id(pad_token)
    if pad_id not in (0, None):  # None: a token that was added later
        raise ValueError(f"The padding token {pad_token!r:.80} of tokenizer.json must have id 0, got id {pad_id}.")
    check_ids(backend.get_vocab())
    processor = json.loads(backend.post_processor.__getstate__()) if backend.post_processor is not None else {}
    for part in (processor, *processor.get("processors", [])):
        pieces = [*part.get("single", []), *part.get("pair", [])]
        undefined = {piece["SpecialToken"]["id"] for piece in pieces if "SpecialToken" in piece}
        undefined -= {*part.get("special_tokens", {})}
        if undefined:  # the backend would panic
            raise ValueError(f"The post-processor of tokenizer.json must define its special tokens; not {undefined}.")
    backend.no_padding()
    backend.no_truncation()


def build_backend(vocab: list[str] | dict[str, int] | None, special_tokens: list[str]) -> Tokenizer:
    """Build the backend from a vocabulary and the special tokens for padding, begin, end and unknown words."""
    if not isinstance(vocab, dict):
        words = [] if vocab is None else vocab
        if not is_list_of_strings(words):
            raise ValueError(f"vocab must be a list of words or a dictionary from words to ids, got {vocab!r:.80}.")
        known = set(words)
        if len(known) < len(words):
            duplicate = next(word for word, count in Counter(words).items() if count > 1)
            raise ValueError(f"A vocabulary must not repeat a word, got {duplicate!r} more than once.")
        if len({*special_tokens}) < len(special_tokens):
            raise ValueError(f"The tokens for padding, begin, end and unknown words must differ, got {special_tokens}.")
        words = words[1:] if [*words[:1]] == special_tokens[:1] else words
        words = [special_tokens[0], *(token for token in special_tokens[1:] if token not in known), *words]
        vocab = {word: index for index, word in enumerate(words)}
    missing = [token for token in special_tokens if token not in vocab]
    pad_token = special_tokens[0]
    if missing or vocab[pad_token] != 0:
        raise ValueError(
            f"A vocabulary must contain the special tokens {', '.join(special_tokens)}, the first with id 0; "
            + (f"missing: {', '.join(missing)}." if missing else f"{pad_token} has id {vocab[pad_token]}.")
        )
    check_ids(vocab)
    # Looks up whole words like models.WordLevel, since no word in the vocabulary starts with the prefix of a subword.
    # The token-classification pipeline, however, needs such a prefix to recognize tokens as words: without one, it
    # would merge tokens that touch each other, such as a word and the comma after it.
    prefix = " "
    while any(word.startswith(prefix) for word in vocab):
        prefix += " "
    try:
        model = models.WordPiece(
            vocab,
            unk_token=special_tokens[3],
            continuing_subword_prefix=prefix,
            max_input_chars_per_word=max(map(len, vocab)),  # longer words are unknown; lookup is quadratic in length
        )
    except TypeError:
        word = next(word for word in vocab if SURROGATE.search(word))
        raise ValueError(f"The words of a vocabulary must be valid Unicode, got {word!r:.80}.") from None
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(word_pattern()), behavior="removed", invert=True)
    return backend


# The English list of Moses (nonbreaking_prefix.en): a period after one of these always belongs to the word. Single
# capital letters are a character class in the pattern; "i.e" and "e.g" fall under the inner-period rule.
NONBREAKING_PREFIXES = (
    "Adj Adm Adv Asst Bart Bldg Brig Bros Capt Cmdr Col Comdr Con Corp Cpl DR Dr Drs Ens Gen Gov Hon Hr Hosp "
    "Insp Lt MM MR MRS MS Maj Messrs Mlle Mme Mr Mrs Ms Msgr Op Ord Pfc Ph Prof Pvt Rep Reps Res Rev Rt Sen "
    "Sens Sfc Sgt Sr St Supt Surg "  # titles
    "v vs rev Rs Nos Nr "  # miscellaneous
    "Jan Feb Mar Apr Jun Jul Aug Sep Oct Nov Dec"  # months ("May" is a word)
).split()
NUMERIC_PREFIXES = ["No", "Art", "pp"]  # "No. 5", but "No. Never."


def word_pattern() -> str:
    """Return the regular expression of a word. All unbounded loops are possessive, so matching takes linear time."""
    # Character classes, without their brackets.
    sep = r"\s\p{Cc}"  # between words
    alpha = r"\p{Alpha}"
    digit = r"\p{Nd}"
    # Combining marks and the zero-width (non-)joiner stay with the letter before them, the prepended marks of Arabic
    # and other scripts with the digits after them (Perl's Moses would split these off).
    glue = r"\p{M}\x{200C}\x{200D}\p{Prepended_Concatenation_Mark}"
    number_char = rf"\p{{Nd}}{glue}`\-"  # hyphens and backticks are never split off
    word_char = rf"\p{{Alnum}}{glue}`\-"
    flag_char = r"\p{Regional_Indicator}"

    # Commas split, except between digits: 1,000. An apostrophe after a digit splits only before "s": 5'b.
    comma = rf"(?<=[{digit}]),(?=[{digit}])"
    prime = rf"(?<=[{digit}])'(?!s)(?={alpha})"
    # Words without a period inside: those without letters, and all.
    plain_number = rf"[{number_char}]++(?:{comma}[{number_char}]++)*+"
    plain_word = rf"[{word_char}]++(?:(?:{comma}|{prime})[{word_char}]++)*+"

    # A final period (a single one) belongs to the word if a lower-case word follows: "etc. and", ...
    before_lower = rf"\.(?=[{sep}]++\p{{Lower}})"
    # ... if the word is a known prefix, or a numeric prefix before a digit (the look-ahead is only for speed), ...
    prefixes = NONBREAKING_PREFIXES + NUMERIC_PREFIXES
    longest, initials = max(map(len, prefixes)), "".join(sorted({prefix[0] for prefix in prefixes}))
    prefixed = (
        rf"(?=[A-Z{initials}][A-Za-z]{{0,{longest - 1}}}\.)"
        rf"(?:(?:[A-Z]|{'|'.join(NONBREAKING_PREFIXES)})\.(?![{word_char}.])"
        rf"|(?:{'|'.join(NUMERIC_PREFIXES)})\.(?=[{sep}]++[0-9]))"
    )
    # ... or if the word contains a period and a letter: "U.S.", "a.1.". "1.2." has no letter, so words of digits
    # alone are a separate case, which is tried first.
    number = rf"(?=\.?[{number_char}])(?:{plain_number})?+(?:\.{plain_number})*+(?!{alpha}|{prime}|\.{alpha})"
    inner_periods = rf"(?:\.{plain_word})++(?:\.(?!\.))?+"

    # English apostrophes start a word between letters and in "1990's": Smith 's, Don 't. Moses overlooks the second
    # of two around a single letter: rock 'n'roll. All other apostrophes are words of their own.
    clitic = (
        rf"(?<=[{alpha}{glue}])'(?={alpha})(?:{alpha}'(?={alpha}))?+"
        rf"|(?<=[{digit}])'(?=s)"
    )
    word = rf"(?:{clitic})?+{plain_word}(?:{inner_periods}|{before_lower})?+|{inner_periods}"

    # A run of periods is one word, and so is any other character, or a flag (two characters).
    other = rf"\.\.++|{flag_char}{{2}}|[^{sep}]"
    # Never end inside a grapheme: emoji sequences, skin tones, accented symbols. \Y means "no boundary here"; it is
    # not used between the halves of flags, where it counts back over all of them (quadratic time).
    rest_of_grapheme = rf"(?:(?![{sep}]|(?<={flag_char}){flag_char})\Y(?:{flag_char}{{2}}|\O))*+"
    return rf"(?:{prefixed}|{number}(?:{before_lower})?+|{word}|{other}){rest_of_grapheme}"


def as_samples(text, text_pair, is_split_into_words: bool) -> tuple[list[tuple], bool]:
    """Return samples of one text or a pair, each a string or a list of words, and whether the input was a batch."""
    first = text[0] if isinstance(text, (list, tuple)) and len(text) else None
    batched = isinstance(first, (list, tuple)) if is_split_into_words else isinstance(text, (list, tuple))
    if not batched:
        samples = [text if text_pair is None else (text, text_pair)]
    elif text_pair is None:
        samples = text
    elif isinstance(text_pair, (list, tuple)) and len(text_pair) == len(text):
        samples = list(zip(text, text_pair))
    else:
        raise ValueError(f"text_pair must be a list of {len(text)} texts, like text, got {text_pair!r:.80}.")
    if not is_split_into_words and all(type(sample) is str for sample in samples):
        return [(sample,) for sample in samples], batched
    samples = [as_sample(sample, is_split_into_words) for sample in samples]
    if len({len(sample) for sample in samples}) > 1:
        raise ValueError("A batch must contain either single texts or pairs of texts, got both.")
    return samples, batched


def as_sample(sample, is_split_into_words: bool) -> tuple:
    """Return a text or a pair of texts as a tuple, or raise an error for anything else."""
    if is_split_into_words:
        pair = isinstance(sample, (list, tuple)) and len(sample) == 2 and isinstance(sample[0], (list, tuple))
        parts = tuple(sample) if pair else (sample,)
        if all(isinstance(part, (list, tuple)) and all(isinstance(word, str) for word in part) for part in parts):
            return tuple(list(part) for part in parts)
        raise ValueError(f"With is_split_into_words=True a sentence must be a list of words, got {sample!r:.80}.")
    parts = tuple(sample) if isinstance(sample, (list, tuple)) and len(sample) == 2 else (sample,)
    if all(isinstance(part, str) for part in parts):
        return parts
    raise ValueError(
        f"A text must be a string, got {sample!r:.80}: pass words with is_split_into_words=True, texts as a list."
    )


def encode_samples(
    backend: Tokenizer, samples: list[tuple], add_special_tokens: bool, is_split_into_words: bool
) -> list:
    """Encode samples with the backend, after replacing what it rejects or drops (see REPLACEMENT)."""

    def encode(samples):
        inputs = [sample if len(sample) == 2 else sample[0] for sample in samples]
        try:
            return backend.encode_batch(
                inputs, add_special_tokens=add_special_tokens, is_pretokenized=is_split_into_words
            )
        except BaseException as error:
            if is_panic(error):  # the limit of the regular expression library
                raise ValueError("A text must have a space every few million characters, got a longer word.") from None
            if type(error) is Exception:
                raise ValueError(f"The texts cannot be truncated: {error}.") from None
            raise

    def replace(text):
        if isinstance(text, list):
            return [SURROGATE.sub(REPLACEMENT, word) or REPLACEMENT for word in text]
        return SURROGATE.sub(REPLACEMENT, text)

    if not (is_split_into_words and any("" in words for sample in samples for words in sample)):
        try:
            return encode(samples)
        except TypeError:  # raised for lone surrogates
            pass
    return encode([tuple(replace(text) for text in sample) for sample in samples])


def set_truncation(backend: Tokenizer, truncation: dict | None):
    """Change the backend's truncation settings, unless they are the same; None switches truncation off."""
    if backend.truncation == truncation:
        return
    if truncation is None:
        backend.no_truncation()
    else:
        backend.enable_truncation(**truncation)


def word_spans(
    encodings: list, sample_indices: list[int], samples: list[tuple], is_split_into_words: bool
) -> tuple[str, np.ndarray, np.ndarray, np.ndarray]:
    """Return all texts as one string, the start and the end in it of each token's word, and each token's offsets.

    Starts and ends have shape (tokens,), offsets (tokens, 2). Special tokens have empty spans.
    """
    num_tokens = sum(map(len, encodings))
    pairs = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings))
    offsets = np.fromiter(pairs, np.int64, 2 * num_tokens).reshape(num_tokens, 2)
    texts = [text for sample in samples for text in sample]
    text_index = np.repeat(np.array(sample_indices, dtype=np.int64), [len(encoding) for encoding in encodings])
    if len(texts) > len(samples):  # pairs
        sequence_ids = chain.from_iterable(encoding.sequence_ids for encoding in encodings)
        text_index = 2 * text_index + np.fromiter((index or 0 for index in sequence_ids), np.int64, num_tokens)
    text_starts = np.cumsum([0, *map(len, texts)], dtype=np.int64)  # in characters or in words
    if not is_split_into_words:
        start = text_starts[text_index]
        return "".join(texts), start + offsets[:, 0], start + offsets[:, 1], offsets
    words = list(chain.from_iterable(texts))
    word_ends = np.cumsum([0, *map(len, words)], dtype=np.int64)  # word i is from word_ends[i] to word_ends[i + 1]
    word_ids = chain.from_iterable(encoding.word_ids for encoding in encodings)
    word_id = np.fromiter((-1 if index is None else index for index in word_ids), np.int64, num_tokens)
    word = text_starts[text_index] + word_id
    is_special = word_id < 0
    starts, ends = np.where(is_special, 0, word_ends[word]), np.where(is_special, 0, word_ends[word + 1])
    return "".join(words), starts, ends, offsets


def concatenate(encodings: list, name: str) -> np.ndarray:
    """Return an attribute of the encodings, concatenated: (tokens,)."""
    values = chain.from_iterable(getattr(encoding, name) for encoding in encodings)
    return np.fromiter(values, np.int64, sum(map(len, encodings)))


def padded_lengths(
    lengths: np.ndarray, strategy: PaddingStrategy, max_length: int | None, multiple: int | None
) -> np.ndarray:
    """Return the length of each row after padding: (B,) -> (B,)"""
    if strategy == PaddingStrategy.DO_NOT_PAD or not len(lengths):
        return lengths
    length = int(lengths.max()) if strategy == PaddingStrategy.LONGEST or max_length is None else max_length
    if multiple:
        length = -(-length // multiple) * multiple
    return np.maximum(lengths, length)


def pad_rows(
    outputs: dict[str, tuple[np.ndarray, int]], lengths: np.ndarray, padded_to: np.ndarray, side: str
) -> dict[str, Any]:
    """Split the values of all tokens into padded rows: (tokens, ...) -> (B, T, ...)

    Outputs are pairs of values and the value at padding. Rows of different lengths are returned as a list of arrays.
    """
    starts = padded_to.cumsum() - padded_to  # (B,) of each row in the flattened result
    if side != "right":
        starts = starts + padded_to - lengths
    num_tokens = int(lengths.sum())
    positions = np.arange(num_tokens) + np.repeat(starts - (lengths.cumsum() - lengths), lengths)  # (tokens,)
    is_rectangular = len(set(padded_to.tolist())) <= 1
    rows: dict[str, np.ndarray | list[np.ndarray]] = {}
    for name, (values, pad_value) in outputs.items():
        if num_tokens < padded_to.sum():
            padded = np.zeros((padded_to.sum(), *values.shape[1:]), dtype=np.int64)
            if pad_value:
                padded += pad_value
            padded[positions] = values
            values = padded
        if is_rectangular:
            rows[name] = values.reshape(len(padded_to), padded_to.max(initial=0), *values.shape[1:])
        else:
            rows[name] = np.split(values, padded_to.cumsum()[:-1])
    return rows


class PaddedEncodings(list):
    """The backend's encodings, each padded only when it is accessed, because few ever are."""

    def __init__(self, encodings: list, lengths: list[int], padding: dict):
        super().__init__(encodings)
        self.lengths, self.padding = lengths, padding

    def __getitem__(self, index):
        if isinstance(index, slice):
            return list(self)[index]
        encoding = super().__getitem__(index)
        encoding.pad(self.lengths[index], **self.padding)
        return encoding

    def __iter__(self):
        return (self[index] for index in range(len(self)))

    def __reduce__(self):
        return list, (list(self),)


ElmoTokenizer.register_for_auto_class("AutoTokenizer")

__all__ = ["ElmoTokenizer"]
