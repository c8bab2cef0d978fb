"""`Record`: the base class of dataclasses whose fields are also the items of a dictionary."""

from __future__ import annotations

from typing import Any, NoReturn


class Record(dict):  # type: ignore[type-arg]
    """A dataclass that is also a dictionary of its fields.

    Code written for the published harness reads and sets configurations both as `config.task` and
    as `config["task"]`. Attributes and items are always the same, so that `dict(config)`,
    `{**config}` and `json.dumps(config)` contain every field. (JSON needs `to_dict()`, or a
    `default`, if a field is a function.)
    """

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        super().__setitem__(name, value)

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, key, value)

    def __getitem__(self, key: str) -> Any:  # `AttributeError` for a missing key, as published
        return getattr(self, key)

    def update(self, *given: Any, **named: Any) -> None:
        """Sets several fields; the arguments are those of `dict.update`."""
        for key, value in dict(*given, **named).items():
            setattr(self, key, value)

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def _refuse_removal(self, *_: Any) -> NoReturn:
        raise TypeError(
            f"fields of a {type(self).__name__} cannot be removed. Set a field to None instead."
        )

    __delattr__ = __delitem__ = pop = popitem = clear = _refuse_removal
