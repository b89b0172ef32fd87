"""Compare the speed of embedding words with all other implementations of ELMo, on the same words and weights.

    ELMO_PEERS=…/python ELMO_PEERS_TF=…/python python benchmarks/compare.py [--json FILE] [--chart FILE]
    python benchmarks/compare.py --memory 100000      # memory of a long stream, and the time to load a checkpoint

The sizes are those of the released small and original models, and "manylangs", the original size with word embeddings,
for ELMoForManyLangs, which reads no other format. Weights are random, and all systems return all layers of all words:

- single sentences: a call for each of the first 32; ours includes the tokenizer, the others start from ids
- batches of 64 in corpus order, of 64 and 128 sorted by length: calls of the model, ids made beforehand
- whole list: from words to vectors in the order given, by our `embed` and ELMoForManyLangs's `sents2elmo`

Ours knows no word's context-free vector at the start of a workload, and then keeps those that it has computed.

The limit is the time of the matrix products alone (products.py) in the batches of the whole list. A time is the best of
several rounds, in each of which every system has its turn. Outputs are compared before every timing of another system.
A row is marked as busy if other processes used more than 0.06 CPUs meanwhile. Linux only.
"""

import argparse
import contextlib
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import torch
from peers import NUM_CHECKED, run_peer
from products import time_products
from text import sentences as read_sentences
from transformers.utils import logging
from watch import QUIET, Watch, memory

from transformers_elmo import ElmoConfig, ElmoModel, ElmoQuantizationConfig, ElmoTokenizer
from transformers_elmo.convert.export import export_bilm
from transformers_elmo.convert.job import convert
from transformers_elmo.embed.job import embed
from transformers_elmo.lstm_elmo import Packing

Sentences = list[list[str]]

MANY_LANGS = "manylangs"
SIZES = "small", "original", MANY_LANGS
SINGLE, CORPUS, WHOLE = "single sentences", "batches of 64, corpus order", "whole list"
SORTED = {size: f"batches of {size}, sorted by length" for size in (64, 128)}
NUM_SINGLE = 32
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Peer:
    name: str
    package: str
    variable: str  # of the environment, with the path of its interpreter
    measurement: str  # function in peers.py

    @property
    def sizes(self) -> tuple[str, ...]:
        return (MANY_LANGS,) if self.package == "elmoformanylangs" else ("small", "original")

    def version(self) -> str:
        program = f"from importlib.metadata import version; print(version({self.package!r}))"
        command = [os.environ[self.variable], "-c", program]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


PEERS = [
    Peer("AllenNLP", "allennlp", "ELMO_PEERS", "allennlp_vectors"),
    Peer("simple_elmo", "simple_elmo", "ELMO_PEERS_TF", "simple_elmo_vectors"),
    Peer("ELMoForManyLangs", "elmoformanylangs", "ELMO_PEERS", "many_langs_vectors"),
    Peer("ELMoForManyLangs, no_grad", "elmoformanylangs", "ELMO_PEERS", "many_langs_no_grad"),
]


def make_workloads(size: str, sentences: Sentences) -> dict[str, list[Sentences]]:
    """Return the batches of each workload."""
    if size == MANY_LANGS:
        return {WHOLE: [sentences]}
    by_length = sorted(sentences, key=len, reverse=True)
    return {
        SINGLE: split(sentences[:NUM_SINGLE], 1),
        CORPUS: split(sentences, 64),
        **{name: split(by_length, size) for size, name in SORTED.items()},
        WHOLE: [sentences],
    }


def split(sentences: Sentences, size: int) -> list[Sentences]:
    return [sentences[start : start + size] for start in range(0, len(sentences), size)]


# Weights


# Standard deviations as multiples of 1 / sqrt(number of inputs). The gates are neither closed nor wide open, and the
# clips take effect now and then; with the initial weights, outputs are so small that almost any would agree.
SCALES = {
    "convolutions": 0.7,
    "transform": 1.0,
    "carry": 0.7,
    "token_encoder.projection": 1.2,
    "input_weight": 1.0,
    "recurrent_weight": 0.45,
    "projection_weight": 2.8,
}


@torch.no_grad()
def random_model(size: str) -> ElmoModel:
    torch.manual_seed(0)
    model = ElmoModel(getattr(ElmoConfig, size)(vocab_size=4))
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter += (0.5 if "lstm" in name else 0.1) * torch.randn_like(parameter)
        elif name.endswith("embedding.weight"):
            parameter.normal_(0, 0.6)[0] = 0  # padding
        elif not name.startswith("mix."):
            (scale,) = [scale for part, scale in SCALES.items() if part in name]
            num_inputs = len(parameter) if "lstm" in name else parameter[0].numel()  # (in, out) or (out, in)
            parameter.normal_(0, scale / math.sqrt(num_inputs))
    return model


def write_checkpoints(size: str, sentences: Sentences, folder: Path):
    """Write the same random weights in our format and in that of the peers."""
    if size == MANY_LANGS:
        write_many_langs(sentences, folder / "many_langs")
        convert(folder / "many_langs", folder / "checkpoint")
        return
    model, tokenizer = random_model(size), ElmoTokenizer()
    model.save_pretrained(folder / "checkpoint")
    tokenizer.save_pretrained(folder / "checkpoint")
    export_bilm(model, tokenizer, folder / "bilm")


def write_many_langs(sentences: Sentences, folder: Path):
    """Write a model of the released size, which knows all words, in ELMoForManyLangs's format."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from helpers import released

    words = {word for sentence in sentences for word in sentence}
    words = [*released.MANY_LANGS_WORDS[:4], *sorted(words)]
    characters = [*released.MANY_LANGS_CHARACTERS[:6], *sorted(set("".join(words)))]
    filters = [[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]]
    options = released.many_langs_options(
        encoder_dim=4096,
        encoder_projection_dim=512,
        encoder_cell_clip=3,
        encoder_proj_clip=3,
        token_embedder_filters=filters,
        token_embedder_word_dim=100,
        token_embedder_char_dim=50,
    )
    arrays = released.many_langs_arrays(options, len(words), len(characters))
    released.write_many_langs(folder, options, arrays, words, characters)


def load_models(checkpoint: Path) -> dict[str, ElmoModel]:
    """Load a checkpoint in each precision."""
    models = {
        "fp32": ElmoModel.from_pretrained(checkpoint),
        "bf16": ElmoModel.from_pretrained(checkpoint, dtype=torch.bfloat16),
        "int8": ElmoModel.from_pretrained(checkpoint, quantization_config=ElmoQuantizationConfig()),
    }
    return {precision: model.eval() for precision, model in models.items()}


# Outputs


def layers_of(model: ElmoModel, tokenizer: ElmoTokenizer, sentences: Sentences) -> list[np.ndarray]:
    """Return the layers (L + 1, words, 2P) of each sentence."""
    return [layers for _, layers in embed(model, tokenizer, sentences, layer="all")]


def largest_difference(path: Path, expected: list[np.ndarray]) -> float:
    """Return the largest difference between the arrays that a peer wrote and ours."""
    with np.load(path) as theirs:
        found = list(theirs.values())
    if [array.shape for array in found] != [array.shape for array in expected]:
        raise ValueError(f"the shapes are {[array.shape for array in found]}, not {[a.shape for a in expected]}")
    return float(np.max([np.abs(ours - theirs).max() for ours, theirs in zip(expected, found)]))  # NaN if one is


def cosines(a: list[np.ndarray], b: list[np.ndarray]) -> list[list[float]]:
    """Return the mean and the lowest cosine of a word's vectors for each layer."""
    a, b = np.concatenate(a, 1).astype(np.float64), np.concatenate(b, 1).astype(np.float64)  # (L + 1, words, 2P)
    found = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    return [[float(layer.mean()), float(layer.min())] for layer in found]


# Measurements


def inputs_of(tokenizer: ElmoTokenizer, batch: Sentences) -> dict[str, torch.Tensor]:
    return tokenizer(batch, is_split_into_words=True, padding=True, return_tensors="pt")


def measure_ours(model: ElmoModel, tokenizer: ElmoTokenizer, workload: str, batches: list[Sentences]) -> dict:
    forget_words = model.token_encoder.prepared.drop
    if workload == WHOLE:
        watch = Watch(batches, 1, warm_up=batches[0][:64], before_round=forget_words)
        for sentences in watch:
            for _ in embed(model, tokenizer, sentences, layer="all"):
                pass
        return watch.result()
    inputs = batches if workload == SINGLE else [inputs_of(tokenizer, batch) for batch in batches]
    watch = Watch(inputs, passes(workload), before_round=forget_words)
    with torch.inference_mode():
        for batch in watch:
            model(**(inputs_of(tokenizer, batch) if workload == SINGLE else batch), output_hidden_states=True)
    return watch.result()


def passes(workload: str) -> int:
    """Return the passes over the batches in each round: four where one is short, so a disturbance would count."""
    return 4 if workload == SINGLE else 1


def batches_of_embed(config: ElmoConfig, tokenizer: ElmoTokenizer, sentences: Sentences) -> list[tuple[list[int], int]]:
    """Return the number of words at each step, and of distinct words, for each batch that `embed` makes of the list."""
    tiny = {"lstm_dim": 8, "projection_dim": 4, "char_filters": [[1, 4]], "num_highway_layers": 1}
    model, found = ElmoModel(ElmoConfig(**{**config.to_dict(), **tiny})), []

    def record(module, args, inputs):
        mask = inputs["attention_mask"] != 0
        distinct = torch.unique(inputs["char_ids"][mask], dim=0)
        found.append((Packing.from_mask(mask).batch_sizes, len(distinct)))

    model.register_forward_pre_hook(record, with_kwargs=True)
    layers_of(model, tokenizer, sentences)
    return found


class Comparison:
    """All measurements of one size. Systems are ours in each precision, the peers, and the limit of each precision."""

    def __init__(self, size: str, sentences: Sentences, peers: list[Peer], folder: Path):
        self.size, self.sentences, self.folder = size, sentences, folder
        self.peers = [peer for peer in peers if size in peer.sizes]
        self.workloads = make_workloads(size, sentences)
        with contextlib.redirect_stdout(None):
            write_checkpoints(size, sentences, folder)
        self.models = load_models(folder / "checkpoint")
        self.tokenizer = ElmoTokenizer.from_pretrained(folder / "checkpoint")
        self.batches = batches_of_embed(self.models["fp32"].config, self.tokenizer, sentences)
        self.results: dict[tuple[str, str], dict] = {}  # the best of each workload and system
        self.differences: dict[str, dict] = {}  # of each peer's vectors from ours in fp32
        self.cosines: dict[str, list] = {}  # mean and lowest of each layer, between a precision and fp32

    def run(self, rounds: int):
        for number in range(1, rounds + 1):
            for (workload, system), result in self.measurements():
                words = sum(len(sentence) for batch in self.workloads[workload] for sentence in batch)
                result = {"words_per_second": words / result["seconds"], "others": result["others"]}
                print(
                    f"round {number}: {self.size}, {workload}, {system}: {result['words_per_second']:,.0f} words/s",
                    file=sys.stderr,
                )
                best = self.results.setdefault((workload, system), result)
                if result["words_per_second"] > best["words_per_second"]:
                    self.results[workload, system] = result

    def measurements(self) -> Iterator[tuple[tuple[str, str], dict]]:
        """Measure each workload with each system once."""
        for workload, batches in self.workloads.items():
            for precision, model in self.models.items():
                yield (workload, f"ours, {precision}"), measure_ours(model, self.tokenizer, workload, batches)
            if workload != WHOLE or self.size == MANY_LANGS:
                for peer in self.peers:
                    yield (workload, peer.name), self.measure_peer(peer, workload, batches)
        words = {word for sentence in self.sentences for word in sentence}
        for precision, model in self.models.items():
            yield (WHOLE, f"limit, {precision}"), time_products(model.config, self.batches, words, precision)

    def measure_peer(self, peer: Peer, workload: str, batches: list[Sentences]) -> dict:
        (self.folder / "sentences.json").write_text(json.dumps(batches))
        title, threads = f"{peer.name}, {workload}", torch.get_num_threads()
        result = run_peer(title, peer.variable, peer.measurement, self.folder, passes(workload), threads)
        expected = layers_of(self.models["fp32"], self.tokenizer, batches[0][:NUM_CHECKED])
        difference = largest_difference(self.folder / "layers.npz", expected)
        if not difference <= TOLERANCE:  # also if it is NaN
            sys.exit(f"{title}, {self.size}: vectors differ from ours by {difference:.1e}, not at most {TOLERANCE}.")
        before = self.differences.get(peer.name, {"difference": 0.0, "value": 0.0})
        value = max(float(np.abs(layers).max()) for layers in expected)
        self.differences[peer.name] = {
            "difference": max(difference, before["difference"]),
            "value": max(value, before["value"]),
        }
        return result

    def compare_precisions(self):
        exact, *others = [layers_of(model, self.tokenizer, self.sentences[:64]) for model in self.models.values()]
        for precision, layers in zip(list(self.models)[1:], others):
            self.cosines[precision] = cosines(layers, exact)

    def speed(self, workload: str, system: str) -> float:
        return self.results[workload, system]["words_per_second"]

    def fastest_peer(self, *workloads: str) -> float | None:
        names = [peer.name for peer in self.peers]
        found = [self.speed(*key) for key in self.results if key[0] in workloads and key[1] in names]
        return max(found, default=None)

    def print_table(self):
        print(f"\n{self.size:<62}{'words/s':>10}{'of the fastest peer':>21}")
        for workload in self.workloads:
            peer = self.fastest_peer(workload)
            for (of, system), result in self.results.items():
                if of == workload:
                    speed, busy = result["words_per_second"], result["others"] > QUIET
                    note = f"  busy: others used {result['others']:.2f} CPUs" if busy else ""
                    print(f"{f'{workload}: {system}':<62}{speed:>10,.0f}{ratio(speed, peer):>21}{note}")
        for name, largest in self.differences.items():
            difference, value = largest["difference"], largest["value"]
            print(f"{name} and ours, fp32: largest difference {difference:.1e}, largest value {value:.2f}")
        for precision, layers in self.cosines.items():
            text = ", ".join(f"layer {n} {mean:.6f} / {lowest:.6f}" for n, (mean, lowest) in enumerate(layers))
            print(f"{precision} and fp32, mean / lowest cosine of a word: {text}")

    def ratios(self) -> dict[str, dict[str, float | None]]:
        """Return how many times as fast each precision is as the peers and the limit; None without a peer."""
        tuned = self.fastest_peer(CORPUS, *SORTED.values(), WHOLE)
        return {
            precision: {
                "whole list / fastest peer, 64 in corpus order": quotient(whole, self.fastest_peer(CORPUS)),
                "whole list / best-tuned run of a peer": quotient(whole, tuned),
                "whole list / limit": quotient(whole, self.speed(WHOLE, f"limit, {precision}")),
                "single / fastest peer": quotient(single, self.fastest_peer(SINGLE)),
            }
            for precision in self.models
            for whole in [self.speed(WHOLE, f"ours, {precision}")]
            for single in [self.results.get((SINGLE, f"ours, {precision}"), {}).get("words_per_second")]
        }

    def speeds(self) -> list[dict]:
        return [
            {"size": self.size, "workload": workload, "system": system, "busy": result["others"] > QUIET, **result}
            for (workload, system), result in self.results.items()
        ]


def to_json(machine: dict, sentences: Sentences, rounds: int, comparisons: list[Comparison]) -> dict:
    return {
        "machine": machine,
        "sentences": len(sentences),
        "words": sum(map(len, sentences)),
        "rounds": rounds,
        "speeds": [row for comparison in comparisons for row in comparison.speeds()],
        "differences": {comparison.size: comparison.differences for comparison in comparisons},
        "cosines": {comparison.size: comparison.cosines for comparison in comparisons},
        "ratios": {comparison.size: comparison.ratios() for comparison in comparisons},
    }


def quotient(a: float | None, b: float | None) -> float | None:
    return a / b if a and b else None


def ratio(a: float | None, b: float | None) -> str:
    return "-" if quotient(a, b) is None else f"{quotient(a, b):.2f}"


def print_summary(comparisons: list[Comparison]):
    print("\nratios")
    for comparison in comparisons:
        for precision, ratios in comparison.ratios().items():
            print(f"{comparison.size}, {precision}")
            for name, value in ratios.items():
                if value is not None:
                    print(f"    {name:<54}{value:>8.2f}")
    busy = [row["busy"] for comparison in comparisons for row in comparison.speeds()]
    if any(busy):
        print(f"The machine was busy in {sum(busy)} of {len(busy)} measurements; run this again when it is idle.")


def available(peers: list[Peer]) -> list[Peer]:
    """Return the peers whose interpreters are known, and say which are not."""
    for peer in peers:
        if peer.variable not in os.environ:
            print(f"{peer.name} is skipped: {peer.variable} is not set; see tests/test_peers.py")
    return [peer for peer in peers if peer.variable in os.environ]


def describe_machine(peers: list[Peer]) -> dict:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    versions = {"torch": torch.__version__, **{peer.name: peer.version() for peer in peers}}
    threads = torch.get_num_threads()
    return {"cpu": model[1] if model else platform.machine(), "threads": threads, "versions": versions}


def measure_memory(number: int, sentences: Sentences, size: str):
    """Embed a stream of sentences and print the memory on the way; then load the original size."""
    model, tokenizer = random_model(size).eval(), ElmoTokenizer()
    layers_of(model, tokenizer, sentences[:64])
    marks = {number * percent // 100: percent for percent in (10, 50, 100)}
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    print(f"{size}, fp32, {number:,} sentences; memory of the process before: {memory('VmRSS') / 1e6:,.0f} MB")
    for count, _ in enumerate(embed(model, tokenizer, islice(cycle(sentences), number), layer="all"), 1):
        if count in marks:
            print(f"after {marks[count]:>3} %: {memory('VmRSS') / 1e6:,.0f} MB", flush=True)
    print(f"peak: {memory('VmHWM') / 1e6:,.0f} MB")
    with tempfile.TemporaryDirectory() as folder:
        random_model("original").save_pretrained(folder)
        start = time.perf_counter()
        ElmoModel.from_pretrained(folder)
        print(f"loading the original size: {time.perf_counter() - start:.2f} s")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    packages = dict.fromkeys(peer.package for peer in PEERS)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--sizes", default=",".join(SIZES), help="default: %(default)s")
    parser.add_argument("--peers", default=",".join(packages), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=2, help="of which the best counts (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="128 sentences, one round")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    parser.add_argument("--chart", type=Path, help="draw the results to this file")
    parser.add_argument("--memory", type=int, metavar="N", help="only measure the memory of embedding N sentences")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.sentences, arguments.rounds = 128, 1
    for option, known in (("sizes", SIZES), ("peers", packages)):
        names = [name for name in getattr(arguments, option).split(",") if name]
        unknown = [name for name in names if name not in known]
        if unknown:
            parser.error(f"--{option} must be of {', '.join(known)}; got {unknown[0]}")
        setattr(arguments, option, names)
    if not arguments.sizes or (arguments.memory and arguments.sizes[0] == MANY_LANGS):
        parser.error("--sizes must name a size; with --memory, small or original first")
    return arguments


def main():
    arguments = parse_arguments()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    texts, source = read_sentences(arguments.sentences)
    sentences = [ElmoTokenizer().tokenize(text) for text in texts]
    if arguments.memory:
        measure_memory(arguments.memory, sentences, arguments.sizes[0])
        return
    peers = available([peer for peer in PEERS if peer.package in arguments.peers])
    machine, words = describe_machine(peers), sum(map(len, sentences))
    print(f"{machine['cpu']}, {machine['threads']} threads; best of {arguments.rounds}")
    print(", ".join(f"{name} {version}" for name, version in machine["versions"].items()))
    print(f"{len(sentences):,} sentences ({source}), {words:,} words", flush=True)
    comparisons = []
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory() as folder:
            comparison = Comparison(size, sentences, peers, Path(folder))
            comparison.compare_precisions()
            comparison.run(arguments.rounds)
        comparison.print_table()
        sys.stdout.flush()
        comparisons.append(comparison)
        if arguments.json:  # after each size, in case a peer fails later
            results = to_json(machine, sentences, arguments.rounds, comparisons)
            arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    print_summary(comparisons)
    if arguments.chart:
        from chart import draw

        draw(to_json(machine, sentences, arguments.rounds, comparisons), arguments.chart)


if __name__ == "__main__":
    main()
