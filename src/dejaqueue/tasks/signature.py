"""What a function takes and gives, as JSON: by the types that its signature names.

Room: tasks. Values only; knows no message.
Holds: what `arguments_json` makes `arguments` reads back as values of the named types; what JSON
cannot say is refused where it is sent, with the argument's name; pickle is never used.
See: docs/guides/tasks.md, Arguments.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from dejaqueue.errors import BadRequest

_PLAIN = (str, int, float, bool, type(None))
"""Types whose values JSON has as they are."""
_SAYABLE = "a value that JSON can say, or of a type that the signature names; pickle is not used"


class Signature:
    """The arguments and the result of one task.

    Args:
        name: of the task, for errors.
        function: whose annotations say the types; what has none takes what JSON gives.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._signature = inspect.signature(function)
        self._names = _names_of(self._signature)
        self._required = {
            field
            for field, parameter in self._signature.parameters.items()
            if parameter.default is inspect.Parameter.empty
        }
        hints = typing.get_type_hints(function)
        self._adapters: dict[str, TypeAdapter[Any]] = {}
        self._plain: dict[str, type] = {}
        for field, parameter in self._signature.parameters.items():
            if field not in hints or hints[field] is Any:
                continue
            hint = hints[field]
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                hint = list[hint]  # type: ignore[valid-type]
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                hint = dict[str, hint]  # type: ignore[valid-type]
            if hint in _PLAIN:
                self._plain[field] = hint
            self._adapters[field] = self._adapter(field, hint)
        returns = hints.get("return", Any)
        self._result = None if returns is Any else self._adapter("return", returns)

    def _adapter(self, field: str, hint: Any) -> TypeAdapter[Any]:
        try:
            return TypeAdapter(hint)
        except PydanticSchemaGenerationError:
            limit = "a type of JSON, a dataclass or a pydantic model; pickle is not used"
            raise BadRequest(f"type of {field} of task {self._name}", limit, hint) from None

    def arguments_json(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by their names, as values of JSON. Raises BadRequest."""
        given: dict[str, Any] = {**dict(zip(self._names, args, strict=False)), **kwargs}
        if len(given) != len(args) + len(kwargs) or not self._fits(given):
            try:
                given = self._signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise BadRequest(f"arguments of task {self._name}", str(error), args) from None
        return {field: self._said(field, value) for field, value in given.items()}

    def _said(self, field: str, value: Any) -> Any:
        plain = self._plain.get(field)
        if plain is not None and type(value) is plain:
            return value
        adapter = self._adapters.get(field)
        try:
            if adapter is None:
                return to_jsonable_python(value)
            return adapter.dump_python(adapter.validate_python(value), mode="json")
        except ValidationError as error:
            limit = _first_of(error)
            raise BadRequest(f"argument {field} of task {self._name}", limit, value) from None
        except (PydanticSerializationError, UnicodeDecodeError):
            raise BadRequest(f"argument {field} of task {self._name}", _SAYABLE, value) from None

    def arguments(
        self, said: Mapping[str, Any], *, is_whole: bool = False
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that were sent, as the function takes them.

        Args:
            is_whole: True = with the defaults of those that the call left out.

        Raises:
            BadRequest: they do not fit the function, which has changed since they were sent.
        """
        values: dict[str, Any] = {}
        for field, value in said.items():
            if field not in self._signature.parameters:
                limit = f"one of {', '.join(self._signature.parameters) or 'none'}"
                raise BadRequest(f"argument of task {self._name}", limit, field)
            plain = self._plain.get(field)
            adapter = self._adapters.get(field)
            if adapter is None or (plain is not None and type(value) is plain):
                values[field] = value
                continue
            try:
                # As text: what JSON cannot tell apart (a date, bytes) comes back from its words.
                values[field] = adapter.validate_python(value)
            except ValidationError as error:
                limit = _first_of(error)
                raise BadRequest(f"argument {field} of task {self._name}", limit, value) from None
        if not is_whole and self._fits(values):
            args = []
            for field in self._names:
                if field not in values:
                    break
                args.append(values.pop(field))
            return tuple(args), values
        bound = inspect.BoundArguments(self._signature, values)
        try:
            self._signature.bind(*bound.args, **bound.kwargs)
        except TypeError as error:
            raise BadRequest(f"arguments of task {self._name}", str(error), list(said)) from None
        if is_whole:
            bound.apply_defaults()
        return bound.args, bound.kwargs

    def _fits(self, given: Mapping[str, Any]) -> bool:
        """True if the function takes these, and nothing more has to be looked at.

        `bind` of the standard library knows all that a signature may have, and took a quarter of
        the processor time of a worker whose tasks do nothing.
        """
        named = self._names
        return given.keys() <= named.keys() and self._required <= given.keys()

    def result_json(self, value: Any) -> Any:
        """A result as a value of JSON. Raises BadRequest."""
        try:
            if self._result is None:
                return to_jsonable_python(value)
            return self._result.dump_python(value, mode="json", warnings="error")
        except (PydanticSerializationError, UnicodeDecodeError):
            raise BadRequest(f"result of task {self._name}", _SAYABLE, value) from None

    def result(self, said: Any) -> Any:
        """A result that was kept, as the type that the function names."""
        return said if self._result is None else self._result.validate_python(said)


def _names_of(signature: inspect.Signature) -> dict[str, None]:
    """The names of arguments that can be given by place and by name, in their order; none if a
    signature has others: these are then left to `bind`."""
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if kinds - {inspect.Parameter.POSITIONAL_OR_KEYWORD}:
        return {}
    return dict.fromkeys(signature.parameters)


def _first_of(error: ValidationError) -> str:
    """What pydantic says of the first thing that is wrong, on one line."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(one) for one in first["loc"])
    return f"{place}: {first['msg']}" if place else str(first["msg"])
