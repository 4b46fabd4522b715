"""The OpenAPI 3.1 description of the operations, made from what they are. Pure."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Any

import msgspec

from ...answers.documents import Document
from .operations import Nothing, Operation, Operations

__all__ = ["describe"]

_REF = "#/components/schemas/{name}"


def describe(operations: Operations) -> Document:
    """The description of `operations`."""
    taken = [kind for op in operations.all for kind in (op.query, op.body) if kind is not Nothing]
    kinds = list(dict.fromkeys(taken))
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    shapes = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, object]] = {}
    for operation in operations.all:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(
            operation, shapes, components
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "crabstore", "version": version("crabstore")},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


_ERROR: Document = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["kind", "exit", "message"],
            "properties": {
                "kind": {"type": "string"},
                "exit": {"type": "integer"},
                "message": {"type": "string"},
            },
        }
    },
}


def _described(
    operation: Operation[Any, Any], shapes: dict[Any, dict[str, Any]], components: dict[str, Any]
) -> Document:
    media = "text/event-stream" if operation.streams else "application/json"
    media = "text/plain" if operation.path == "/metrics" else media
    described: Document = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_of_path(operation.path), *_of_query(operation, components)],
        "responses": {
            "200": {"description": "Done.", "content": {media: {}}},
            "default": {
                "description": "It was refused, or failed.",
                "content": {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}},
            },
        },
    }
    if operation.body is not Nothing:
        content = {"application/json": {"schema": shapes[operation.body]}}
        described["requestBody"] = {"required": True, "content": content}
    return described


def _of_path(path: str) -> list[Document]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _of_query(operation: Operation[Any, Any], components: dict[str, Any]) -> list[Document]:
    if operation.query is Nothing:
        return []
    shape = components[operation.query.__name__]
    required = shape.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": schema}
        for name, schema in shape["properties"].items()
    ]
