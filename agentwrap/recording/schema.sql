-- The .agentlog file, format 1. Every table and view is explained in docs/format.md (a test compares the two).
-- `seal` is first on purpose: its only page is page 2, so the seal is found without trusting anything else.
CREATE TABLE seal(id INTEGER PRIMARY KEY CHECK (id = 1), data BLOB NOT NULL);
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE event(
  seq INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, kind TEXT NOT NULL, span TEXT, pid INTEGER,
  subject TEXT, verdict TEXT, data TEXT NOT NULL, leaf BLOB NOT NULL
);
CREATE INDEX event_kind ON event(kind);
CREATE TABLE span(
  id TEXT PRIMARY KEY, parent TEXT, kind TEXT NOT NULL, name TEXT, start_ns INTEGER, end_ns INTEGER,
  status TEXT, data TEXT
);
CREATE TABLE blob(sha256 BLOB PRIMARY KEY, size INTEGER NOT NULL, media TEXT, data BLOB);
CREATE TABLE part(
  seq INTEGER NOT NULL, role TEXT NOT NULL, ordinal INTEGER NOT NULL, sha256 BLOB NOT NULL,
  PRIMARY KEY(seq, role, ordinal)
) WITHOUT ROWID;
CREATE TABLE checkpoint(count INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, root BLOB NOT NULL, note TEXT NOT NULL);

CREATE VIEW process AS
  SELECT id AS span, parent, name, data ->> 'pid' AS pid, start_ns, end_ns, status, data ->> 'exe' AS exe,
    data -> 'argv' AS argv, data ->> 'cwd' AS cwd, data ->> 'execs' AS execs
  FROM span WHERE kind = 'process';
CREATE VIEW file_edit AS
  SELECT seq, at_ns, span, pid, subject AS path, data ->> 'change' AS change,
    coalesce(data ->> 'via', 'write') AS via, coalesce(data ->> 'klass', 'work') AS class,
    coalesce(data ->> '$.before.size', 0) AS before_size, coalesce(data ->> '$.after.size', 0) AS after_size,
    data ->> '$.before.sha256' AS before_sha256, data ->> '$.after.sha256' AS after_sha256,
    data -> 'writers' AS writers
  FROM event WHERE kind = 'file.edit';
CREATE VIEW connection AS
  SELECT e.seq, e.at_ns, e.span, e.pid, e.kind, e.data ->> 'family' AS family,
    coalesce(e.data ->> 'transport', iif(e.kind = 'net.decision', 'tcp', 'unknown')) AS transport,
    e.data ->> 'host' AS host, e.data ->> 'port' AS port,
    e.data ->> 'path' AS path, coalesce(e.data ->> 'count', 1) AS count, e.verdict,
    e.data ->> 'address' AS address, coalesce(c.data ->> 'protocol', e.data ->> 'protocol') AS protocol,
    coalesce(c.data ->> 'sni', e.data ->> 'sni') AS sni, e.data ->> 'rule' AS rule, e.data ->> 'by' AS by,
    e.data ->> 'connection' AS connection, c.end_ns, c.status AS ending,
    c.data ->> 'up_bytes' AS up_bytes, c.data ->> 'down_bytes' AS down_bytes
  FROM event e LEFT JOIN span c ON c.id = e.data ->> 'connection' AND c.kind = 'connection'
  WHERE e.kind IN ('net.connect', 'net.send', 'net.bind', 'net.listen', 'net.decision');
CREATE VIEW dns AS
  SELECT seq, at_ns, span, pid, data ->> iif(kind = 'dns.query', 'server', 'host') AS server,
    coalesce(data ->> 'port', 53) AS port, coalesce(data ->> 'transport', 'udp') AS transport,
    iif(kind = 'dns.query', json_array(data -> 'name'), data -> 'names') AS names, verdict,
    kind, data ->> 'qtype' AS qtype, data ->> 'rcode' AS rcode, data -> 'answers' AS answers, data ->> 'rule' AS rule,
    coalesce(data ->> 'count', 1) AS count
  FROM event WHERE kind IN ('dns.server', 'dns.query');
CREATE VIEW decision AS
  SELECT seq, at_ns, span, pid, kind, subject, verdict, data ->> 'why' AS why, data ->> 'rule' AS rule,
    data ->> 'by' AS by, data ->> 'change' AS change, coalesce(data ->> 'count', 1) AS count
  FROM event WHERE verdict IS NOT NULL;
CREATE VIEW policy AS
  SELECT seq, data ->> 'name' AS name, data ->> 'mode' AS mode, data ->> 'sha256' AS sha256, data -> 'layers' AS layers,
    data ->> 'text' AS text
  FROM event WHERE kind = 'policy';
CREATE VIEW gap AS
  SELECT seq, at_ns, span, data ->> 'what' AS what, data ->> 'cause' AS cause, data ->> 'could_hide' AS could_hide,
    data ->> 'from_ns' AS from_ns, data ->> 'to_ns' AS to_ns, data ->> 'detail' AS detail
  FROM event WHERE kind = 'gap';
CREATE VIEW coverage AS
  SELECT seq, data ->> 'what' AS what, data ->> 'tier' AS tier, data ->> 'mechanism' AS mechanism,
    coalesce(data ->> 'note', '') AS note
  FROM event WHERE kind = 'coverage';
CREATE VIEW body_piece AS
  WITH number(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n < 63)
  SELECT p.seq, iif(instr(p.role, '/'), substr(p.role, 1, instr(p.role, '/') - 1), p.role) AS role,
    p.ordinal * 4096 + outer_at.n * 64 + inner_at.n AS ordinal, piece.sha256, piece.size, piece.data
  FROM part p
    LEFT JOIN blob outer_list ON p.role LIKE '%/2' AND outer_list.sha256 = p.sha256
    JOIN number outer_at ON outer_at.n < iif(p.role LIKE '%/2', length(outer_list.data) / 32, 1)
    LEFT JOIN blob inner_list ON inner_list.sha256 =
      iif(p.role LIKE '%/2', substr(outer_list.data, outer_at.n * 32 + 1, 32), iif(p.role LIKE '%/1', p.sha256, NULL))
    JOIN number inner_at ON inner_at.n < iif(p.role LIKE '%/_', length(inner_list.data) / 32, 1)
    LEFT JOIN blob piece ON piece.sha256 =
      iif(p.role LIKE '%/_', substr(inner_list.data, inner_at.n * 32 + 1, 32), p.sha256);
CREATE VIEW agent AS
  SELECT id AS agent, parent, name, start_ns, end_ns, data ->> 'process' AS span, data ->> 'pid' AS pid,
    data ->> 'api' AS api, data ->> 'model' AS model, data ->> 'session' AS session,
    coalesce(data ->> 'joined', 'first') AS joined, data ->> 'calls' AS calls
  FROM span WHERE kind = 'agent';
CREATE VIEW turn AS
  SELECT id AS turn, parent AS agent, name AS model, start_ns, end_ns, data ->> 'calls' AS calls,
    data ->> 'tools' AS tools
  FROM span WHERE kind = 'turn';
CREATE VIEW model_call AS
  SELECT id AS call, parent AS turn, data ->> 'agent' AS agent, data ->> 'process' AS span, data ->> 'pid' AS pid,
    data ->> 'api' AS api, data ->> 'host' AS host, data ->> 'asked_model' AS asked_model, data ->> 'model' AS model,
    coalesce(data ->> 'stream', 0) AS stream, coalesce(data ->> 'transport', 'http') AS transport,
    data ->> 'connection' AS connection, coalesce(data ->> 'attempt', 1) AS attempt, data ->> 'retry_of' AS retry_of,
    start_ns, data ->> 'headers_ns' AS headers_ns, data ->> 'first_token_ns' AS first_token_ns, end_ns, status,
    data ->> 'ending' AS ending, data ->> 'http_status' AS http_status, data ->> 'stop' AS stop,
    data ->> 'error' AS error, data ->> 'retry_after' AS retry_after, data ->> 'input_tokens' AS input_tokens,
    data ->> 'cache_read_tokens' AS cache_read_tokens, data ->> 'cache_write_tokens' AS cache_write_tokens,
    data ->> 'output_tokens' AS output_tokens, data ->> 'reasoning_tokens' AS reasoning_tokens,
    data ->> 'cost_usd' AS cost_usd, data ->> 'prices' AS prices, coalesce(data ->> 'tool_calls', 0) AS tool_calls,
    data ->> 'request_bytes' AS request_bytes, data ->> 'response_bytes' AS response_bytes,
    data ->> 'request_seq' AS request_seq, data ->> 'response_seq' AS response_seq
  FROM span WHERE kind = 'model';
CREATE VIEW tool_call AS
  SELECT s.id AS tool, s.parent AS turn, s.data ->> 'call' AS call, s.data ->> 'agent' AS agent,
    s.data ->> 'process' AS span, s.data ->> 'pid' AS pid, s.name, s.data ->> 'id' AS id,
    asked.data ->> 'arguments' AS arguments, coalesce(s.data ->> 'provider_side', 0) AS provider_side,
    s.start_ns, s.end_ns, s.status, s.data ->> 'size' AS size, told.data ->> 'text' AS text,
    s.data ->> 'call_seq' AS call_seq, s.data ->> 'result_seq' AS result_seq
  FROM span s LEFT JOIN event asked ON asked.seq = s.data ->> 'call_seq'
    LEFT JOIN event told ON told.seq = s.data ->> 'result_seq'
  WHERE s.kind = 'tool';
CREATE VIEW http_exchange AS
  SELECT seq, at_ns, span, pid, data ->> 'exchange' AS exchange, data ->> 'connection' AS connection,
    coalesce(data ->> 'scheme', 'https') AS scheme, data ->> 'host' AS host, data ->> 'port' AS port,
    data ->> 'method' AS method, data ->> 'path' AS path, coalesce(data ->> 'status', 0) AS status,
    data ->> 'requested_ns' AS requested_ns, data ->> 'headers_ns' AS headers_ns,
    coalesce(data ->> 'ending', 'complete') AS ending, data ->> 'detail' AS detail,
    coalesce(data ->> '$.request.size', 0) AS request_bytes, coalesce(data ->> '$.response.size', 0) AS response_bytes
  FROM event WHERE kind = 'http.exchange';
CREATE VIEW claim AS
  SELECT seq, at_ns, span, pid, data ->> 'said' AS said, data ->> 'name' AS name, data ->> 'id' AS id,
    data ->> 'parent' AS parent, data ->> 'status' AS status, data ->> 'told_ns' AS told_ns, data ->> 'data' AS data
  FROM event WHERE kind = 'claim';
CREATE VIEW mcp_session AS
  SELECT id AS session, parent AS span, data ->> 'pid' AS pid, data ->> 'server' AS server,
    coalesce(data ->> 'transport', 'stdio') AS transport, coalesce(data ->> 'how', 'config') AS how,
    data ->> 'config' AS config, data -> 'command' AS command, data ->> 'url' AS url,
    data ->> 'protocol' AS protocol, data ->> 'client_name' AS client_name,
    data ->> 'client_version' AS client_version, data ->> 'server_name' AS server_name,
    data ->> 'server_version' AS server_version, start_ns, end_ns, status AS ending,
    iif(end_ns IS NULL, NULL, coalesce(data ->> 'messages', 0)) AS messages,
    iif(end_ns IS NULL, NULL, coalesce(data ->> 'up_bytes', 0)) AS up_bytes,
    iif(end_ns IS NULL, NULL, coalesce(data ->> 'down_bytes', 0)) AS down_bytes
  FROM span WHERE kind = 'session';
CREATE VIEW mcp_call AS
  SELECT s.id AS call, s.data ->> 'session' AS session, s.data ->> 'server' AS server, s.data ->> 'process' AS span,
    s.data ->> 'pid' AS pid, coalesce(s.data ->> 'up', 1) AS up, s.data ->> 'method' AS method,
    s.data ->> 'tool' AS tool, s.data ->> 'id' AS id, coalesce(s.data ->> 'modern', 0) AS modern,
    asked.data ->> 'arguments' AS arguments, s.data ->> 'digest' AS digest, s.data ->> 'tool_call' AS tool_call,
    s.data ->> 'joined' AS joined, s.data ->> 'retry_of' AS retry_of, s.data ->> 'agent' AS agent,
    s.data ->> 'on_behalf_of' AS on_behalf_of, s.start_ns, s.end_ns, s.status AS ending, s.data ->> 'error' AS error,
    s.data ->> 'size' AS size, s.data ->> 'result_digest' AS result_digest, told.data ->> 'text' AS text,
    s.data ->> 'claimed_ns' AS claimed_ns, s.data ->> 'decision' AS verdict, s.data ->> 'rule' AS rule,
    judged.data ->> 'why' AS why, s.data ->> 'ask' AS ask, s.data ->> 'call_seq' AS call_seq,
    s.data ->> 'decision_seq' AS decision_seq, s.data ->> 'result_seq' AS result_seq
  FROM span s LEFT JOIN event asked ON asked.seq = s.data ->> 'call_seq'
    LEFT JOIN event judged ON judged.seq = s.data ->> 'decision_seq'
    LEFT JOIN event told ON told.seq = s.data ->> 'result_seq'
  WHERE s.kind = 'mcp';
CREATE VIEW mcp_tool AS
  SELECT seq, at_ns, data ->> 'session' AS session, data ->> 'server' AS server, data ->> 'name' AS name,
    data ->> 'digest' AS digest, coalesce(data ->> 'change', 'new') AS change, data ->> 'before' AS before,
    data ->> 'pinned' AS pinned, data ->> 'shadows' AS shadows, data ->> 'description' AS description
  FROM event WHERE kind = 'mcp.tool';
CREATE VIEW mcp_message AS
  SELECT seq, at_ns, data ->> 'session' AS session, data ->> 'number' AS number, data ->> 'up' AS up,
    data ->> 'sort' AS sort, data ->> 'method' AS method, data ->> 'id' AS id, data ->> 'call' AS call,
    coalesce(data ->> 'ours', 0) AS ours, coalesce(data ->> 'passed', 1) AS passed,
    data ->> 'exchange' AS exchange, coalesce(data ->> 'piece', 0) AS piece,
    coalesce(data ->> '$.body.size', 0) AS bytes
  FROM event WHERE kind = 'mcp.message';
CREATE VIEW mcp_finding AS
  SELECT seq, at_ns, data ->> 'what' AS what, data ->> 'session' AS session, data ->> 'server' AS server,
    data ->> 'call' AS call, data ->> 'tool' AS tool, data ->> 'detail' AS detail
  FROM event WHERE kind = 'mcp.finding';
