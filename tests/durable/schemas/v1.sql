-- A store as Toolcrib wrote it with schema 1: three calls, and a fourth that was running when it was killed.
CREATE TABLE schema_version (
    version INTEGER PRIMARY KEY,
    applied REAL NOT NULL
);

CREATE TABLE calls (
    seq            INTEGER PRIMARY KEY,
    id             TEXT NOT NULL UNIQUE,
    session        TEXT NOT NULL,
    principal      TEXT NOT NULL,
    origin         TEXT NOT NULL,
    tool           TEXT NOT NULL,
    requested      TEXT NOT NULL,
    decision       TEXT NOT NULL,
    rule           TEXT NOT NULL,
    arguments      TEXT NOT NULL,
    arguments_hash TEXT NOT NULL,
    definition     TEXT NOT NULL,
    outcome        TEXT NOT NULL,
    started        REAL NOT NULL,
    finished       REAL NOT NULL,
    latency_ms     REAL NOT NULL,
    result_bytes   INTEGER NOT NULL,
    result_hash    TEXT NOT NULL,
    prev           TEXT NOT NULL,
    hash           TEXT NOT NULL
);

CREATE TABLE intents (
    id     TEXT PRIMARY KEY,
    writer TEXT NOT NULL,
    call   TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE receipts (
    principal    TEXT NOT NULL,
    key          TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    call         TEXT NOT NULL,
    writer       TEXT NOT NULL,
    created      REAL NOT NULL,
    result       TEXT,
    PRIMARY KEY (principal, key)
) WITHOUT ROWID;

CREATE INDEX receipts_by_age ON receipts (created);

CREATE TABLE pins (
    source     TEXT NOT NULL,
    tool       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    definition TEXT NOT NULL,
    accepted   REAL NOT NULL,
    accepted_by TEXT NOT NULL,
    PRIMARY KEY (source, tool)
) WITHOUT ROWID;

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

INSERT INTO calls VALUES (1, 'call-1', 's1', 'ada', 'mcp', 'git__commit', 'git__commit', 'allow', 'mode autonomous', '{"message":"it''s done; ünï","n":1}', '61d8bea97b181d5acac119d51ff8d028c7ba19db60170b90f010718c39fa6c9f', 'e41fa651eed5a2eac85e4317b74ae5b762fd74640282211de3f7ef9f66e39dfd', 'ok', 1795271617.2429304, 1795271617.2429645, 0.034, 43, '976c152476d7d177adeafd10fb9d8b9b1d19af2c7a6175294e6d72825f0a8f89', '0000000000000000000000000000000000000000000000000000000000000000', '2b09ad67c0a64fb6779f591597c90872b328be4d9ddc5059f063bcc903e622ff');
INSERT INTO calls VALUES (2, 'call-2', 's1', 'ada', 'mcp', 'git__commit', 'git__commit', 'allow', 'mode autonomous', '{"message":"it''s done; ünï","n":2}', '21611ff4c393345a8bdd159888d52f38a89a3db02a73360e4fa64f168d6af386', 'e41fa651eed5a2eac85e4317b74ae5b762fd74640282211de3f7ef9f66e39dfd', 'timeout', 1795271617.248755, 1795271617.2487974, 0.042, 91, '98403653a7350ea38a53f12ffb6a1965b1519f2506801fbca0011197dfaa5f19', '2b09ad67c0a64fb6779f591597c90872b328be4d9ddc5059f063bcc903e622ff', 'c28732f5284bca907293df799b4fef4c1ff21da1d07d14e990cc047d727dc1f5');
INSERT INTO calls VALUES (3, 'call-3', 's1', 'ada', 'mcp', 'git__log', 'git__log', 'allow', 'mode autonomous', '{"message":"it''s done; ünï","n":3}', '5d2f8c8a143472509cb41bd54acbdb5e8a2aa096805e0fbe3e47c6ec929de414', 'a010309ce101a8df90204d9610f3ffdc0318e14b01380cf746dad5f80b8c5a40', 'ok', 1795271617.2522795, 1795271617.2523048, 0.025, 43, '976c152476d7d177adeafd10fb9d8b9b1d19af2c7a6175294e6d72825f0a8f89', 'c28732f5284bca907293df799b4fef4c1ff21da1d07d14e990cc047d727dc1f5', 'f8e00fc7f1f6ba3f36018d04f260c21b49abfe6030d76c8ab2c3a05cbd64a844');
INSERT INTO intents VALUES ('call-4', 'a030bf84eddbcff0', '{"id": "call-4", "session": "s1", "principal": "ada", "origin": "mcp", "tool": "git__commit", "requested": "git__commit", "decision": "allow", "rule": "mode autonomous", "arguments": "{\"message\":\"it''s done; \u00fcn\u00ef\",\"n\":4}", "arguments_hash": "9b250aa6e98ba121eead0ce577b4e74e5e18b1cb5b5e25d94e3496d36ae49312", "definition": "e41fa651eed5a2eac85e4317b74ae5b762fd74640282211de3f7ef9f66e39dfd", "started": 1795271617.2593265}');
INSERT INTO receipts VALUES ('ada', 'k1', '68', 'call-2', 'a030bf84eddbcff0', 1795271617.2534535, '{"content":[{"type":"text","text":"done"}],"structured_content":null,"error":null,"meta":{},"input_required":null}');
INSERT INTO receipts VALUES ('ada', 'k2', '68', 'call-4', 'a030bf84eddbcff0', 1795271617.2652543, NULL);
INSERT INTO pins VALUES ('git', 'log', '0101010101010101010101010101010101010101010101010101010101010101', '{"name":"log"}', 1.5, 'ada');
INSERT INTO meta VALUES ('head', '{"seq": 3, "hash": "f8e00fc7f1f6ba3f36018d04f260c21b49abfe6030d76c8ab2c3a05cbd64a844"}');
