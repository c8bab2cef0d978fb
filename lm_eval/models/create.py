"""Make the model a run asks for, and explain an argument it does not take."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from lm_eval.api.model import LM
from lm_eval.api.registry import get_model, model_registry
from lm_eval.config.run import RunConfig
from lm_eval.errors import ConfigError, EvalError, ModelError, suggestion
from lm_eval.models import NOT_YET


def check_available(model: object) -> None:
    """Raises for a back end that only the published harness has, unless a plug-in brings it."""
    if isinstance(model, str) and model in NOT_YET and model not in model_registry:
        model_registry.get(model)


def create_model(run: RunConfig) -> LM:
    """The model object given, or one made from its name and arguments."""
    if isinstance(run.model, LM):
        return run.model
    if not isinstance(run.model, str):
        raise ModelError(
            f"model must be a name or an object derived from lm_eval.api.model.LM, "
            f"not {type(run.model).__name__}."
        )
    try:
        make = get_model(run.model)
    except ModuleNotFoundError as error:
        raise ModelError(
            f"the model {run.model!r} needs the package {error.name!r}, which is not installed "
            "here; the extras of this package bring it, for hf: pip install 'lm_eval[hf]'."
        ) from error
    extras = {
        "batch_size": run.batch_size,
        "max_batch_size": run.max_batch_size,
        "device": run.device,
    }
    extras = {k: v for k, v in extras.items() if v is not None and k not in run.model_args}
    _check_arguments(run.model, make, run.model_args)
    accepted = _accepted(make, extras)
    try:
        return make.create_from_arg_obj(run.model_args, accepted)
    except EvalError:
        raise
    except Exception as error:
        if isinstance(error, TypeError) and (
            missing := _missing(make, {**run.model_args, **accepted})
        ):
            near = suggestion(missing[0], run.model_args)
            given = near.replace("Did you mean", "Was it meant by")
            raise ConfigError(
                f"the model {run.model!r} must be told {' and '.join(missing)}: "
                f"--model_args {','.join(f'{name}=…' for name in missing)}.{given}"
            ) from error
        raise ModelError(
            f"the model {run.model!r} could not be made from {run.model_args}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _parameters(make: type[LM]) -> tuple[dict[str, inspect.Parameter], bool]:
    """What a model's constructor takes by name, and whether it takes anything else too."""
    parameters = list(inspect.signature(make.__init__).parameters.values())[1:]
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return {p.name: p for p in named}, takes_any


def _missing(make: type[LM], arguments: Mapping[str, Any]) -> list[str]:
    """What a model's constructor cannot do without, and is not given."""
    named, _ = _parameters(make)
    return [name for name, p in named.items() if p.default is p.empty and name not in arguments]


def _check_arguments(name: str, make: type[LM], arguments: dict[str, Any]) -> None:
    named, takes_any = _parameters(make)
    for argument in arguments:
        if not takes_any and argument not in named:
            raise ConfigError(
                f"model_args: the model {name!r} takes no argument {argument!r}."
                f"{suggestion(argument, named)} It takes: {', '.join(named)}."
            )


def _accepted(make: type[LM], extras: dict[str, Any]) -> dict[str, Any]:
    """Run-wide settings such as the batch size go only to models that have a use for them."""
    named, takes_any = _parameters(make)
    return {k: v for k, v in extras.items() if takes_any or k in named}
