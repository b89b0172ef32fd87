# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Tokenizer of ELMo: words with their ids and their characters.

Raw text is split as the Moses tokenizer splits English, since the text ELMo was trained on was; given words are left
alone. A word's characters are its UTF-8 bytes as in bilm-tf, or those of a character vocabulary as in
ELMoForManyLangs.
"""

import json
import os
import re
import threading
from collections import Counter
from itertools import chain

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers import BatchEncoding, PreTrainedTokenizerFast
from transformers.tokenization_utils_base import TruncationStrategy
from transformers.utils import PaddingStrategy, TensorType, logging

logger = logging.get_logger(__name__)

BACKEND_LOCK = threading.RLock()  # of all tokenizers, since one that belongs to a tokenizer could not be pickled
SURROGATE = re.compile("[\ud800-\udfff]")
# For the backend this stands for lone surrogates, which it does not take, and for empty words that were given, which it
# would drop. Offsets stay right: those of an empty word slice "" out of "".
REPLACEMENT = "\ufffd"
# Characters that are not part of a word, and their ids in bilm-tf: the 256 bytes come before them.
MARKS = {"<bos>": 256, "<eos>": 257, "<bow>": 258, "<eow>": 259, "<pad>": 260}

# The Moses English list (nonbreaking_prefix.en): the period after these belongs to the word whatever follows.
# Single capital letters are a character class in the pattern; "i.e" and "e.g" fall under the inner-period rule.
NONBREAKING_PREFIXES = (
    "Adj Adm Adv Asst Bart Bldg Brig Bros Capt Cmdr Col Comdr Con Corp Cpl DR Dr Drs Ens Gen Gov Hon Hr Hosp "
    "Insp Lt MM MR MRS MS Maj Messrs Mlle Mme Mr Mrs Ms Msgr Op Ord Pfc Ph Prof Pvt Rep Reps Res Rev Rt Sen "
    "Sens Sfc Sgt Sr St Supt Surg "  # titles
    "v vs rev Rs Nos Nr "  # various
    "Jan Feb Mar Apr Jun Jul Aug Sep Oct Nov Dec"  # months ("May" is a word)
).split()
NUMERIC_PREFIXES = ["No", "Art", "pp"]  # "No. 5", but "No. Never."


def word_pattern() -> str:
    """The pattern whose matches are the words. All unbounded loops are possessive: its time is linear in the text."""
    # Character classes.  Bare sets, to be put in brackets.
    sep = r"\s\p{Cc}"  # between words
    alpha = r"\p{Alpha}"
    digit = r"\p{Nd}"
    # Marks and the zero-width (non-)joiner stay with the letter before them; the prepended signs of Arabic
    # and others with the digits after them (Perl Moses would tear these off).
    glue = r"\p{M}\x{200C}\x{200D}\p{Prepended_Concatenation_Mark}"
    number_char = rf"\p{{Nd}}{glue}`\-"  # hyphens and backticks are never split off
    word_char = rf"\p{{Alnum}}{glue}`\-"
    flag_char = r"\p{Regional_Indicator}"

    # Commas split, except between digits: 1,000.  An apostrophe after a digit splits before "s" only: 5'b.
    comma = rf"(?<=[{digit}]),(?=[{digit}])"
    prime = rf"(?<=[{digit}])'(?!s)(?={alpha})"
    # Words with no period inside, without any letter and in general.
    plain_number = rf"[{number_char}]++(?:{comma}[{number_char}]++)*+"
    plain_word = rf"[{word_char}]++(?:(?:{comma}|{prime})[{word_char}]++)*+"

    # A period at the end of a word (not one of a run) stays with it before a lower-case word: "etc. and", ...
    before_lower = rf"\.(?=[{sep}]++\p{{Lower}})"
    # ... after a known prefix, or a numeric prefix before a digit.  The look-ahead is there for speed only.
    prefixes = NONBREAKING_PREFIXES + NUMERIC_PREFIXES
    longest, initials = max(map(len, prefixes)), "".join(sorted({prefix[0] for prefix in prefixes}))
    prefixed = (
        rf"(?=[A-Z{initials}][A-Za-z]{{0,{longest - 1}}}\.)"
        rf"(?:(?:[A-Z]|{'|'.join(NONBREAKING_PREFIXES)})\.(?![{word_char}.])"
        rf"|(?:{'|'.join(NUMERIC_PREFIXES)})\.(?=[{sep}]++[0-9]))"
    )
    # ... or if the word has a period inside it and a letter: "U.S.", "a.1.".  "1.2." has no letter, hence
    # words of digits alone are a case of their own, tried first.
    number = rf"(?=\.?[{number_char}])(?:{plain_number})?+(?:\.{plain_number})*+(?!{alpha}|{prime}|\.{alpha})"
    inner_periods = rf"(?:\.{plain_word})++(?:\.(?!\.))?+"

    # English apostrophes.  Between letters, and in "1990's", they begin a word: Smith 's, Don 't.  Moses
    # overlooks the second of two around a single letter: rock 'n'roll.  All others stand alone.
    clitic = (
        rf"(?<=[{alpha}{glue}])'(?={alpha})(?:{alpha}'(?={alpha}))?+"
        rf"|(?<=[{digit}])'(?=s)"
    )
    word = rf"(?:{clitic})?+{plain_word}(?:{inner_periods}|{before_lower})?+|{inner_periods}"

    # Runs of periods stay together; any other character is a word, as is a flag (two characters).
    other = rf"\.\.++|{flag_char}{{2}}|[^{sep}]"
    # Never end inside a grapheme: emoji sequences, skin tones, accented symbols.  \Y means "no boundary here"; it
    # is not asked between two halves of flags, as it counts back over all of them (quadratic time).
    rest_of_grapheme = rf"(?:(?![{sep}]|(?<={flag_char}){flag_char})\Y(?:{flag_char}{{2}}|\O))*+"
    return rf"(?:{prefixed}|{number}(?:{before_lower})?+|{word}|{other}){rest_of_grapheme}"


class ElmoTokenizer(PreTrainedTokenizerFast):
    r"""
    Words to `input_ids` (B, T), `char_ids` (B, T, W) and `attention_mask` (B, T).

    Id 0 is padding in both tensors, so that ids are those of bilm-tf plus one. A word without an id is `<UNK>` in
    `input_ids`, and still itself in `char_ids`.

    Args:
        vocab (`list[str]` or `dict[str, int]`, *optional*): words in the order of the language model's softmax, or
            their ids. Special tokens that a list lacks are put in front. None: every word is unknown by id.
        vocab_file (`str`, *optional*): the words as a file, one a line, bilm-tf's `vocab.txt`.
        char_vocab (`list[str]`, *optional*): the characters of ELMoForManyLangs' `char.dic` in their order, among
            them `<bos>`, `<eos>`, `<bow>`, `<eow>`, `<pad>` and `<oov>`. None: bytes.
        swap_word_marks (`bool`): write end-of-word where a word begins and the other way round, as the released
            models of ELMoForManyLangs need it.
        max_characters_per_token (`int`): width W of a word, its two marks included; longer words are cut.

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
        vocab=None,
        vocab_file=None,
        tokenizer_file=None,
        char_vocab=None,
        swap_word_marks=False,
        max_characters_per_token=50,
        pad_token="<PAD>",
        bos_token="<S>",
        eos_token="</S>",
        unk_token="<UNK>",
        add_bos_token=None,
        add_eos_token=None,
        **kwargs,
    ):
        if max_characters_per_token < 3:
            raise ValueError(f"max_characters_per_token must be at least 3, got {max_characters_per_token}.")
        if tokenizer_file is None:
            if vocab is None and vocab_file is not None:
                vocab = read_vocabulary(vocab_file)
            specials = [str(token) for token in (pad_token, bos_token, eos_token, unk_token)]
            self._tokenizer = build_backend(vocab, specials)
        super().__init__(
            tokenizer_file=tokenizer_file,
            char_vocab=char_vocab,
            swap_word_marks=swap_word_marks,
            max_characters_per_token=max_characters_per_token,
            pad_token=pad_token,
            bos_token=bos_token,
            eos_token=eos_token,
            unk_token=unk_token,
            **kwargs,
        )
        # transformers saves nowhere whether the boundaries are added; the backend's file knows it.
        added = [self.bos_token_id, self.eos_token_id] if tokenizer_file is None else self._tokenizer.encode("").ids
        self.add_bos_token = self.bos_token_id in added if add_bos_token is None else add_bos_token
        self.add_eos_token = self.eos_token_id in added if add_eos_token is None else add_eos_token
        self.init_kwargs |= {"add_bos_token": self.add_bos_token, "add_eos_token": self.add_eos_token}
        self.char_vocab, self.swap_word_marks = char_vocab, swap_word_marks
        self.max_characters_per_token = max_characters_per_token
        self._told_of_cut_words = False
        # Ids are shifted by one, so that 0 means "no word here".
        if char_vocab is None:
            self._mark_ids = {mark: number + 1 for mark, number in MARKS.items()}
            self._symbol_ids = np.arange(1, 257)  # of a byte
        else:
            ids = {symbol: number + 1 for number, symbol in enumerate(char_vocab)}
            missing = [mark for mark in (*MARKS, "<oov>") if mark not in ids]
            if missing:
                raise ValueError(f"char_vocab must hold {', '.join(MARKS)} and <oov>; it lacks {', '.join(missing)}.")
            self._mark_ids = {mark: ids[mark] for mark in MARKS}
            self._symbol_ids = np.full(0x110000, ids["<oov>"])  # of a Unicode code point
            for symbol, number in ids.items():
                if len(symbol) == 1:
                    self._symbol_ids[ord(symbol)] = number
        self._first_mark, self._last_mark = self._mark_ids["<bow>"], self._mark_ids["<eow>"]
        if swap_word_marks:
            self._first_mark, self._last_mark = self._last_mark, self._first_mark

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs) -> "ElmoTokenizer":
        """As in transformers, with one sentence about a file that is cut off."""
        try:
            return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        except json.JSONDecodeError as error:
            raise OSError(
                f"The tokenizer of {pretrained_model_name_or_path} cannot be read ({error}): "
                "a file is cut off or is not JSON. Download or save it again."
            ) from error

    @classmethod
    def convert_to_native_format(cls, trust_remote_code=False, **kwargs):
        """Hand the files to `__init__` as they are: it reads them itself, whoever loads the class."""
        if kwargs.get("tokenizer_file") is None and kwargs.get("vocab_file") is None:
            raise OSError(f"A tokenizer must have a file {' or '.join(cls.vocab_files_names.values())}, found neither.")
        return kwargs

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str]:
        """Write the words as bilm-tf's `vocab.txt`: one a line, in the order of their ids, without padding."""
        words = sorted(self._tokenizer.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
        name = (filename_prefix + "-" if filename_prefix else "") + self.vocab_files_names["vocab_file"]
        path = os.path.join(save_directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{word}\n" for word, number in words if number != self.pad_token_id)
        return (path,)

    def tokenize(self, text: str, pair: str | None = None, add_special_tokens: bool = False, **kwargs) -> list[str]:
        """The words of a text, as they stand in it, known by id or not."""
        given = kwargs.get("is_split_into_words", False)
        samples, batched = as_samples(text, pair, given)
        if batched:
            raise ValueError(f"tokenize takes one text, got a batch of {len(samples)}.")
        encoding = self(text, pair, add_special_tokens=add_special_tokens, **kwargs).encodings[0]
        text, starts, ends, _ = word_spans([encoding], [0], samples, given)
        return [
            token if special else text[start:end]
            for token, special, start, end in zip(encoding.tokens, encoding.special_tokens_mask, starts, ends)
        ]

    def convert_words_to_char_ids(self, words: list[str | None]) -> np.ndarray:
        """The characters of words, (len(words), W); zeros for None, which stands for padding.

        A word is cut to W - 2 characters, as the originals do; a cut byte sequence may end inside a character.
        """
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
        """The characters of the begin or the end of a sentence, (W,)"""
        row = np.full(self.max_characters_per_token, self._mark_ids["<pad>"])
        row[:3] = self._first_mark, self._mark_ids[mark], self._last_mark
        return row

    def _spell(self, text: str, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """The characters of the words that stand from starts to ends in a text, (words, W)"""
        if self.char_vocab is not None:
            symbols = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        else:
            symbols = np.frombuffer(text.encode("utf-8", "ignore"), dtype=np.uint8)
            if len(symbols) != len(text):
                if SURROGATE.search(text):  # which have no bytes: bilm-tf drops them
                    places = np.cumsum([0, *(len(character.encode("utf-8", "ignore")) for character in text)])
                else:
                    places = np.append(((symbols & 0xC0) != 0x80).nonzero()[0], len(symbols))
                starts, ends = places[starts], places[ends]  # in bytes
        room = self.max_characters_per_token - 2
        lengths = ends - starts  # (words,)
        cut = (lengths > room).nonzero()[0]
        if len(cut):
            lengths = np.minimum(lengths, room)
            if not self._told_of_cut_words:
                self._told_of_cut_words = True
                unit = "bytes" if self.char_vocab is None else "characters"
                logger.warning(
                    f"{len(cut)} of {len(lengths)} words are longer than {room} {unit} and were cut "
                    "(said once; longer words are always cut)"
                )
        char_ids = np.full((len(lengths), self.max_characters_per_token), self._mark_ids["<pad>"])  # (words, W)
        char_ids[:, 0] = self._first_mark
        rows = np.repeat(np.arange(len(lengths)), lengths)  # of each character in char_ids
        columns = np.arange(len(rows)) - np.repeat(lengths.cumsum() - lengths, lengths)
        char_ids[rows, columns + 1] = self._symbol_ids[symbols[starts[rows] + columns]]
        char_ids[np.arange(len(lengths)), lengths + 1] = self._last_mark
        return char_ids

    def convert_char_ids_to_words(self, char_ids) -> list[str]:
        """The words that rows of characters (T, W) spell; rows of zeros are left out."""
        if self.char_vocab is None:
            symbols = {number + 1: bytes([number]) for number in range(256)}
        else:
            symbols = {number + 1: symbol.encode() for number, symbol in enumerate(self.char_vocab)}
        marks = {self._mark_ids["<bos>"]: self.bos_token, self._mark_ids["<eos>"]: self.eos_token}
        words = []
        for row in np.asarray(char_ids).tolist():
            if any(row):
                spelled = row[1 : row.index(self._last_mark, 1)]
                if len(spelled) == 1 and spelled[0] in marks:
                    words.append(marks[spelled[0]])
                else:
                    words.append(b"".join(symbols[symbol] for symbol in spelled).decode("utf-8", "replace"))
        return words

    def decode(self, token_ids, skip_special_tokens: bool = False, **kwargs) -> str | list[str]:
        """Text of `input_ids` or of `char_ids`, of one sentence or of a batch; characters spell unknown words too."""
        sentences, batched = self._as_char_ids(token_ids)
        if sentences is None:
            return super().decode(token_ids, skip_special_tokens=skip_special_tokens, **kwargs)
        specials = set(self.all_special_tokens) if skip_special_tokens else ()
        texts = [
            " ".join(word for word in self.convert_char_ids_to_words(rows) if word not in specials)
            for rows in sentences
        ]
        return texts if batched else texts[0]

    def _as_char_ids(self, ids) -> tuple[list[np.ndarray] | None, bool]:
        """Sentences (T, W) where ids are characters, None where they are words; whether they are a batch.

        Two dimensions are either one sentence of characters or a batch of word ids: characters are as wide as a word
        is, and every row begins with its mark.
        """
        try:
            first = next((row for row in ids if len(row)), [])
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
        """A tokenizer like this one whose vocabulary is the most frequent words of texts, the most frequent first."""
        renamed = special_tokens_map or {}
        specials = {name: renamed.get(token, token) for name, token in self.special_tokens_map.items()}
        order = [specials[name] for name in ("pad_token", "bos_token", "eos_token", "unk_token")]
        counter = Tokenizer(models.WordLevel({order[-1]: 0}, unk_token=order[-1]))
        counter.pre_tokenizer = self._tokenizer.pre_tokenizer
        special_tokens = [*order, *map(str, new_special_tokens or [])]
        counter.train_from_iterator(
            text_iterator,
            trainers.WordLevelTrainer(vocab_size=vocab_size, special_tokens=special_tokens, **kwargs),
            length=length,
        )
        options = {key: value for key, value in self.init_kwargs.items() if key not in ("tokenizer_file", "vocab_file")}
        options |= specials | {"add_bos_token": self.add_bos_token, "add_eos_token": self.add_eos_token}
        if new_special_tokens:
            options["extra_special_tokens"] = [*self.extra_special_tokens, *new_special_tokens]
        return type(self)(vocab=counter.get_vocab(), **options)

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
        """What the stock method does, and characters, from flat arrays of all tokens rather than lists of lists."""
        samples, batched = as_samples(text, text_pair, is_split_into_words)
        if is_split_into_words:
            # Given words are never split again: a backend of the same vocabulary that has no splitter and looks for
            # no special tokens inside them.
            backend = Tokenizer(self._tokenizer.model)
            backend.post_processor = self._tokenizer.post_processor
            set_truncation(backend, truncation_strategy, max_length, stride, self.truncation_side)
            encodings = encode_samples(backend, samples, add_special_tokens, is_split_into_words)
        else:
            backend = self._tokenizer
            special_tokens_are_text = (
                self.split_special_tokens if split_special_tokens is None else split_special_tokens
            )
            # The settings are the backend's, which other threads use too.
            with BACKEND_LOCK:
                if backend.encode_special_tokens != special_tokens_are_text:
                    backend.encode_special_tokens = special_tokens_are_text
                if backend.padding is not None:
                    backend.no_padding()
                set_truncation(backend, truncation_strategy, max_length, stride, self.truncation_side)
                encodings = encode_samples(backend, samples, add_special_tokens, is_split_into_words)
        owners = range(len(encodings))
        if return_overflowing_tokens:
            owners = [owner for owner, encoding in enumerate(encodings) for _ in range(1 + len(encoding.overflowing))]
            encodings = [part for encoding in encodings for part in (encoding, *encoding.overflowing)]

        lengths = np.array([len(encoding) for encoding in encodings], dtype=np.int64)  # (B,)
        text, starts, ends, offsets = word_spans(encodings, owners, samples, is_split_into_words)
        ids = flat(encodings, "ids")
        added = (starts == ends) & (offsets[:, 0] == offsets[:, 1])  # no token of the text is empty to the backend
        if is_split_into_words and (late := self._tokens_added_to_vocabulary()):
            words = (text[start:end] for start, end in zip(starts, ends))
            ids = np.array([late.get(word, known) for word, known in zip(words, ids.tolist())], dtype=np.int64)
        if self.char_vocab is not None:
            # ELMoForManyLangs cuts a word before it looks up its id too.
            room = self.max_characters_per_token - 2
            for place in (ends - starts > room).nonzero()[0]:
                cut_word = text[starts[place] : starts[place] + room]
                ids[place] = self._convert_token_to_id_with_added_voc(cut_word)

        # Each output with the value it has at padding.
        outputs = {"input_ids": (ids, self.pad_token_id)}
        if return_token_type_ids or (return_token_type_ids is None and "token_type_ids" in self.model_input_names):
            outputs["token_type_ids"] = flat(encodings, "type_ids"), self.pad_token_type_id
        if return_attention_mask or (return_attention_mask is None and "attention_mask" in self.model_input_names):
            outputs["attention_mask"] = np.ones_like(ids), 0
        if return_special_tokens_mask:
            outputs["special_tokens_mask"] = added.astype(np.int64), 1
        if return_offsets_mapping:
            outputs["offset_mapping"] = offsets, 0
        if "char_ids" in self.model_input_names:
            char_ids = self._spell(text, starts, ends)
            # Boundaries are not spelled; other tokens that were added are, but do not stand in the text.
            spelled = added.copy()
            for number, mark in ((self.bos_token_id, "<bos>"), (self.eos_token_id, "<eos>")):
                char_ids[ids == number] = self._boundary(mark)
                spelled &= ids != number
            for place in spelled.nonzero()[0]:
                char_ids[place] = self.convert_words_to_char_ids([self._tokenizer.id_to_token(int(ids[place]))])
            outputs["char_ids"] = char_ids, 0

        padded = padded_lengths(lengths, padding_strategy, max_length, pad_to_multiple_of)  # (B,)
        side = padding_side or self.padding_side
        padding = {"pad_id": self.pad_token_id, "pad_type_id": self.pad_token_type_id, "pad_token": self.pad_token}
        encodings = PaddedEncodings(encodings, padded.tolist(), {"direction": side, **padding})
        data = pad_rows(outputs, lengths, padded, side)
        if return_length:
            data["length"] = padded
        if return_overflowing_tokens:
            data["overflow_to_sample_mapping"] = np.array(owners, dtype=np.int64)
        self._eventual_warn_about_too_long_sequence(range(lengths.max(initial=0)), max_length, verbose)

        if return_tensors is not None:
            if len(set(padded.tolist())) > 1:  # let BatchEncoding say what is to be done
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

    def _tokens_added_to_vocabulary(self) -> dict[str, int]:
        """Tokens that the user has added, whose ids the vocabulary of the backend does not know."""
        if len(self) == self.vocab_size:
            return {}
        return {token: number for token, number in self.added_tokens_encoder.items() if number >= self.vocab_size}

    def _pad(self, encoded_inputs, *args, **kwargs) -> dict:
        before = len(encoded_inputs["input_ids"])
        encoded_inputs = super()._pad(encoded_inputs, *args, **kwargs)
        missing = len(encoded_inputs["input_ids"]) - before
        if missing > 0 and "char_ids" in encoded_inputs:
            rows = [[0] * self.max_characters_per_token for _ in range(missing)]
            on_right = (kwargs.get("padding_side") or self.padding_side) == "right"
            char_ids = list(encoded_inputs["char_ids"])
            encoded_inputs["char_ids"] = char_ids + rows if on_right else rows + char_ids
        return encoded_inputs


class PaddedEncodings(list):
    """The backend's encodings, each padded when it is looked at: few are, and padding all of them takes time."""

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


def flat(encodings: list, name: str) -> np.ndarray:
    """An attribute of all tokens, one encoding after the other."""
    values = chain.from_iterable(getattr(encoding, name) for encoding in encodings)
    return np.fromiter(values, np.int64, sum(map(len, encodings)))


def word_spans(encodings: list, owners, samples: list[tuple], is_split_into_words: bool):
    """All texts as one string, where in it the word of each token starts and ends, and the tokens' own offsets.

    Returns a string, two arrays (tokens,) and one (tokens, 2). Tokens that were added have an empty word.
    """
    tokens = sum(map(len, encodings))
    pairs = chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings))
    offsets = np.fromiter(pairs, np.int64, 2 * tokens).reshape(tokens, 2)
    texts = [text for sample in samples for text in sample]
    owner = np.repeat(np.array(owners, dtype=np.int64), [len(encoding) for encoding in encodings])
    if len(texts) > len(samples):  # pairs
        sequences = chain.from_iterable(encoding.sequence_ids for encoding in encodings)
        owner = 2 * owner + np.fromiter((sequence or 0 for sequence in sequences), np.int64, tokens)
    places = np.cumsum([0, *map(len, texts)], dtype=np.int64)  # of texts, in characters or words
    if not is_split_into_words:
        start = places[owner]
        return "".join(texts), start + offsets[:, 0], start + offsets[:, 1], offsets
    words = list(chain.from_iterable(texts))
    ends = np.cumsum([0, *map(len, words)], dtype=np.int64)
    numbers = chain.from_iterable(encoding.word_ids for encoding in encodings)
    number = np.fromiter((-1 if number is None else number for number in numbers), np.int64, tokens)
    word = places[owner] + number
    return "".join(words), np.where(number < 0, 0, ends[word]), np.where(number < 0, 0, ends[word + 1]), offsets


def read_vocabulary(path) -> list[str]:
    """The words of a file, one a line."""
    with open(path, encoding="utf-8", newline="\n") as file:
        words = [line.rstrip("\r\n") for line in file]
    return [word for word in words if word != "!!!MAXTERMID"]  # which bilm-tf leaves out too


def build_backend(vocab: list[str] | dict[str, int] | None, specials: list[str]) -> Tokenizer:
    """Splitter and vocabulary as a backend; specials are the tokens of padding, begin, end and the unknown word."""
    if not isinstance(vocab, dict):
        words = list(vocab or [])
        if isinstance(vocab, str) or not all(isinstance(word, str) for word in words):
            raise ValueError(f"vocab must be a list or a dictionary of words, got {vocab!r:.80}.")
        known = set(words)
        if len(known) < len(words):
            twice = next(word for word, count in Counter(words).items() if count > 1)
            raise ValueError(f"A vocabulary must hold each word once, got {twice!r} more often.")
        words = words[1:] if words[:1] == specials[:1] else words
        words = [specials[0], *(token for token in specials[1:] if token not in known), *words]
        vocab = {word: number for number, word in enumerate(words)}
    missing = [token for token in specials if token not in vocab]
    if missing or vocab[specials[0]] != 0:
        raise ValueError(
            f"A vocabulary must hold the special tokens {', '.join(specials)}, the first with id 0; "
            + (f"it lacks {', '.join(missing)}." if missing else f"{specials[0]} has id {vocab[specials[0]]}.")
        )
    # Whole words with ids, as models.WordLevel would do it: no word begins with the prefix that a piece of a word would
    # need. But by that prefix the token-classification pipeline knows that tokens are words, and not pieces to be glued
    # to their neighbours.
    prefix = " "
    while any(word.startswith(prefix) for word in vocab):
        prefix += " "
    model = models.WordPiece(
        vocab,
        unk_token=specials[3],
        continuing_subword_prefix=prefix,
        max_input_chars_per_word=max(map(len, vocab)),  # the time it takes to look a word up grows with its square
    )
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(word_pattern()), behavior="removed", invert=True)
    return backend


def as_samples(text, text_pair, is_split_into_words: bool) -> tuple[list[tuple], bool]:
    """A batch of 1-tuples or of pairs, each text a string or a list of words, and whether a batch was asked for."""
    first = text[0] if isinstance(text, (list, tuple)) and len(text) else None
    batched = isinstance(first, (list, tuple)) if is_split_into_words else isinstance(text, (list, tuple))
    if not batched:
        samples = [text if text_pair is None else (text, text_pair)]
    elif text_pair is None:
        samples = text
    elif isinstance(text_pair, (list, tuple)) and len(text_pair) == len(text):
        samples = list(zip(text, text_pair))
    else:
        raise ValueError(f"text_pair must be a list of {len(text)} texts as text is, got {text_pair!r:.80}.")
    if not is_split_into_words and all(type(sample) is str for sample in samples):
        return [(sample,) for sample in samples], batched
    samples = [as_sample(sample, is_split_into_words) for sample in samples]
    if len({len(sample) for sample in samples}) > 1:
        raise ValueError("A batch must hold single texts or pairs of texts, got both.")
    return samples, batched


def as_sample(sample, is_split_into_words: bool) -> tuple:
    """One or two texts as a tuple, or an error that says what came instead."""
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
    """The backend's encodings of texts that it does not always take as they are."""

    def encode(samples):
        inputs = [sample if len(sample) == 2 else sample[0] for sample in samples]
        try:
            return backend.encode_batch(
                inputs, add_special_tokens=add_special_tokens, is_pretokenized=is_split_into_words
            )
        except BaseException as error:
            if type(error).__name__ == "PanicException":  # the regular expression's own limit; not an Exception
                raise ValueError("A text must have a space every few million characters, got a longer word.") from None
            raise

    def replaced(part):
        if isinstance(part, list):
            return [SURROGATE.sub(REPLACEMENT, word) or REPLACEMENT for word in part]
        return SURROGATE.sub(REPLACEMENT, part)

    if not (is_split_into_words and any("" in words for sample in samples for words in sample)):
        try:
            return encode(samples)
        except TypeError:  # of lone surrogates
            pass
    return encode([tuple(replaced(part) for part in sample) for sample in samples])


def set_truncation(backend: Tokenizer, strategy: TruncationStrategy, max_length, stride: int, side: str):
    if strategy == TruncationStrategy.DO_NOT_TRUNCATE:
        if backend.truncation is not None:
            backend.no_truncation()
    else:
        wanted = {"max_length": max_length, "stride": stride, "strategy": strategy.value, "direction": side}
        if backend.truncation != wanted:
            backend.enable_truncation(**wanted)


def padded_lengths(lengths: np.ndarray, strategy: PaddingStrategy, max_length, multiple: int | None) -> np.ndarray:
    """The length of each row after padding, (B,)"""
    if strategy == PaddingStrategy.DO_NOT_PAD or not len(lengths):
        return lengths
    to = int(lengths.max()) if strategy == PaddingStrategy.LONGEST else max_length
    if multiple:
        to = -(-to // multiple) * multiple
    return np.maximum(lengths, to)


def pad_rows(outputs: dict, lengths: np.ndarray, padded: np.ndarray, side: str) -> dict:
    """Flat values (all tokens, ...) as rows: arrays (B, T, ...) where those are equally long, else lists of arrays.

    Outputs are pairs of values and of what stands at padding.
    """
    starts = padded.cumsum() - padded + (0 if side == "right" else padded - lengths)  # (B,) of the rows' own tokens
    tokens = int(lengths.sum())
    places = np.arange(tokens) + np.repeat(starts - (lengths.cumsum() - lengths), lengths)  # (tokens,)
    equal = len(set(padded.tolist())) <= 1
    rows = {}
    for name, (values, fill) in outputs.items():
        if tokens < padded.sum():
            flat_rows = np.zeros((padded.sum(), *values.shape[1:]), dtype=np.int64)
            if fill:
                flat_rows += fill
            flat_rows[places] = values
            values = flat_rows
        if equal:
            rows[name] = values.reshape(len(padded), padded.max(initial=0), *values.shape[1:])
        else:
            rows[name] = np.split(values, padded.cumsum()[:-1])
    return rows


ElmoTokenizer.register_for_auto_class("AutoTokenizer")

__all__ = ["ElmoTokenizer"]
