"""A collection as Bruno writes it: the fixture of the tests, every construct of its language in it.

`tests/unit/toolcrib_tools/test_services_bruno.py` has Bruno's own parser read the same files where npm can be had.
"""

from __future__ import annotations

from pathlib import Path

FILES = {
    "bruno.json": '{"version": "1", "name": "Shop", "type": "collection", "ignore": ["node_modules", "drafts"]}\n',
    "collection.bru": """meta {
  name: Shop
}

headers {
  X-Client: toolcrib
  Authorization: Bearer collection-secret
  ~X-Off: nobody
}

auth {
  mode: bearer
}

auth:bearer {
  token: {{token}}
}

vars:pre-request {
  version: v1
  host: http://collection.invalid
}

docs {
  # The shop

  Orders and what belongs to them.
}
""",
    "environments/Local.bru": """vars {
  host: {{scheme}}://{{server}}
  scheme: http
  server: SERVER
  token: local-secret
  page: 3
}
vars:secret [
  password,
  api_key
]
color: #CE4F3B
""",
    "environments/Prod.bru": """vars {
  host: https://shop.example
}
vars:secret [ password ]
""",
    "orders/folder.bru": """meta {
  name: orders
  seq: 1
}

headers {
  X-Area: orders
}

auth {
  mode: inherit
}

vars:pre-request {
  kind: rope
}
""",
    "orders/show.bru": """meta {
  name: Show order
  type: http
  seq: 2
  tags: [
    smoke
    read-only
  ]
}

get {
  url: {{host}}/{{version}}/orders/:id?full=true&page={{page}}
  body: none
  auth: inherit
}

params:query {
  full: true
  page: {{page}}
  ~trace: yes
  api_key: {{api_key}}
}

params:path {
  id: 7
}

headers {
  X-Area: one order
  "colon:header": a: b
  ~X-Client: other
}

script:pre-request {
  if (true) {
    bru.setVar("x", "{");
  }
}

tests {
  test("is there", function() {
    expect(res.status).to.equal(200);
  });
}

docs {
  Shows *one* order.
}
""",
    "orders/place.bru": """meta {
  name: Place order
  type: http
  seq: 1
}

post {
  url: {{host}}/{{version}}/orders
  body: json
  auth: basic
}

auth:basic {
  username: ann
  password: {{password}}
}

body:json {
  {
    "item": "{{kind}}",
    "count": {{count}},
    "password": "hunter2",
    "when": {
      "day": 1
    }
  }
}

assert {
  res.status: eq 201
  res.body.item: eq rope
}
""",
    "orders/place again.bru": """meta {
  name: Place two
  type: http
  seq: 3
}

post {
  url: {{host}}/{{version}}/orders
  body: json
  auth: basic
}

auth:basic {
  username: ann
  password: {{password}}
}

body:json {
  {"item": "sail", "count": 2}
}
""",
    "orders/upload.bru": """meta {
  name: Upload
  type: http
  seq: 4
}

put {
  url: {{host}}/{{version}}/orders/:id/file
  body: multipartForm
  auth: apikey
}

params:path {
  id: 7
}

auth:apikey {
  key: X-Key
  value: {{api_key}}
  placement: header
}

body:multipart-form {
  note: '''
    two
    lines
  '''
  scan: @file(scan.pdf)
}
""",
    "login.bru": """meta {
  name: Log in
  type: http
  seq: 1
}

post {
  url: {{host}}/login
  body: formUrlEncoded
  auth: none
}

body:form-urlencoded {
  user: ann
  password: hunter2
  ~remember: yes
}
""",
    "birds.bru": """meta {
  name: Birds
  type: graphql
  seq: 2
}

post {
  url: {{host}}/graphql
  body: graphql
  auth: oauth2
}

auth:oauth2 {
  grant_type: client_credentials
  access_token_url: {{host}}/token
  client_id: me
  client_secret: {{api_key}}
  scope: read write
}

body:graphql {
  query Birds($kind: String) {
    birds(kind: $kind) { name }
  }
}

body:graphql:vars {
  {"kind": "owl"}
}
""",
    "elsewhere.bru": """meta {
  name: Elsewhere
  type: http
  seq: 3
}

get {
  url: https://other.example/x
  body: none
  auth: none
}
""",
    "unknown host.bru": """meta {
  name: Unknown host
  type: http
  seq: 4
}

get {
  url: {{nowhere}}/x
  body: none
  auth: none
}
""",
    "stream.bru": """meta {
  name: Stream
  type: grpc
  seq: 5
}

grpc {
  url: {{host}}
  method: /birds.Birds/List
}
""",
}
"""By path. `SERVER` stands for the address of the test's server."""

BROKEN = "meta {\n  name: Broken\n\nget {\n"
"""A file that nobody can read."""


def write_collection(folder: Path, server: str) -> Path:
    """Write the collection below `folder`, with a broken file and an ignored one in it; return where it is."""
    home = folder / "collection"
    for name, text in {**FILES, "broken.bru": BROKEN, "drafts/idea.bru": BROKEN}.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("SERVER", server))
    return home
