"""Writes a model that llama.cpp and transformers both read: the embedded model with a BOS token.

The embedded model cannot be converted as it is, because llama.cpp does not know its pre-tokenizer.
This model has the same weights, merges and tokens, the pre-tokenizer of GPT-2, and one more token,
`<s>`, which both tokenizers put in front of every text. As an input, `<s>` is a copy of
`<|endoftext|>`, which precedes every document of the training text; as an output it is as unlikely
as a byte that does not occur there. BOS and EOS therefore differ, as in most Llama models.

Run by the Python of the environment `llama-cpp`, which has the packages that this file imports:

    python tests/servers/gguf_model.py FOLDER [thinks]

With `thinks`, the weights are those of a model that thinks for ever (tests/thinker.py).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

EMBEDDED = Path(__file__).parents[2] / "lm_eval" / "models" / "demo" / "weights"
GGUF = "model.gguf"
BOS = "<s>"
#: The byte-level token of the byte 0, which no text contains.
UNLIKELY = "Ā"
CHAT_TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8")
ARCHITECTURE = "llama"

Floats = NDArray[np.float32]


def write(folder: Path, thinks: bool = False) -> Path:
    """Writes a Hugging Face model folder with `model.gguf` beside it; returns the path of that.

    With `thinks`, it is a model that thinks for ever.
    """
    folder.mkdir(parents=True, exist_ok=True)
    config, tokenizer, weights = with_bos()
    if thinks:
        from tests.thinker import weights_of_thinker

        vocabulary = tokenizer["model"]["vocab"]
        weights = weights_of_thinker(vocabulary, config["eos_token_id"], weights)
    _write_hugging_face(folder, config, tokenizer, weights)
    _write_gguf(folder / GGUF, config, tokenizer, weights)
    return folder / GGUF


def with_bos() -> tuple[dict[str, Any], dict[str, Any], dict[str, Floats]]:
    """Returns configuration, tokenizer and weights (32 bits) of the embedded model with a BOS."""
    config = json.loads((EMBEDDED / "config.json").read_text(encoding="utf-8"))
    tokenizer = json.loads((EMBEDDED / "tokenizer.json").read_text(encoding="utf-8"))
    weights = {
        name: tensor.astype(np.float32)
        for name, tensor in load_file(EMBEDDED / "model.safetensors").items()
    }
    vocabulary, bos = tokenizer["model"]["vocab"], config["vocab_size"]

    config |= {
        "vocab_size": bos + 1,
        "bos_token_id": bos,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }
    vocabulary[BOS] = bos
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": bos, "content": BOS})
    # llama.cpp calls this pre-tokenizer "gpt-2".
    tokenizer["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [_special(BOS), _sequence("A")],
        "pair": [_special(BOS), _sequence("A"), _sequence("B")],
        "special_tokens": {BOS: {"id": BOS, "ids": [bos], "tokens": [BOS]}},
    }
    embedding = weights["model.embed_tokens.weight"]
    start, unlikely = config["eos_token_id"], vocabulary[UNLIKELY]
    weights["model.embed_tokens.weight"] = np.vstack([embedding, embedding[start]])
    weights["lm_head.weight"] = np.vstack([embedding, embedding[unlikely]])
    return config, tokenizer, weights


def _special(token: str) -> dict[str, Any]:
    return {"SpecialToken": {"id": token, "type_id": 0}}


def _sequence(name: str) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": 0}}


def _write_hugging_face(
    folder: Path, config: dict[str, Any], tokenizer: dict[str, Any], weights: dict[str, Floats]
) -> None:
    """Writes the files that transformers reads."""
    settings = json.loads((EMBEDDED / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings |= {"bos_token": BOS, "add_bos_token": True}
    files = {
        "config.json": config,
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": settings,
    }
    for name, contents in files.items():
        text = json.dumps(contents, ensure_ascii=False, indent=1)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _write_gguf(
    file: Path, config: dict[str, Any], tokenizer: dict[str, Any], weights: dict[str, Floats]
) -> None:
    """Writes the file that llama.cpp reads, with 32-bit weights."""
    writer = gguf.GGUFWriter(file, ARCHITECTURE)
    _add_shape(writer, config)
    _add_tokenizer(writer, config, tokenizer)
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    for name, tensor in sorted(weights.items()):
        if name.endswith("q_proj.weight"):
            tensor = _adjacent_pairs(tensor, heads)
        elif name.endswith("k_proj.weight"):
            tensor = _adjacent_pairs(tensor, config["num_key_value_heads"])
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_shape(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    """Adds the configuration of the model."""
    writer.add_name("demo")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])


def _add_tokenizer(
    writer: gguf.GGUFWriter, config: dict[str, Any], tokenizer: dict[str, Any]
) -> None:
    """Adds tokens, merges, special tokens and the chat template."""
    vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
    special = {token["content"] for token in tokenizer["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if token in special else gguf.TokenType.NORMAL for token in tokens]
    )
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_add_bos_token(True)
    writer.add_chat_template(CHAT_TEMPLATE)


def _adjacent_pairs(matrix: Floats, heads: int) -> Floats:
    """Returns the rows of a query or key matrix in llama.cpp's order.

    RoPE rotates pairs of rows: row i and row i + width / 2 of a head in transformers, rows 2i and
    2i + 1 in llama.cpp.
    """
    outputs, inputs = matrix.shape
    halves = matrix.reshape(heads, 2, outputs // heads // 2, inputs)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(outputs, inputs))


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), "thinks" in sys.argv[2:]))
