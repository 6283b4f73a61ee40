"""JSON Schema as Toolcrib uses it: validation, defaults, repair of arguments from models, examples.

The engine is jsonschema-rs (1 µs a call where python-jsonschema takes 230); this package adds limits that hold for
untrusted schemas and values, and errors that a model can act on.

    definition   measure (cost) ──► undeclared arguments refused ──► compiled ──► `ValidatorCache`, by the tool's digest
    call         repair ──► Validator.accept: limits of JSON, defaults, engine ──► FieldError for each defect

    cost        limits on schemas, before they are compiled
    nodes       navigation in a schema: `$ref`, `allOf`, types
    validator   the engine, with the limits around it
    errors      one `FieldError` for each error of the engine, without the value
    values      defaults, and an example of a call for the error
    repair      what a model wrote → what the schema means, where that is certain
    bundle      schemas of the operator, copied into the one that refers to them
"""

from .bundle import bundle
from .errors import FieldError, invalid_argument, join_path, split_path
from .json_limits import MAX_ARGUMENT_BYTES, MAX_ARGUMENT_DEPTH
from .nodes import json_type, type_in_words
from .repair import plain_check, repair
from .validator import Validator, ValidatorCache, compile_schema
from .values import example

__all__ = [
    "MAX_ARGUMENT_BYTES",
    "MAX_ARGUMENT_DEPTH",
    "FieldError",
    "Validator",
    "ValidatorCache",
    "bundle",
    "compile_schema",
    "example",
    "invalid_argument",
    "join_path",
    "json_type",
    "plain_check",
    "repair",
    "split_path",
    "type_in_words",
]
