# Copyright 2026 The transformers-elmo authors.
# Licensed under the Apache License, Version 2.0: http://www.apache.org/licenses/LICENSE-2.0
"""Released ELMos and where to download them.

The URLs are those of the models' own pages; further URLs of a file are mirrors that were published too, tried in turn.
All are https: without a hash, the connection is all that vouches for a file. Sizes, SHA-256 hashes and licenses are
given only where they were published.
"""

import difflib
from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteFile:
    """A file to download."""

    urls: tuple[str, ...]  # tried in this order
    name: str  # on disk
    size: int | None = None  # bytes
    sha256: str | None = None


@dataclass(frozen=True)
class Release:
    """A released ELMo."""

    name: str
    description: str
    language: str | None  # ISO 639-1 code, or ISO 639-3 if there is none
    license: str | None  # the Hub's identifier
    homepage: str
    files: tuple[RemoteFile, ...]

    @property
    def notes(self) -> list[str]:
        """Say which files cannot be compared with a published hash, for the user and the model card."""
        names = ", ".join(file.name for file in self.files if file.sha256 is None)
        return [f"Downloaded over https; no SHA-256 was published to verify {names}."] if names else []


ALLENNLP = "https://allenai.org/allennlp/software/elmo"
S3 = "https://s3-us-west-2.amazonaws.com/allennlp/models/elmo/"  # the same as BUCKET
BUCKET = "https://allennlp.s3.amazonaws.com/models/elmo/"
SMALL, MEDIUM, LARGE, LARGE_5_5B = (
    f"{sizes}/elmo_{sizes}"
    for sizes in (
        "2x1024_128_2048cnn_1xhighway",
        "2x2048_256_2048cnn_1xhighway",
        "2x4096_512_2048cnn_2xhighway",
        "2x4096_512_2048cnn_2xhighway_5.5B",
    )
)
PORTUGUESE = f"{S3}contributed/pt/"
PUBMED = f"{S3}contributed/pubmed/elmo_2x4096_512_2048cnn_2xhighway_"
JAPANESE = "https://exawizardsallenlp.blob.core.windows.net/data/"
# A copy on the Hub by Lysandre Debut of Hugging Face, for https://github.com/allenai/allennlp/pull/5052.
HUB = (
    "https://huggingface.co/lysandre/elmo-2x4096_512_2048cnn_2xhighway/resolve/"
    "20d7005306acf8a4f3654740c63bafbff99ecc1b/"
)
GERMAN = "https://github.com/t-systems-on-site-services-gmbh/german-elmo-model"
BASQUE = "https://schweter.eu/cloud/eu-elmo/"
# Its pages link to http, but it serves https: public programs download 20/40.zip, 20/180.zip and 20/213.zip that way.
NLPL = "https://vectors.nlpl.eu/repository/"
NORELMO = "https://wiki.nlpl.eu/Vectors/norlm/norelmo"
SEMEVAL = "https://github.com/akutuzov/semeval2020"
RUSVECTORES = "https://rusvectores.org/en/models/"
# The first address is dead. Mirrors: https://github.com/labstructbioinf/rossmann-toolbox/issues/14. The copies of
# bio_embeddings (maintenance.dallago.us, data.bioembeddings.com) were published as http only.
SEQVEC = (
    "https://lbs.cent.uw.edu.pl/static/files/seqvec.zip",
    "https://web.archive.org/web/20220324054637/https://rostlab.org/~deepppi/seqvec.zip",
    "https://rostlab.org/~deepppi/seqvec.zip",
)
# One of seven languages. The archives of the others are on the same page, and `elmo convert` reads them.
EMBEDDIA = "https://www.clarin.si/repository/xmlui/handle/11356/1277"
SLOVENIAN = "https://www.clarin.si/repository/xmlui/bitstream/handle/11356/1277/slovenian-elmo.tar.gz"

CHECKS = {  # URL: size and SHA-256
    f"{S3}{SMALL}_weights.hdf5": (54_402_456, "747ba97abce8a5f446558369e10bb0f7931437a46867476fdd156f5d7f576229"),
    f"{S3}{LARGE}_weights.hdf5": (374_434_792, None),
    f"{S3}{LARGE}_options.json": (336, None),
}


def files(**addresses: str) -> tuple[RemoteFile, ...]:
    """Return the files of a release; a value has one URL or several, separated by spaces."""
    names = {"options": "options.json", "weights": "weights.hdf5", "softmax": "softmax.hdf5", "vocab": "vocab.txt"}
    files = []
    for name, value in addresses.items():
        urls = dict.fromkeys([*value.split(), *(url.replace(S3, BUCKET) for url in value.split())])
        files.append(RemoteFile(tuple(urls), names[name], *CHECKS.get(value.split()[0], ())))
    return tuple(files)


def archive(number: int, *versions: int) -> tuple[RemoteFile, ...]:
    """Return the archive of a model in the NLPL repository, whose models and versions are numbered."""
    return (RemoteFile(tuple(f"{NLPL}{version}/{number}.zip" for version in versions), f"{number}.zip"),)


ORIGINAL = files(
    options=f"{S3}{LARGE}_options.json {HUB}options.json",
    weights=f"{S3}{LARGE}_weights.hdf5 {HUB}weights.hdf5",
)
ORIGINAL_5_5B = files(
    options=f"{S3}{LARGE_5_5B}_options.json",
    weights=f"{S3}{LARGE_5_5B}_weights.hdf5",
)
# A character model only needs the vocabulary for its softmax.
SOFTMAX = files(
    softmax=f"{S3}{LARGE}_softmax_weights.hdf5",
    vocab=f"{S3}vocab-2016-09-10.txt",
)
SOFTMAX_5_5B = files(
    softmax=f"{S3}{LARGE_5_5B}_softmax_weights.hdf5",
    vocab=f"{S3}2x4096_512_2048cnn_2xhighway_5.5B/tf_checkpoint/vocab-enwiki-news-500000.txt",
)
ALLENNLP_RELEASES = [
    Release("small", "1 Billion Word Benchmark, 13.6 million parameters", "en", None, ALLENNLP,
            files(options=f"{S3}{SMALL}_options.json", weights=f"{S3}{SMALL}_weights.hdf5")),
    Release("medium", "1 Billion Word Benchmark, 28.0 million parameters", "en", None, ALLENNLP,
            files(options=f"{S3}{MEDIUM}_options.json", weights=f"{S3}{MEDIUM}_weights.hdf5")),
    Release("original", "1 Billion Word Benchmark, 93.6 million parameters", "en", None, ALLENNLP, ORIGINAL),
    Release("original-lm", "original with its softmax", "en", None, ALLENNLP, ORIGINAL + SOFTMAX),
    Release("original-5.5b", "5.5 billion words of Wikipedia and news, 93.6 million parameters", "en", None, ALLENNLP,
            ORIGINAL_5_5B),
    Release("original-5.5b-lm", "original-5.5b with its softmax", "en", None, ALLENNLP, ORIGINAL_5_5B + SOFTMAX_5_5B),
    Release("pubmed", "PubMed", "en", None, ALLENNLP,
            files(options=f"{PUBMED}options.json",
                  weights=f"{PUBMED}weights_PubMed_only.hdf5")),
    Release("portuguese", "Wikipedia", "pt", None, ALLENNLP,
            files(options=f"{PORTUGUESE}wikipedia/options.json",
                  weights=f"{PORTUGUESE}wikipedia/elmo_pt_weights.hdf5")),
    Release("portuguese-brwac", "brWaC", "pt", None, ALLENNLP,
            files(options=f"{PORTUGUESE}brwac/options.json",
                  weights=f"{PORTUGUESE}brwac/elmo_pt_weights_dgx1.hdf5")),
    Release("japanese", "by ExaWizards", "ja", None, ALLENNLP,
            files(options=f"{JAPANESE}options.json",
                  weights=f"{JAPANESE}weights.hdf5")),
    Release("german", "Wikipedia with its comments, by T-Systems on site", "de", "bsd-2-clause", GERMAN,
            files(options=f"{GERMAN}/releases/download/files_1/options.json",
                  weights=f"{GERMAN}/releases/download/files_1/weights.hdf5")),
    Release("basque", "Wikipedia, OPUS and Leipzig corpora, by Stefan Schweter", "eu", None,
            "https://github.com/stefan-it/plur",
            files(options=f"{BASQUE}options.json",
                  weights=f"{BASQUE}weights.hdf5")),
]  # fmt: skip

NLPL_RELEASES = [
    Release("nlpl-english", "for SemEval-2020 task 1", "en", None, SEMEVAL, archive(209, 20)),
    Release("nlpl-german", "for SemEval-2020 task 1", "de", None, SEMEVAL, archive(201, 20)),
    Release("nlpl-latin", "for SemEval-2020 task 1", "la", None, SEMEVAL, archive(203, 20)),
    Release("nlpl-swedish", "for SemEval-2020 task 1", "sv", None, SEMEVAL, archive(202, 20)),
    Release("nlpl-norwegian", "Wikipedia", "no", "cc-by-4.0", NORELMO, archive(211, 20)),
    Release("nlpl-norwegian-lemmas", "lemmas of Wikipedia", "no", "cc-by-4.0", NORELMO, archive(210, 20)),
    Release("nlpl-norelmo30", "Wikipedia and news, 30,000 words", "no", "cc-by-4.0", NORELMO, archive(217, 20)),
    Release("nlpl-norelmo100", "Wikipedia and news, 100,000 words", "no", "cc-by-4.0", NORELMO, archive(218, 20)),
    Release("nlpl-russian", "National Corpus and Wikipedia", "ru", None, RUSVECTORES, archive(195, 20, 11)),
    Release(
        "nlpl-russian-lemmas", "lemmas of National Corpus and Wikipedia", "ru", None, RUSVECTORES, archive(196, 20, 11)
    ),
    Release("nlpl-russian-taiga-lemmas", "lemmas of Taiga", "ru", None, RUSVECTORES, archive(199, 20)),
    Release("nlpl-russian-araneum-lemmas", "lemmas of Araneum", "ru", None, RUSVECTORES, archive(212, 20)),
]

MANY_LANGS = {
    "arabic": (136, "ar"), "bulgarian": (137, "bg"), "catalan": (138, "ca"), "czech": (139, "cs"),
    "old-church-slavonic": (140, "cu"), "danish": (141, "da"), "german": (142, "de"), "greek": (143, "el"),
    "english": (144, "en"), "spanish": (145, "es"), "estonian": (146, "et"), "basque": (147, "eu"),
    "persian": (148, "fa"), "finnish": (149, "fi"), "french": (150, "fr"), "irish": (151, "ga"),
    "galician": (152, "gl"), "ancient-greek": (153, "grc"), "hebrew": (154, "he"), "hindi": (155, "hi"),
    "croatian": (156, "hr"), "hungarian": (157, "hu"), "indonesian": (158, "id"), "italian": (159, "it"),
    "japanese": (160, "ja"), "korean": (161, "ko"), "latin": (162, "la"), "latvian": (163, "lv"),
    "dutch": (164, "nl"), "norwegian-bokmal": (165, "nb"), "norwegian-nynorsk": (166, "nn"), "polish": (167, "pl"),
    "portuguese": (168, "pt"), "romanian": (169, "ro"), "russian": (170, "ru"), "slovak": (171, "sk"),
    "slovene": (172, "sl"), "swedish": (173, "sv"), "turkish": (174, "tr"), "uyghur": (175, "ug"),
    "ukrainian": (176, "uk"), "urdu": (177, "ur"), "vietnamese": (178, "vi"), "chinese": (179, "zh"),
}  # fmt: skip
MANY_LANGS_RELEASES = [
    Release(f"many-langs-{name}", "20 million words of Wikipedia and Common Crawl, ELMoForManyLangs", language, "mit",
            "https://github.com/HIT-SCIR/ELMoForManyLangs", archive(number, 11))
    for name, (number, language) in MANY_LANGS.items()
]  # fmt: skip

OTHER_RELEASES = [
    Release("seqvec", "proteins of UniRef50, each amino acid a word, by Rostlab", None, None,
            "https://github.com/Rostlab/SeqVec", (RemoteFile(SEQVEC, "seqvec.zip"),)),
    Release("embeddia-slovenian", "by the University of Ljubljana for EMBEDDIA", "sl", None,
            EMBEDDIA, (RemoteFile((SLOVENIAN,), "slovenian-elmo.tar.gz"),)),
]  # fmt: skip

RELEASES = {
    release.name: release for release in ALLENNLP_RELEASES + OTHER_RELEASES + NLPL_RELEASES + MANY_LANGS_RELEASES
}


def find_release(name: str) -> Release:
    """Return the release of this name, or raise with similar names."""
    if name in RELEASES:
        return RELEASES[name]
    part = name.lower()
    similar = [known for known in RELEASES if part and part in known] or difflib.get_close_matches(part, RELEASES)
    raise ValueError(
        f"There is no release {name!r}; did you mean {', '.join(similar[:4] or ['small', 'original'])}? "
        "`elmo convert --list` shows all of them."
    )
