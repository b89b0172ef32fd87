"""Test ElmoLanguageModel against the logits of its model."""

import json
import math

import numpy as np
import pytest
import torch

from helpers.errors import assert_value_error
from helpers.models import randomize, tiny_config
from transformers_elmo import ElmoForPreTraining, ElmoLanguageModel, ElmoModel, ElmoTokenizer
from transformers_elmo import language_model as language_model_module

VOCABULARY = "the a cat dog sat ran on mat .".split()


def build(**options) -> ElmoLanguageModel:
    tokenizer = ElmoTokenizer(vocab=VOCABULARY, max_characters_per_token=12)
    sizes = {"vocab_size": len(tokenizer), "char_vocab_size": 262}
    model = randomize(ElmoForPreTraining(tiny_config(**sizes, **options)))
    return ElmoLanguageModel(model.eval(), tokenizer)


def log_probabilities(language_model, words):
    """Return the words' rows in `lm_head` (n + 2,), and log p of all words after and before each of them (n + 2, V)."""
    inputs = language_model.tokenizer([words], is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        output = language_model.model(**inputs)
    logits = output.forward_logits[0, :, 1:], output.backward_logits[0, :, 1:]
    return inputs["input_ids"][0] - 1, *[part.log_softmax(-1) for part in logits]


@pytest.mark.parametrize("inputs", ["characters", "words", "words+characters"])
def test_scores(inputs):
    language_model = build(inputs=inputs)
    sentences = ["the cat sat .", ["a", "dog", "ran"], "the zebra sat on the mat .", []]
    scores = language_model.score(sentences, batch_words=2)
    assert [score.words for score in scores] == [
        ["the", "cat", "sat", "."], ["a", "dog", "ran"], "the zebra sat on the mat .".split(), [],
    ]  # fmt: skip
    number = len(language_model.tokenizer) - 1
    prior = torch.tensor([math.log(math.log1p(1 / (r + 1)) / math.log(number + 1)) for r in range(number)])
    for score in scores:
        ids, forward, backward = log_probabilities(language_model, score.words)
        for position in range(len(score.words)):
            left, right, word = forward[position], backward[position + 2], ids[position + 1]
            assert abs(score.forward[position] - left[word]) < 1e-5
            assert abs(score.backward[position] - right[word]) < 1e-5
            both = (left + right - prior).log_softmax(-1)
            assert abs(score.combined[position] - both[word]) < 1e-5


def test_scores_of_long_sentences(monkeypatch):
    language_model = build()
    sentence = ["the", "cat", "sat", "on", "a", "mat", "."] * 3
    expected = language_model.score([sentence])[0]
    monkeypatch.setattr(language_model_module, "SCORED_WORDS", 4)
    got = language_model.score([sentence])[0]
    torch.testing.assert_close([got.forward, got.combined], [expected.forward, expected.combined])


def test_perplexity_of_texts():
    language_model = build()
    texts = ["the cat sat .", "a dog ran on the mat", "zebra"]
    found = language_model.perplexity(texts, batch_words=2)
    sums, number = [0.0, 0.0], 0
    for text in texts:
        ids, forward, backward = log_probabilities(language_model, text.split())
        sums[0] -= float(sum(forward[t, ids[t + 1]] for t in range(len(ids) - 1)))
        sums[1] -= float(sum(backward[t + 1, ids[t]] for t in range(len(ids) - 1)))
        number += len(ids) - 1
    assert found.words == number
    assert found.forward == pytest.approx(math.exp(sums[0] / number), rel=1e-5)
    assert found.backward == pytest.approx(math.exp(sums[1] / number), rel=1e-5)
    assert found.both == pytest.approx(math.exp(sum(sums) / 2 / number), rel=1e-5)


def test_padding_token_in_a_text_is_an_unknown_word():
    language_model = build()
    (found,), (expected,) = [language_model.score([["the", word, "sat"]]) for word in ("<PAD>", "zebra")]
    unknown = language_model.tokenizer.unk_token_id - 1
    _, forward, _ = log_probabilities(language_model, ["the", "<PAD>", "sat"])
    assert found.forward[1] == pytest.approx(float(forward[1, unknown]), rel=1e-5)
    assert found.forward[1] == expected.forward[1]
    assert language_model.perplexity([["<PAD>"]]).words == 2


def test_numpy_integers_are_integers():
    language_model = build()
    assert language_model.substitutes("the cat", np.int64(1), k=np.int64(2)) == language_model.substitutes(
        "the cat", 1, 2
    )


def test_substitutes():
    language_model = build()
    sentence = "the cat sat on the mat ."
    found = language_model.substitutes(sentence, 1, k=4)
    assert len(found) == 4 and all(word in VOCABULARY for word, _ in found)
    assert [p for _, p in found] == sorted((p for _, p in found), reverse=True)
    for word, probability in found:  # the word itself does not count, only its context
        changed = sentence.split()
        changed[1] = word
        assert language_model.score([changed])[0].combined[1].exp() == pytest.approx(probability, rel=1e-4)
    assert dict(language_model.substitutes(sentence.replace("cat", "dog"), 1, k=4)) == pytest.approx(dict(found))
    assert [word for word, _ in language_model.substitutes(sentence, -6, k=4)] == [word for word, _ in found]
    assert len(language_model.substitutes(sentence, 0, k=1000)) == len(VOCABULARY)
    with pytest.raises(ValueError, match="one of the sentence's 7 words, got 7"):
        language_model.substitutes(sentence, 7)


def test_next_words():
    language_model = build()
    _, forward, backward = log_probabilities(language_model, ["the", "cat"])
    for direction, logs in (("forward", forward[2]), ("backward", backward[1])):
        found = language_model.next_words("the cat", k=3, direction=direction)
        allowed = {
            word: float(logs[language_model.tokenizer.convert_tokens_to_ids(word) - 1].exp()) for word in VOCABULARY
        }
        best = sorted(allowed.items(), key=lambda pair: -pair[1])[:3]
        assert [word for word, _ in found] == [word for word, _ in best]
        assert [p for _, p in found] == pytest.approx([p for _, p in best], rel=1e-4)
    assert len(language_model.next_words([], k=2)) == 2  # the first word of a sentence
    with pytest.raises(ValueError, match="direction must be"):
        language_model.next_words("the", direction="up")


def test_one_string_and_empty_lists():
    language_model = build()
    with pytest.raises(ValueError, match="put it into a list"):
        language_model.score("the cat")
    with pytest.raises(ValueError, match="at least one text"):
        language_model.perplexity([])
    assert language_model.score([]) == []


@pytest.mark.parametrize(
    "added", [{"add_bos_token": False}, {"add_eos_token": False}, {"add_bos_token": False, "add_eos_token": False}]
)
def test_boundaries_that_the_tokenizer_adds_do_not_matter(added):
    language_model, sentence = build(), "the cat sat on the mat ."
    tokenizer = ElmoTokenizer(vocab=VOCABULARY, max_characters_per_token=12, **added)
    other = ElmoLanguageModel(language_model.model, tokenizer)
    assert other.perplexity([sentence, "a dog ran"]) == language_model.perplexity([sentence, "a dog ran"])
    assert other.substitutes(sentence, 1) == language_model.substitutes(sentence, 1)
    for direction in ("forward", "backward"):
        assert other.next_words("the cat", direction=direction) == language_model.next_words(
            "the cat", direction=direction
        )
    for got, expected in zip(other.score([sentence, []]), language_model.score([sentence, []])):
        assert got.words == expected.words
        torch.testing.assert_close([got.forward, got.combined], [expected.forward, expected.combined], rtol=0, atol=0)


@pytest.mark.parametrize("training", [True, False])
def test_training_mode_is_restored(training):
    language_model = build(dropout=0.5)
    expected = language_model.perplexity(["the cat sat ."])
    language_model.model.train(training)
    assert language_model.perplexity(["the cat sat ."]) == expected
    language_model.score(["the cat"]), language_model.substitutes("the cat", 1), language_model.next_words("the")
    with pytest.raises(ValueError, match="position must be"):
        language_model.substitutes("the cat", 9)
    assert language_model.model.training == training
    assert all(module.training == training for module in language_model.model.modules())


def test_from_pretrained(tmp_path):
    language_model = build()
    language_model.model.save_pretrained(tmp_path)
    language_model.tokenizer.save_pretrained(tmp_path)
    loaded = ElmoLanguageModel.from_pretrained(str(tmp_path))
    assert not loaded.model.training
    assert loaded.substitutes("the cat sat .", 1) == language_model.substitutes("the cat sat .", 1)


def test_checkpoint_without_lm_head_raises_an_error(tmp_path):
    ElmoModel(tiny_config()).save_pretrained(tmp_path)
    message = "must be a checkpoint of ElmoForPreTraining; it has no lm_head, its architecture is ElmoModel"
    with pytest.raises(ValueError, match=message):
        ElmoLanguageModel.from_pretrained(str(tmp_path))


def test_lm_head_that_the_weights_lack_raises_an_error_before_it_is_allocated(tmp_path):
    ElmoModel(tiny_config(architectures=["ElmoForPreTraining"], vocab_size=2**31 - 1)).save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(fields | {"architectures": ["ElmoForPreTraining"]}))
    with pytest.raises(RuntimeError, match=r"contradict its configuration: lm_head\.bias is missing"):
        ElmoLanguageModel.from_pretrained(str(tmp_path))


BATCH_SIZE = "batch_words must be an integer, at least 1, got "
BAD_CALLS = {
    "score": [
        ({"sentences": ["the"], "batch_words": 0}, BATCH_SIZE + "0."),
        ({"sentences": ["the"], "batch_words": -1}, BATCH_SIZE + "-1."),
        ({"sentences": [], "batch_words": -1}, BATCH_SIZE + "-1."),
        ({"sentences": ["the"], "batch_words": 1.5}, BATCH_SIZE + "1.5."),
        ({"sentences": ["the"], "batch_words": "8"}, BATCH_SIZE + "'8'."),
        ({"sentences": ["the"], "batch_words": True}, BATCH_SIZE + "True."),
        ({"sentences": None}, "A list of sentences is expected, got a NoneType."),
        ({"sentences": {"the": 1}}, "A list of sentences is expected, got a dict."),
        ({"sentences": [None]}, "A sentence must be a string or a list of words, got None."),
        ({"sentences": [["the", 5]]}, "A sentence must be a string or a list of words, got ['the', 5]."),
        ({"sentences": [b"the"]}, "A sentence must be a string or a list of words, got b'the'."),
    ],
    "perplexity": [
        ({"texts": ["the"], "batch_words": 0}, BATCH_SIZE + "0."),
        ({"texts": 5}, "A list of sentences is expected, got a int."),
        ({"texts": [["the", None]]}, "A sentence must be a string or a list of words, got ['the', None]."),
    ],
    "substitutes": [
        ({"sentence": "the cat", "position": 1.0}, "one of the sentence's 2 words, got 1.0."),
        ({"sentence": "the cat", "position": "1"}, "one of the sentence's 2 words, got '1'."),
        ({"sentence": "the cat", "position": -3}, "one of the sentence's 2 words, got -3."),
        ({"sentence": "", "position": 0}, "one of the sentence's 0 words, got 0."),
        ({"sentence": None, "position": 0}, "A sentence must be a string or a list of words, got None."),
        ({"sentence": "the cat", "position": 0, "k": 0}, "k must be an integer, at least 1, got 0."),
        ({"sentence": "the cat", "position": 0, "k": -1}, "k must be an integer, at least 1, got -1."),
    ],
    "next_words": [
        ({"text": "the", "k": 2.5}, "k must be an integer, at least 1, got 2.5."),
        ({"text": "the", "direction": None}, 'direction must be "forward" or "backward", got None.'),
        ({"text": 5}, "A sentence must be a string or a list of words, got 5."),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "method, arguments, message", [(name, *case) for name in BAD_CALLS for case in BAD_CALLS[name]]
)
def test_bad_arguments_raise_an_error(method, arguments, message):
    assert_value_error(lambda: getattr(build(), method)(**arguments), message)


def test_tokenizer_of_another_vocabulary_raises_an_error():
    assert_value_error(
        lambda: ElmoLanguageModel(build().model, ElmoTokenizer(max_characters_per_token=12)),
        "must know the 13 words of the model's lm_head; its vocabulary has 4.",
    )
