"""APIs on the command line: added by their description, listed, described, removed."""

from typing import Any

import pytest

from toolcrib.config.own_file import read_apis

from .conftest import User


def description(**more: Any) -> dict[str, Any]:
    paths = {
        "/books": {"get": {"operationId": "books/list", "summary": "List books", "tags": ["books"]}},
        "/books/{id}": {"delete": {"operationId": "books/delete", "summary": "Delete a book", "tags": ["books"]}},
        "/shelves": {"post": {"operationId": "shelves/create", "summary": "Create a shelf", "tags": ["shelves"]}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Library REST API v3", "version": "3"},
        "servers": [{"url": "https://library.example/v3"}],
        "paths": paths,
        **more,
    }


@pytest.mark.slow
def test_an_api_is_added_with_one_word_listed_and_removed_again(user: User) -> None:
    file = user.has("project/library.json", description())
    added = user.reads("add", "openapi", "library.json")

    assert {key: added[key] for key in ("server", "tools", "state")} == {
        "server": "library",
        "tools": 3,
        "state": "ready",
    }
    assert read_apis(user.config) == {"library": {"spec": str(file), "base_url": "https://library.example/v3"}}
    listed = {tool["name"]: (tool["category"], tool["state"]) for tool in user.reads("tools")}
    assert listed["library__books_list"] == ("books", "ready")
    found = user.reads("find", "create a shelf")
    assert found[0]["name"] == "library__shelves_create"
    assert user.types("doctor", "--json").stdout.count('"API library"') == 1

    assert user.types("remove", "library").exit_code == 0
    assert read_apis(user.config) == {}


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("GitHub's official OpenAPI spec + Octokit extension", "github"),
        ("Swagger Petstore - OpenAPI 3.0", "swagger_petstore"),
        ("OpenAPI specification", "books"),
    ],
)
def test_an_api_is_named_by_what_its_title_says_else_by_its_file(user: User, title: str, name: str) -> None:
    user.has("project/books.json", description(info={"title": title, "version": "3"}))

    assert user.types("add", "openapi", "books.json", "--no-check").exit_code == 0
    assert list(read_apis(user.config)) == [name]


def test_operations_that_are_left_out_are_named_when_the_api_is_added(user: User) -> None:
    body = {"requestBody": {"content": {"application/json": {"schema": {"$ref": "models.yaml#/Pet"}}}}}
    paths = {"/pets": {"post": {"operationId": "addPet", **body}}}
    added = user.types("add", "openapi", str(user.has("library.json", description(paths=paths))))
    assert "POST /pets: not offered: models.yaml#/Pet is outside of the description" in added.stderr

    nothing = user.reads("add", "openapi", str(user.has("shop.json", description())), "--name", "b", "--include", "x")
    assert [text.partition(" (")[0] for text in nothing["problems"]] == ["b: include: 'x' fits no operation"]


def test_a_description_at_a_private_address_names_the_option_that_allows_it(user: User) -> None:
    refused = user.types("add", "openapi", "http://127.0.0.1:1/openapi.json")

    assert (refused.exit_code, "`--allow-private`" in refused.stderr) == (5, True)
    assert not user.config.exists()


def test_everything_that_can_be_said_is_written_down_and_secrets_are_not(
    user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBRARY_KEY", "very-secret-value")
    schemes = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
    file = user.has("library.json", description(components={"securitySchemes": schemes}))
    words = (
        "--name",
        "books",
        "--base-url",
        "https://other.example",
        "--auth-env",
        "LIBRARY_KEY",
        "--include",
        "books",
    )
    added = user.reads("add", "openapi", str(file), *words, "--header", "X-Team: a")

    assert added["tools"] == 2
    assert read_apis(user.config) == {
        "books": {
            "spec": str(file),
            "base_url": "https://other.example",
            "auth": {"type": "api_key", "value": "${LIBRARY_KEY}", "name": "X-Key", "in": "header"},
            "headers": {"X-Team": "a"},
            "include": ["books"],
        }
    }
    assert "very-secret-value" not in user.config.read_text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("missing.json",), "cannot be read: No such file or directory"),
        (("library.json", "--auth-env", "s3cret value"), "not the secret itself"),
        (("library.json", "--auth-env", "NOT_SET_ANYWHERE"), "the environment variable NOT_SET_ANYWHERE is not set"),
        (("nowhere.json",), "`base_url`"),
        (("swagger.json",), "convert it to OpenAPI 3 first"),
        (("http://127.0.0.1:9/openapi.json",), "127.0.0.1 is not a public address"),
    ],
)
def test_what_cannot_be_added_says_why_and_writes_nothing(user: User, words: tuple[str, ...], reason: str) -> None:
    user.has("project/library.json", description())
    user.has("project/nowhere.json", description(servers=[]))
    user.has("project/swagger.json", {"swagger": "1.2"})
    result = user.types("add", "openapi", *words)

    assert result.exit_code != 0
    assert reason in " ".join(result.stderr.split())
    assert not user.config.exists()


def test_an_api_does_not_take_the_name_of_another_nor_a_server_its_options(user: User) -> None:
    user.has("project/library.json", description())
    user.types("add", "openapi", "library.json")
    again = user.types("add", "openapi", "library.json")
    mixed = user.types("add", "x", "--base-url", "https://x.example", "--", "program")

    assert (again.exit_code, "has an API library already" in again.stderr) == (2, True)
    assert (mixed.exit_code, "are for `toolcrib add openapi`" in " ".join(mixed.stderr.split())) == (2, True)
