"""Creates the model of a run, after checking its name and arguments."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping
from typing import Any, NoReturn

from lm_eval.api.instance import OUTPUT_TYPES
from lm_eval.api.model import LM, LengthCheck
from lm_eval.api.registry import get_model, model_registry
from lm_eval.config.run import RunConfig
from lm_eval.engine.workers.remote_model import RemoteLM
from lm_eval.errors import (
    ConfigError,
    EvalError,
    ModelError,
    UnknownNameError,
    as_original_type,
    describe_cause,
    nearest,
    raise_interrupt,
    suggestion,
)
from lm_eval.extras import EXTRAS, install_command
from lm_eval.models import NOT_YET, PACKAGES
from lm_eval.models.location import location_of
from lm_eval.redaction import hide_secrets


def check_model(run: RunConfig) -> None:
    """Raises if the model does not exist or a package that it needs is missing; imports nothing.

    `UnknownNameError` for an unknown name, `ModelError` for a missing package and for an object
    that is not an `LM`. A location (`file.py:Class`) is checked as by `ModelLocation.check`.
    """
    if not isinstance(run.model, str):
        if not isinstance(run.model, LM):
            raise ModelError(
                f"model must be a name or an instance of a subclass of lm_eval.api.model.LM, "
                f"not {type(run.model).__name__}."
            )
        return
    if run.model not in model_registry:
        if (location := location_of(run.model)) is not None:
            location.check()
            return
        _raise_unknown(run.model)
    for package in PACKAGES.get(run.model, ()):
        if importlib.util.find_spec(package) is None:
            raise _missing_package(run.model, package)


def check_before_loading(run: RunConfig) -> None:
    """Raises if the class of the model rejects the arguments, before the model is created.

    Imports the class. `ConfigError`, which is also a `TypeError`, for an argument that its
    constructor does not have, otherwise what its method `check_before_loading` raises. A model
    passed as an object is not checked.
    """
    if run.executor in ("processes", "ray"):
        from lm_eval.models.remote import check_workers

        check_workers(run)
    if isinstance(run.model, str):
        model_class = _model_class(run.model)
        _check_arguments(run.model, model_class, run.model_args)
        model_class.check_before_loading(run.model_args, run.apply_chat_template)


def length_check(run: RunConfig) -> LengthCheck | None:
    """Returns how to find requests that do not fit into the model of the run; None for no way."""
    by_name = isinstance(run.model, str)
    return _model_class(run.model).length_check(run.model_args) if by_name else None


def never_measured(run: RunConfig) -> dict[str, str]:
    """Returns the request types that no model of the run's class can answer, with the reasons.

    Empty if it would take long to import the class, or if its name is not registered.
    """
    if not isinstance(run.model, str):
        model_class = type(run.model)
    elif run.model not in model_registry or PACKAGES.get(run.model):
        return {}
    else:
        model_class = _model_class(run.model)
    reasons = {name: model_class.never_measures(name) for name in OUTPUT_TYPES}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def create_model(run: RunConfig) -> LM:
    """Returns the model of the run: the object given, or one created from its name and arguments.

    With an `executor` that starts workers, only these load the model, and the object returned
    stands in for it (`RemoteLM`); pass it to `close_model` in the end.

    Raises `ConfigError`, which is also a `TypeError`, for unknown or missing arguments. Raises
    `ModelError`, which is also an instance of the original type, if the constructor fails. Raises
    what `check_model` raises.
    """
    check_model(run)
    if run.executor in ("processes", "ray"):
        from lm_eval.models.remote import connect

        return connect(run)
    if isinstance(run.model, LM):
        return run.model
    model_class = _model_class(run.model)
    extras = {
        "batch_size": run.batch_size,
        "max_batch_size": run.max_batch_size,
        "device": run.device,
    }
    extras = {k: v for k, v in extras.items() if v is not None and k not in run.model_args}
    _check_arguments(run.model, model_class, run.model_args)
    accepted = _accepted_settings(model_class, extras)
    try:
        return model_class.create_from_arg_obj(run.model_args, accepted)
    except EvalError:
        raise
    except BaseException as error:  # third-party code may raise anything
        raise_interrupt(error)
        if isinstance(error, TypeError) and (
            missing := _missing_arguments(model_class, {**run.model_args, **accepted})
        ):
            required = ConfigError(
                f"the model {run.model!r} requires {' and '.join(missing)}: pass "
                f"--model_args {','.join(f'{name}=…' for name in missing)}."
                f"{_similar_argument(missing[0], run.model_args)}"
            )
            raise as_original_type(required, error) from error
        failed = ModelError(
            f"the model {run.model!r} could not be created with {hide_secrets(run.model_args)}: "
            f"{describe_cause(error)}"
        )
        if isinstance(error, SystemExit):
            raise failed from error
        raise as_original_type(failed, error) from error


def close_model(lm: LM) -> None:
    """Ends the workers of a model that `create_model` returned; does nothing for other models."""
    if isinstance(lm, RemoteLM):
        lm.close()


def _raise_unknown(model: str) -> NoReturn:
    """Raises `UnknownNameError` with the most similar names, and how to name a custom class."""
    try:
        model_registry.get(model)
    except UnknownNameError as error:
        custom = " A custom class is given as FILE.py:CLASS or package.module:CLASS."
        known = model in NOT_YET
        raise UnknownNameError(f"{error}{'' if known else custom}") from error
    raise AssertionError(f"{model} is registered")


def _similar_argument(missing: str, given: Mapping[str, Any]) -> str:
    """Returns a sentence with the given argument most like the missing one, or ""."""
    close = nearest(missing, given, 1)
    return f" You passed {close[0]!r}; did you mean {missing!r}?" if close else ""


def _model_class(name: str) -> type[LM]:
    """Returns the class that is registered as `name`, or that `name` locates (`file.py:Class`).

    Raises `ModelError` if a package that the class imports is missing, or if it is not a class
    derived from `LM`, and `UnknownNameError` for an unknown name.
    """
    if (location := location_of(name)) is not None:
        return location.load()
    try:
        found = get_model(name)
    except ModuleNotFoundError as error:
        raise _missing_package(name, str(error.name)) from error
    if not isinstance(found, type) or not issubclass(found, LM):
        raise ModelError(
            f"the model {name!r} ({model_registry.locations().get(name)}) is not a class derived "
            "from lm_eval.api.model.LM."
        )
    return found


def _missing_package(model: str, package: str) -> ModelError:
    extra = EXTRAS.get(package.partition(".")[0])
    remedy = install_command(extra) if extra else f"install {package}"
    return ModelError(
        f"the model {model!r} needs the package {package!r}, which is not installed: {remedy}."
    )


def _parameters(model_class: type[LM]) -> tuple[dict[str, inspect.Parameter], bool]:
    """Returns the named parameters of the constructor, and whether it accepts any keyword."""
    parameters = list(inspect.signature(model_class.__init__).parameters.values())[1:]
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return {p.name: p for p in named}, takes_any


def _missing_arguments(model_class: type[LM], arguments: Mapping[str, Any]) -> list[str]:
    """Returns the names of required constructor parameters that are not among `arguments`."""
    named, _ = _parameters(model_class)
    return [name for name, p in named.items() if p.default is p.empty and name not in arguments]


def _check_arguments(name: str, model_class: type[LM], arguments: dict[str, Any]) -> None:
    """Raises `ConfigError` for an argument that the constructor of the model does not have.

    It is also a `TypeError`, which calling the constructor would raise. A constructor with
    `**kwargs` accepts any argument. `name` is the name of the model, for the message.
    """
    named, takes_any = _parameters(model_class)
    for argument in arguments:
        if not takes_any and argument not in named:
            unknown = ConfigError(
                f"model_args: the model {name!r} takes no argument {argument!r}."
                f"{suggestion(argument, named)} Its arguments are: {', '.join(named) or 'none'}."
            )
            raise as_original_type(unknown, TypeError())


def _accepted_settings(model_class: type[LM], extras: dict[str, Any]) -> dict[str, Any]:
    """Returns those of `extras`, settings such as batch size and device, that a class accepts.

    All of them if its constructor has `**kwargs`.
    """
    named, takes_any = _parameters(model_class)
    return {k: v for k, v in extras.items() if takes_any or k in named}
