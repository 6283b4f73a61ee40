"""JSON Schema as Toolcrib uses it: check arguments, fill defaults, repair what models really send, show an example.

The engine is jsonschema-rs (1 µs a call where python-jsonschema takes 230); this package gives it limits that hold
for schemas and values from anybody, and errors that a model can act on.
"""

from .errors import FieldError
from .example import example
from .nodes import json_type
from .repair import repair
from .validator import (
    MAX_ARGUMENT_BYTES,
    MAX_ARGUMENT_DEPTH,
    Validator,
    ValidatorCache,
    compile_schema,
)

__all__ = [
    "MAX_ARGUMENT_BYTES",
    "MAX_ARGUMENT_DEPTH",
    "FieldError",
    "Validator",
    "ValidatorCache",
    "compile_schema",
    "example",
    "json_type",
    "repair",
]
