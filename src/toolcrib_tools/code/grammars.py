"""Grammars of the supported languages: file suffixes, queries for declarations, node types of names.

Grammars come with the extra `code`, a wheel each. One that is not installed takes nothing from the others: its
language is read as any other text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from os.path import splitext
from typing import Final

from msgspec import Struct
from tree_sitter import Language, Parser, Query

from toolcrib.plugin import ToolFailure

_SCRIPT: Final = """
(function_declaration name: (_) @name) @function
(generator_function_declaration name: (_) @name) @function
(class_declaration name: (_) @name) @class
(method_definition name: (_) @name) @method
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @function
(program (lexical_declaration (variable_declarator name: (identifier) @name) @constant))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @constant)))
"""
_TYPED: Final = f"""{_SCRIPT}
(abstract_class_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @interface
(type_alias_declaration name: (_) @name) @type
(enum_declaration name: (_) @name) @enum
(internal_module name: (_) @name) @module
(function_signature name: (_) @name) @function
(method_signature name: (_) @name) @method
(abstract_method_signature name: (_) @name) @method
"""
_C: Final = """
(function_declarator declarator: (identifier) @name) @function
(struct_specifier name: (_) @name body: (_)) @class
(union_specifier name: (_) @name body: (_)) @class
(enum_specifier name: (_) @name body: (_)) @enum
(type_definition declarator: (type_identifier) @name) @type
(preproc_def name: (_) @name) @constant
(preproc_function_def name: (_) @name) @function
(translation_unit (declaration (init_declarator declarator: (identifier) @name)) @constant)
"""

_ALIASES: Final[Mapping[str, str]] = {
    "c++": "cpp",
    "golang": "go",
    "js": "javascript",
    "jsx": "javascript",
    "py": "python",
    "rb": "ruby",
    "rs": "rust",
    "sh": "bash",
    "shell": "bash",
    "ts": "typescript",
}


class LanguageSpec(Struct, frozen=True, kw_only=True):
    """One language."""

    module: str
    suffixes: Sequence[str]
    names: Sequence[str]
    """Node types that hold a name."""
    definitions: str
    """A query: every pattern captures a `@name` and what it names, under its kind; `@scope` only encloses."""
    function: str = "language"
    """Function of the module that returns the grammar."""
    frames: Sequence[str] = ("{}",)
    """Surroundings in which a fragment is parsed, tried in order."""


LANGUAGES: Final[Mapping[str, LanguageSpec]] = {
    "python": LanguageSpec(
        module="tree_sitter_python",
        suffixes=(".py", ".pyi"),
        names=("identifier",),
        definitions="""
(function_definition name: (_) @name) @function
(class_definition name: (_) @name) @class
(module (expression_statement (assignment left: (identifier) @name) @constant))
(class_definition body: (block (expression_statement (assignment left: (identifier) @name) @constant)))
""",
        frames=("{}", "class _C:\n {}"),
    ),
    "javascript": LanguageSpec(
        module="tree_sitter_javascript",
        suffixes=(".js", ".jsx", ".mjs", ".cjs"),
        names=("identifier", "property_identifier", "shorthand_property_identifier", "private_property_identifier"),
        definitions=_SCRIPT,
        frames=("{}", "class C {{ {} }}", "({})"),
    ),
    "typescript": LanguageSpec(
        module="tree_sitter_typescript",
        function="language_typescript",
        suffixes=(".ts", ".mts", ".cts"),
        names=("identifier", "property_identifier", "shorthand_property_identifier", "type_identifier"),
        definitions=_TYPED,
        frames=("{}", "class C {{ {} }}", "({})"),
    ),
    "tsx": LanguageSpec(
        module="tree_sitter_typescript",
        function="language_tsx",
        suffixes=(".tsx",),
        names=("identifier", "property_identifier", "shorthand_property_identifier", "type_identifier"),
        definitions=_TYPED,
        frames=("{}", "class C {{ {} }}", "({})"),
    ),
    "go": LanguageSpec(
        module="tree_sitter_go",
        suffixes=(".go",),
        names=("identifier", "field_identifier", "type_identifier", "package_identifier"),
        definitions="""
(function_declaration name: (_) @name) @function
(method_declaration receiver: (parameter_list (parameter_declaration type: [
  (type_identifier) @owner (pointer_type (type_identifier) @owner)])) name: (_) @name) @method
(type_spec name: (_) @name type: (struct_type)) @class
(type_spec name: (_) @name type: (interface_type)) @interface
(source_file (const_declaration (const_spec name: (_) @name) @constant))
(source_file (var_declaration (var_spec name: (_) @name) @constant))
""",
        frames=("package p\nfunc f() {{\n{}\n}}", "package p\n{}"),
    ),
    "rust": LanguageSpec(
        module="tree_sitter_rust",
        suffixes=(".rs",),
        names=("identifier", "field_identifier", "type_identifier"),
        definitions="""
(function_item name: (_) @name) @function
(function_signature_item name: (_) @name) @function
(struct_item name: (_) @name) @class
(union_item name: (_) @name) @class
(enum_item name: (_) @name) @enum
(trait_item name: (_) @name) @interface
(type_item name: (_) @name) @type
(const_item name: (_) @name) @constant
(static_item name: (_) @name) @constant
(mod_item name: (_) @name) @module
(macro_definition name: (_) @name) @function
(impl_item type: (_) @name) @scope
""",
        frames=("{}", "fn f() {{\n{}\n}}", "fn f() {{\n{};\n}}", "impl S {{ {} }}"),
    ),
    "java": LanguageSpec(
        module="tree_sitter_java",
        suffixes=(".java",),
        names=("identifier", "type_identifier"),
        definitions="""
(class_declaration name: (_) @name) @class
(record_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @interface
(annotation_type_declaration name: (_) @name) @interface
(enum_declaration name: (_) @name) @enum
(method_declaration name: (_) @name) @method
(constructor_declaration name: (_) @name) @method
(field_declaration declarator: (variable_declarator name: (_) @name)) @constant
""",
        frames=("{}", "class C {{ {} }}", "class C {{ void m() {{ {} }} }}", "class C {{ void m() {{ {}; }} }}"),
    ),
    "c": LanguageSpec(
        module="tree_sitter_c",
        suffixes=(".c", ".h"),
        names=("identifier", "field_identifier", "type_identifier"),
        definitions=_C,
        frames=("{}", "void f() {{ {} }}", "void f() {{ {}; }}"),
    ),
    "cpp": LanguageSpec(
        module="tree_sitter_cpp",
        suffixes=(".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"),
        names=("identifier", "field_identifier", "type_identifier", "namespace_identifier"),
        definitions=f"""{_C}
(class_specifier name: (_) @name body: (_)) @class
(namespace_definition name: (_) @name) @module
(function_declarator declarator: (field_identifier) @name) @method
(function_declarator declarator: (qualified_identifier scope: (_) @owner name: (identifier) @name)) @method
(alias_declaration name: (_) @name) @type
""",
        frames=("{}", "void f() {{ {} }}", "void f() {{ {}; }}", "class C {{ {} }};"),
    ),
    "ruby": LanguageSpec(
        module="tree_sitter_ruby",
        suffixes=(".rb", ".rake"),
        names=("identifier", "constant", "instance_variable"),
        definitions="""
(method name: (_) @name) @method
(singleton_method name: (_) @name) @method
(class name: (_) @name) @class
(module name: (_) @name) @module
(assignment left: (constant) @name) @constant
""",
    ),
    "bash": LanguageSpec(
        module="tree_sitter_bash",
        suffixes=(".sh", ".bash"),
        names=("word", "variable_name"),
        definitions="""
(function_definition name: (_) @name) @function
(program (variable_assignment name: (_) @name) @constant)
""",
    ),
    "json": LanguageSpec(
        module="tree_sitter_json",
        suffixes=(".json",),
        names=("string_content",),
        definitions="(document (object (pair key: (string (string_content) @name)) @constant))",
    ),
}
_BY_SUFFIX: Final = {suffix: name for name, spoken in LANGUAGES.items() for suffix in spoken.suffixes}


class Grammar(Struct, frozen=True, kw_only=True):
    """A language, ready to parse. Shared by all threads: a parser is made for each piece of work."""

    spoken: LanguageSpec
    language: Language
    definitions: Query
    names: Query
    """Captures every name as `@name`."""

    def parser(self) -> Parser:
        """Return a parser; for one thread."""
        return Parser(self.language)


def language_of(path: str) -> str | None:
    """Return the language of a file by its name; None for one that is not parsed, or not here."""
    name = _BY_SUFFIX.get(splitext(path)[1].lower())
    return name if name is not None and _is_here(name) else None


def language_by_name(name: str) -> str:
    """Return our word for a language. Raises `ToolFailure` for one that is not known."""
    lowered = name.lower().lstrip(".")
    found = _ALIASES.get(lowered, lowered)
    if found not in LANGUAGES:
        raise ToolFailure("invalid_arguments", f"there is no language {name!r}", hint=f"there are {spoken_here()}")
    return found


def spoken_here() -> str:
    """Return the languages whose grammar is installed, for a message."""
    return ", ".join(name for name in LANGUAGES if _is_here(name)) or "none: install toolcrib[code]"


@cache
def grammar(name: str) -> Grammar:
    """Return the grammar of a language. Raises `ToolFailure` naming what to install when it is missing."""
    spoken = LANGUAGES[name]
    if not _is_here(name):
        raise ToolFailure(
            "unavailable",
            f"the grammar of {name} is not installed",
            hint="the operator can install the extra `code`",
        )
    # The table names the module: one grammar a wheel, and a missing wheel must not break the other languages.
    pointer: object = getattr(import_module(spoken.module), spoken.function)()
    language = Language(pointer)
    names = " ".join(f"({kind})" for kind in spoken.names)
    return Grammar(
        spoken=spoken,
        language=language,
        definitions=Query(language, spoken.definitions),
        names=Query(language, f"[{names}] @name"),
    )


@cache
def _is_here(name: str) -> bool:
    return find_spec(LANGUAGES[name].module) is not None
