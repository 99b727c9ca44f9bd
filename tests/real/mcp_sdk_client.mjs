// A client for `test_mcp_stdio`: what it is told by a server, as JSON.
// Arguments: the folder with the packages, which line of them (1 or 2), the server's command.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, line, command, ...args] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${folder}/x.js`));
const load = async (name) => import(pathToFileURL(require.resolve(name)));

const [{ Client }, { StdioClientTransport }] =
  line === "1"
    ? [await load("@modelcontextprotocol/sdk/client/index.js"), await load("@modelcontextprotocol/sdk/client/stdio.js")]
    : [await load("@modelcontextprotocol/client"), await load("@modelcontextprotocol/client/stdio")];

const TEXTS = ["plain", "a line\nand another", "\u2028 \u0085 \u{1f600} \u00e9", ""];
const client = new Client({ name: "fixture-client", version: "1.0.0" });
const textOf = (result) => result.content.map((part) => part.text).join("");
const call = async (name, parameters) => client.callTool({ name, arguments: parameters });
await client.connect(new StdioClientTransport({ command, args, stderr: "ignore" }));
const told = {};
told.tools = (await client.listTools()).tools.map((tool) => tool.name).sort();
told.echo = [];
for (const text of TEXTS) told.echo.push(textOf(await call("echo", { text })));
const numbers = [...Array(20).keys()];
told["at once"] = await Promise.all(numbers.map(async (number) => textOf(await call("echo", { text: `number ${number}` }))));
told.large = textOf(await call("large", { size: 1 << 20 })).length;
told.fail = (await call("fail", { why: "because" })).isError;
told.slow = textOf(await call("slow", { seconds: 0.05 }));
await client.close();
console.log(JSON.stringify(told));
