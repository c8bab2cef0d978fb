"""A model that thinks for ever: it answers only after the end mark of its thought.

It has the shape and the tokenizer of another model, and weights that make the next token a function
of the last one: `m` follows everything, except that `4` follows the mark `|`, `2` follows `4`, and
the end of the text follows `2`. Without the mark it writes `mmmm…`; after it, `42`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

MARK = "|"
ANSWER = "42"
#: What follows these tokens; the end-of-text token is None.
FOLLOWING = {MARK: "4", "4": "2", "2": None}

Weights = dict[str, Any]


def weights_of_thinker(vocabulary: Mapping[str, int], end: int, weights: Weights) -> Weights:
    """Returns weights in the shapes of `weights`; `end` is the end-of-text token."""
    made = {name: np.zeros(tensor.shape, np.float32) for name, tensor in weights.items()}
    for name in made:
        if "norm" in name:
            made[name] += 1.0
    rows, width = made["model.embed_tokens.weight"].shape
    inputs, outputs = np.zeros((rows, width), np.float32), np.zeros((rows, width), np.float32)
    inputs[:, 0] = 1.0
    outputs[vocabulary["m"], 0] = 1.0
    for column, (token, following) in enumerate(FOLLOWING.items(), start=1):
        inputs[vocabulary[token]] = np.eye(1, width, column)
        outputs[end if following is None else vocabulary[following], column] = 1.0
    made["model.embed_tokens.weight"], made["lm_head.weight"] = inputs, outputs
    return made


def write_thinker(folder: Path, source: Path) -> Path:
    """Writes the model with the tokenizer of the model folder `source`; returns `folder`."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(source, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"tie_word_embeddings": False, "torch_dtype": "float32"}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    given = load_file(folder / "model.safetensors")
    made = weights_of_thinker(tokenizer["model"]["vocab"], config["eos_token_id"], given)
    save_file(made, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
