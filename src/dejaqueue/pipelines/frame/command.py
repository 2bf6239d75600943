"""A pipeline's command line, made from its options.

Room: pipelines. click; the pipeline's module, not Spark.
Holds: standard output carries the figures alone; the exit status is that of `dejaq`: 0 done, 1 what
was looked at is not good (or anything else), 2 wrong call, and those of errors.py.
See: cli/pipeline.py, where `dejaq pipeline` finds these commands.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin

import click
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from dejaqueue.errors import DejaQError
from dejaqueue.pipelines.frame.failures import as_ours, is_sparks
from dejaqueue.pipelines.frame.options import PipelineOptions, Shown, flag
from dejaqueue.pipelines.frame.pipeline import Outcome, Pipeline, Run
from dejaqueue.pipelines.frame.session import Session, parse_settings

EXIT_NOT_GOOD = 1
EXIT_INTERRUPTED = 130
_LAST = tuple(PipelineOptions.model_fields)
"""What every pipeline has comes after what this one has."""


def make_command(pipeline: Pipeline[Any]) -> click.Command:
    """The command of a pipeline."""
    fields = pipeline.options.model_fields
    own = [name for name in fields if name not in _LAST]
    params: list[click.Parameter] = [_option(name, fields[name]) for name in (*own, *_LAST)]
    params += [
        click.Option(
            ["--master"], metavar="MASTER", default="", envvar="SPARK_MASTER", show_envvar=True,
            help="Where Spark runs: spark://…, yarn, k8s://…, sc://… (Connect), local[4].  "
            "[default: as spark-submit says, or local[*] on loopback alone]",
        ),
        click.Option(
            ["--conf"], metavar="NAME=VALUE", multiple=True, help="A setting of Spark; repeat it.",
        ),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object."),
        click.Option(["--debug"], is_flag=True, help="Show Spark's log, and errors whole."),
    ]  # fmt: skip

    def callback(
        *, master: str, conf: tuple[str, ...], as_json: bool, debug: bool, **given: Any
    ) -> int:
        typed = {name: value for name, value in given.items() if value != ()}
        options = pipeline.options.of(typed)
        settings = {**pipeline.needs(options), **parse_settings(conf)}
        session = Session(f"dejaq {pipeline.name}", master, settings, is_loud=debug)
        with Run(session=session) as run:
            try:
                outcome = pipeline.run(options, run)
            except Exception as error:
                if debug or not is_sparks(error):
                    raise
                raise as_ours(error) from None
        _print(outcome, as_json=as_json)
        return 0 if outcome.is_good else EXIT_NOT_GOOD

    return click.Command(
        pipeline.name,
        callback=callback,
        params=params,
        help=pipeline.run.__doc__,
        epilog=pipeline.epilog,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )


def main(pipeline: Pipeline[Any]) -> NoReturn:
    """Run a pipeline as a program: `python -m dejaqueue.pipelines.NAME`, or by spark-submit."""
    try:
        status = make_command(pipeline).main(standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        status = _fail(error.format_message(), error.exit_code)
    except DejaQError as error:
        status = _fail(str(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        status = EXIT_INTERRUPTED
    sys.exit(status if isinstance(status, int) else 0)


def _fail(text: str, status: int) -> int:
    click.echo(f"error: {' '.join(text.split())}", err=True)
    return status


def _option(name: str, field: FieldInfo) -> click.Option:
    """The option of a field. Everything but flags is read as text, and checked by the model."""
    shown = next(_shown(field.metadata, field.annotation), Shown(""))
    kind = _plain(field.annotation)
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    default = None if field.default is PydanticUndefined else field.default
    is_repeated = get_origin(kind) is tuple and not shown.metavar.endswith("…")
    arguments: dict[str, Any] = {
        "help": field.description,
        "required": field.is_required(),
        "envvar": shown.variable or None,
        "show_envvar": bool(shown.variable),
    }
    if default not in (None, "", (), False):
        arguments["default"] = str(default)
    if kind is bool:
        return click.Option([flag(name), name], is_flag=True, **arguments)
    return click.Option(
        [flag(name), name],
        type=click.Choice([str(choice) for choice in choices]) if choices else str,
        metavar=shown.metavar or (None if choices else _metavar(kind)),
        multiple=is_repeated,
        show_default=True,
        **arguments,
    )


def _shown(metadata: Iterable[object], kind: Any) -> Iterator[Shown]:
    """How an option shows itself: what its type says, or a type inside of that."""
    yield from (part for part in metadata if isinstance(part, Shown))
    for inner in get_args(kind):
        yield from _shown(getattr(inner, "__metadata__", ()), inner)


def _plain(kind: Any) -> Any:
    """A type without `| None`."""
    if get_origin(kind) in (Union, UnionType):
        return next(part for part in get_args(kind) if part is not type(None))
    return kind


def _metavar(kind: Any) -> str:
    return {int: "NUMBER", float: "NUMBER"}.get(kind, "TEXT")


def _flat(figures: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Figures one by one: of a list of things each with its number, its values on one line."""
    for name, value in figures.items():
        if isinstance(value, list):
            for number, one in enumerate(value, 1):
                yield f"{name}_{number}", " ".join(map(str, one.values()))
        else:
            yield name, value


def _print(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(dict(outcome.figures), ensure_ascii=False, separators=(",", ":")))
        return
    for name, value in _flat(outcome.figures):
        shown = f"{value:.3f}" if isinstance(value, float) else "-" if value is None else value
        click.echo(f"{name} {shown}")
