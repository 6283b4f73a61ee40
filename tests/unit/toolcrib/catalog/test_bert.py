"""A BERT model in a folder turns texts into vectors as the paper says, and a folder that holds none says why."""

import json
from collections.abc import Mapping
from math import erf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from toolcrib.catalog.embedding.bert import Bert, WordPiece
from toolcrib.catalog.embedding.embedder import open_embedder
from toolcrib.errors import ConfigError

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "send", "an", "e", "##mail", "##s", "mail", ",", "天", "weather", "cafe"]
CONFIG = {
    "model_type": "bert",
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
}

Tensors = dict[str, npt.NDArray[np.float32]]


def weights() -> Tensors:
    chance = np.random.default_rng(7)

    def some(*shape: int) -> npt.NDArray[np.float32]:
        return chance.normal(0.0, 1.0 if len(shape) > 1 else 0.1, shape).astype(np.float32)

    made: Tensors = {
        "embeddings.word_embeddings.weight": some(len(TOKENS), 8),
        "embeddings.position_embeddings.weight": some(12, 8),
        "embeddings.token_type_embeddings.weight": some(2, 8),
        "embeddings.LayerNorm.weight": some(8),
        "embeddings.LayerNorm.bias": some(8),
    }
    shapes = {
        "attention.self.query": (8, 8),
        "attention.self.key": (8, 8),
        "attention.self.value": (8, 8),
        "attention.output.dense": (8, 8),
        "attention.output.LayerNorm": (8,),
        "intermediate.dense": (16, 8),
        "output.dense": (8, 16),
        "output.LayerNorm": (8,),
    }
    for layer in range(2):
        for name, shape in shapes.items():
            made[f"encoder.layer.{layer}.{name}.weight"] = some(*shape)
            made[f"encoder.layer.{layer}.{name}.bias"] = some(shape[0])
    for name, tensor in made.items():
        if name.endswith("LayerNorm.weight"):
            tensor += 1.0
        elif name.endswith("output.dense.weight"):
            tensor *= 0.2  # each token stays recognisable
    return made


def write(folder: Path, tensors: Tensors, **files: Mapping[str, Any]) -> Path:
    """Write what sentence-transformers keeps of a model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(files.pop("config", CONFIG)))
    (folder / "vocab.txt").write_text("\n".join(TOKENS), encoding="utf-8")
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".json").write_text(json.dumps(content))
    head: dict[str, Any] = {}
    body = b""
    for name, tensor in tensors.items():
        head[name] = {
            "dtype": "F32",
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + tensor.nbytes],
        }
        body += tensor.tobytes()
    text = json.dumps(head).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + body)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "tiny", weights())


def by_the_paper(tensors: Tensors, numbers: list[int]) -> npt.NDArray[np.float64]:
    """The forward pass of one text, token by token and head by head, in double precision with the exact GELU."""
    t = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}

    def dense(x: Any, name: str) -> Any:
        return np.array([t[f"{name}.weight"] @ row + t[f"{name}.bias"] for row in x])

    def normal(x: Any, name: str) -> Any:
        rows = [(row - row.mean()) / sqrt(row.var() + 1e-12) for row in x]
        return np.array([row * t[f"{name}.weight"] + t[f"{name}.bias"] for row in rows])

    x: Any = np.array(
        [
            t["embeddings.word_embeddings.weight"][number]
            + t["embeddings.position_embeddings.weight"][place]
            + t["embeddings.token_type_embeddings.weight"][0]
            for place, number in enumerate(numbers)
        ]
    )
    x = normal(x, "embeddings.LayerNorm")
    for at in range(2):
        layer = f"encoder.layer.{at}."
        query, key, value = (dense(x, f"{layer}attention.self.{part}") for part in ("query", "key", "value"))
        heads: list[Any] = []
        for head in (slice(0, 4), slice(4, 8)):
            scores = np.exp(query[:, head] @ key[:, head].T / 2.0)
            heads.append(scores / scores.sum(axis=1, keepdims=True) @ value[:, head])
        seen = np.concatenate(heads, axis=1)
        x = normal(x + dense(seen, f"{layer}attention.output.dense"), f"{layer}attention.output.LayerNorm")
        wide = dense(x, f"{layer}intermediate.dense")
        wide = np.array([[v * 0.5 * (1.0 + erf(v / sqrt(2.0))) for v in row] for row in wide])
        x = normal(x + dense(wide, f"{layer}output.dense"), f"{layer}output.LayerNorm")
    mean = x.mean(axis=0)
    return mean / np.linalg.norm(mean)


def test_a_vector_is_what_the_paper_says(folder: Path) -> None:
    vector = Bert(folder).encode(["send an email"])[0]
    expected = by_the_paper(weights(), [2, 4, 5, 6, 7, 3])
    assert vector.dtype == np.float32
    assert np.abs(vector - expected).max() < 2e-3  # the tanh form of GELU differs that much from the exact
    assert np.abs(vector - by_the_paper(weights(), [2, 4, 9, 3])).max() > 0.05


def test_a_text_has_the_same_vector_alone_and_among_longer_ones(folder: Path) -> None:
    model = Bert(folder)
    texts = ["mail", "send an email, an email, an email", "", "weather"] * 100  # of several batches
    together = model.encode(texts)
    assert np.allclose(together, np.concatenate([model.encode([text]) for text in texts]), atol=1e-5)
    assert np.allclose(np.linalg.norm(together, axis=1), 1.0, atol=1e-5)


def test_no_text_is_a_table_without_rows(folder: Path) -> None:
    assert Bert(folder).encode([]).shape == (0, 8)


def test_a_text_is_read_up_to_the_limit_of_the_model(tmp_path: Path) -> None:
    model = Bert(write(tmp_path, weights(), sentence_bert_config={"max_seq_length": 4}))
    assert np.allclose(model.encode(["send mail"]), model.encode(["send mail weather weather"]))


def test_a_model_that_pools_by_its_first_token_does_so(tmp_path: Path, folder: Path) -> None:
    first = Bert(write(tmp_path / "first", weights(), **{"1_Pooling__config": {"pooling_mode_cls_token": True}}))
    assert not np.allclose(first.encode(["send mail"]), Bert(folder).encode(["send mail"]), atol=0.02)


def test_the_id_tells_models_apart_and_is_the_same_after_a_restart(tmp_path: Path, folder: Path) -> None:
    other = weights()
    other["encoder.layer.1.output.LayerNorm.bias"] += 1.0
    assert Bert(folder).id == Bert(folder).id != Bert(write(tmp_path / "other", other)).id


def test_the_folder_of_a_model_is_an_embedder(folder: Path) -> None:
    embedder = open_embedder(str(folder))
    assert (embedder.dim, np.asarray(embedder.encode(["mail"])).shape) == (8, (1, 8))


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("no config", r"config\.json: the embedding model cannot be read"),
        ("another kind", r"config\.json: is a 'llama' model; only BERT"),
        ("no weights", r"model\.safetensors: is not a safetensors file"),
        ("cut", r"model\.safetensors: is not a safetensors file"),
        ("tensor missing", r"has no tensor encoder\.layer\.1\.output\.dense\.bias"),
        ("no vocabulary", r"vocab\.txt: the model's vocabulary cannot be read"),
        ("another vocabulary", r"needs \[CLS\], \[SEP\]"),
    ],
)
def test_a_folder_that_holds_no_such_model_is_refused_with_the_file(folder: Path, harm: str, said: str) -> None:
    path = folder / "model.safetensors"
    if harm == "no config":
        (folder / "config.json").unlink()
    elif harm == "another kind":
        (folder / "config.json").write_text(json.dumps({**CONFIG, "model_type": "llama"}))
    elif harm == "no weights":
        path.unlink()
    elif harm == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif harm == "tensor missing":
        write(
            folder, {name: tensor for name, tensor in weights().items() if name != "encoder.layer.1.output.dense.bias"}
        )
    elif harm == "no vocabulary":
        (folder / "vocab.txt").unlink()
    else:
        (folder / "vocab.txt").write_text("[UNK]\nsend")
    with pytest.raises(ConfigError, match=said):
        Bert(folder)


def test_an_unknown_embedder_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no embedder and no folder is named 'nowhere'; there are: .*minilm"):
        open_embedder("nowhere")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Send an Email", "[CLS] send an e ##mail [SEP]"),
        ("emails,mail", "[CLS] e ##mail ##s , mail [SEP]"),
        ("CAFÉ 天天", "[CLS] cafe 天 天 [SEP]"),
        ("send\0 \t\nmail", "[CLS] send mail [SEP]"),
        ("unheard " + "e" * 200, "[CLS] [UNK] [UNK] [SEP]"),
        ("“mail”", "[CLS] [UNK] mail [UNK] [SEP]"),
        ("", "[CLS] [SEP]"),
    ],
)
def test_text_becomes_the_fewest_known_pieces(text: str, expected: str) -> None:
    pieces = WordPiece({token: number for number, token in enumerate(TOKENS)})
    assert " ".join(TOKENS[number] for number in pieces.numbers(text, 100)) == expected


def test_tokens_beyond_the_limit_are_left_out() -> None:
    pieces = WordPiece({token: number for number, token in enumerate(TOKENS)})
    assert [TOKENS[number] for number in pieces.numbers("send mail " * 50, 4)] == ["[CLS]", "send", "mail", "[SEP]"]
