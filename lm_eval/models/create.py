"""Make the model a run asks for, and explain an argument it does not take."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping
from typing import Any

from lm_eval.api.model import LM
from lm_eval.api.registry import get_model, model_registry
from lm_eval.config.run import RunConfig
from lm_eval.errors import ConfigError, EvalError, ModelError, nearest, suggestion
from lm_eval.extras import EXTRAS
from lm_eval.models import PACKAGES


def check_model(run: RunConfig) -> None:
    """Raises for a model that does not exist or whose packages are missing; imports nothing."""
    if not isinstance(run.model, str):
        if not isinstance(run.model, LM):
            raise ModelError(
                f"model must be a name or an object derived from lm_eval.api.model.LM, "
                f"not {type(run.model).__name__}."
            )
        return
    if run.model not in model_registry:
        model_registry.get(run.model)  # raises, with the nearest names
    for package in PACKAGES.get(run.model, ()):
        if importlib.util.find_spec(package) is None:
            raise _missing_package(run.model, package)


def check_before_loading(run: RunConfig) -> None:
    """Raises for arguments and settings that the model's class refuses, before it is made."""
    if isinstance(run.model, str):
        make = _model_class(run.model)
        _check_arguments(run.model, make, run.model_args)
        make.check_before_loading(run.model_args, run.apply_chat_template)


def create_model(run: RunConfig) -> LM:
    """Returns the model object given, or one made from its name and arguments."""
    check_model(run)
    if isinstance(run.model, LM):
        return run.model
    make = _model_class(run.model)
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
            raise ConfigError(
                f"the model {run.model!r} must be told {' and '.join(missing)}: "
                f"--model_args {','.join(f'{name}=…' for name in missing)}."
                f"{_misspelt(missing[0], run.model_args)}"
            ) from error
        raise ModelError(
            f"the model {run.model!r} could not be made from {run.model_args}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _misspelt(missing: str, given: Mapping[str, Any]) -> str:
    """A sentence on the argument that was given and looks like the one that is missing."""
    close = nearest(missing, given, 1)
    return f" You passed {close[0]!r}; did you mean {missing!r}?" if close else ""


def _model_class(name: str) -> type[LM]:
    try:
        return get_model(name)
    except ModuleNotFoundError as error:
        raise _missing_package(name, str(error.name)) from error


def _missing_package(model: str, package: str) -> ModelError:
    extra = EXTRAS.get(package.partition(".")[0])
    remedy = f"pip install 'lm_eval[{extra}]'" if extra else f"install {package}"
    return ModelError(
        f"the model {model!r} needs the package {package!r}, which is not installed here: {remedy}."
    )


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
