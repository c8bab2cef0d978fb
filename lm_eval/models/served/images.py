"""Images in the messages of a chat."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from lm_eval.api.instance import Instance


def create_image_prompt(
    imgs: Sequence[Any], chat: list[dict[str, Any]], fmt: str = "PNG"
) -> list[dict[str, Any]]:
    """Returns a chat whose last message begins with images, in the form of OpenAI's API.

    Args:
        imgs: the images, as objects of Pillow.
        chat: the messages. The last one is changed.
        fmt: the format in which images are sent, "PNG" or "JPEG".
    """
    parts: list[dict[str, Any]] = []
    for image in imgs:
        buffer = BytesIO()
        image.save(buffer, format=fmt)
        data = base64.b64encode(buffer.getvalue()).decode("ascii")
        url = f"data:image/{fmt.lower()};base64,{data}"
        parts.append({"type": "image_url", "image_url": {"url": url, "detail": "auto"}})
    last = chat[-1]
    text = last["content"]
    last["content"] = parts + (text if isinstance(text, list) else [{"type": "text", "text": text}])
    last.pop("type", None)
    return chat


def images_of(request: Instance) -> list[Any]:
    """Returns the images of a request; an empty list if it has none."""
    media = request.args[2] if len(request.args) > 2 else None
    return list(media.get("visual") or ()) if isinstance(media, Mapping) else []
