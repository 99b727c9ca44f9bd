// Reads and checks an .agentlog with nothing but docs/format.md: Node's standard library and the `sqlite3` command.
//   node independent_reader.mjs FILE [PUBLIC_KEY_FILE]     prints one JSON object; exit 0 if all holds, 1 if not
import { execFileSync } from "node:child_process";
import { createHash, createPublicKey, verify } from "node:crypto";
import { readFileSync } from "node:fs";

const [file, keyFile] = process.argv.slice(2);
const sha256 = (...pieces) => pieces.reduce((hash, piece) => hash.update(piece), createHash("sha256")).digest();
const ask = (sql) => {
  const options = ["-readonly", "-json", `file:${encodeURI(file)}?immutable=1`, sql];
  const text = execFileSync("sqlite3", options, { maxBuffer: 1 << 30 }).toString("utf8");
  return text.trim() ? JSON.parse(text) : [];
};
const bytes = (hex) => Buffer.from(hex ?? "", "hex");
const net = (value) => {
  const raw = Buffer.isBuffer(value) ? value : Buffer.from(String(value), "utf8");
  return Buffer.concat([Buffer.from(`${raw.length}:`), raw, Buffer.from(",")]);
};
const column = (hex, type) => (type === "null" ? Buffer.from("~") : net(bytes(hex)));

// Section 6: envelopes and leaves. Columns come as hex of their text, so nothing of JSON's is in between.
const names = ["seq", "at_ns", "kind", "span", "pid", "subject", "verdict", "data"];
const asked = names.map((n) => `hex(CAST(${n} AS BLOB)) AS ${n}, typeof(${n}) AS t_${n}`).join(", ");
const parts = new Map();
for (const p of ask("SELECT seq, role, ordinal, lower(hex(sha256)) AS sha FROM part ORDER BY seq, role, ordinal")) {
  parts.set(p.seq, [...(parts.get(p.seq) ?? []), net(p.role), net(p.ordinal), net(p.sha)]);
}
const leaves = [];
let leavesHold = true;
for (const row of ask(`SELECT seq AS n, ${asked}, hex(leaf) AS leaf FROM event ORDER BY event.seq`)) {
  const envelope = Buffer.concat([...names.map((n) => column(row[n], row[`t_${n}`])), ...(parts.get(row.n) ?? [])]);
  const leaf = sha256(Buffer.from([0]), envelope);
  leavesHold &&= leaf.equals(bytes(row.leaf)) && row.n === leaves.length + 1;
  leaves.push(leaf);
}

// Section 6: the tree, by its definition.
const root = (list) => {
  if (list.length === 0) return sha256();
  if (list.length === 1) return list[0];
  let half = 1;
  while (half * 2 < list.length) half *= 2;
  return sha256(Buffer.from([1]), root(list.slice(0, half)), root(list.slice(half)));
};

// Section 6: meta and notes.
const meta = ask("SELECT hex(CAST(key AS BLOB)) AS key, hex(CAST(value AS BLOB)) AS value FROM meta").map((m) => [
  bytes(m.key),
  bytes(m.value),
]);
meta.sort((a, b) => Buffer.compare(a[0], b[0]));
const metaHash = sha256(Buffer.concat(meta.flatMap(([key, value]) => [net(key), net(value)])));
const runId = meta.find(([key]) => key.toString() === "run_id")[1].toString();
const publicRaw = keyFile ? Buffer.from(readFileSync(keyFile, "utf8").trim().split(" ")[1], "base64") : null;
const publicKey = publicRaw
  ? createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: publicRaw.toString("base64url") }, format: "jwk" })
  : null;

let rootsHold = true;
let metaHolds = true;
let signaturesHold = publicKey ? true : null;
let closed = false;
for (const { note } of ask("SELECT note FROM checkpoint ORDER BY count")) {
  const [body, tail] = note.split("\n\n");
  const signed = tail === undefined ? note : body + "\n";
  const [origin, count, rootText, , metaText, close] = signed.split("\n");
  rootsHold &&= Number(count) <= leaves.length && root(leaves.slice(0, Number(count))).toString("base64") === rootText;
  metaHolds &&= metaText === `meta ${metaHash.toString("base64")}` && origin === `agentwrap/${runId}`;
  closed = close === "close" && Number(count) === leaves.length;
  if (publicKey) {
    const [dash, name, encoded] = (tail ?? "").trimEnd().split(" ");
    const blob = Buffer.from(encoded ?? "", "base64");
    const hint = sha256(Buffer.from(`${name}\n`), Buffer.from([1]), publicRaw).subarray(0, 4);
    signaturesHold &&= dash === "\u2014" && name === origin && blob.subarray(0, 4).equals(hint) &&
      verify(null, Buffer.from(signed), publicKey, blob.subarray(4));
  }
}

// Section 3: contents. Section 5, "Bodies": a role with /1 or /2 behind it names lists of hashes.
const blobs = new Map();
let blobsHold = true;
for (const b of ask("SELECT lower(hex(sha256)) AS sha, size, hex(data) AS data, data IS NULL AS gone FROM blob")) {
  blobs.set(b.sha, b.gone ? null : bytes(b.data));
  blobsHold &&= b.gone === 1 || (sha256(bytes(b.data)).toString("hex") === b.sha && bytes(b.data).length === b.size);
}
let listsHold = true;
const named = new Set();
const pieces = (sha, depth) => {
  named.add(sha);
  const data = blobs.get(sha);
  listsHold &&= data !== undefined && (depth === 0 || (data?.length > 0 && data.length % 32 === 0));
  if (depth === 0 || !data) return [data ?? Buffer.alloc(0)];
  const inside = Array.from({ length: data.length / 32 }, (_, n) => data.toString("hex", n * 32, n * 32 + 32));
  return inside.flatMap((one) => pieces(one, depth - 1));
};
const bodies = {};
for (const p of ask("SELECT seq, role, lower(hex(sha256)) AS sha FROM part ORDER BY seq, role, ordinal")) {
  const [field, depth] = p.role.split("/");
  const key = `${p.seq} ${field}`;
  bodies[key] = Buffer.concat([bodies[key] ?? Buffer.alloc(0), ...pieces(p.sha, Number(depth ?? 0))]);
}
listsHold &&= [...blobs.keys()].every((sha) => named.has(sha));
for (const key of Object.keys(bodies)) bodies[key] = sha256(bodies[key]).toString("hex");

// Section 7: the seal, without SQLite.
const whole = readFileSync(file);
const pageSize = whole.readUInt16BE(16) === 1 ? 65536 : whole.readUInt16BE(16);
const at = whole.subarray(pageSize, 2 * pageSize).lastIndexOf("AGENTWRAP-SEAL-1") + pageSize + 16;
const kept = Buffer.from(whole.subarray(at, at + 96));
whole.fill(0, at, at + 96);
const digest = sha256(whole);
const seal = digest.equals(kept.subarray(0, 32));
const sealText = Buffer.from(`agentwrap/${runId}\nseal ${digest.toString("hex")}\n`);
const sealSigned = publicKey ? verify(null, sealText, publicKey, kept.subarray(32)) : null;

const result = {
  events: leaves.length, leaves: leavesHold, roots: rootsHold, meta: metaHolds, blobs: blobsHold, lists: listsHold,
  signatures: signaturesHold, closed, seal, sealSigned, bodies,
};
console.log(JSON.stringify(result));
process.exitCode = Object.values(result).includes(false) ? 1 : 0;
