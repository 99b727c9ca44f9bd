// A server for `test_mcp_stdio`. Arguments: the folder with the packages, and which line of them (1 or 2).
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, line] = process.argv.slice(2);
const require = createRequire(pathToFileURL(`${folder}/x.js`));
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { z } = await load("zod");

const [{ McpServer }, { StdioServerTransport }] =
  line === "1"
    ? [await load("@modelcontextprotocol/sdk/server/mcp.js"), await load("@modelcontextprotocol/sdk/server/stdio.js")]
    : [await load("@modelcontextprotocol/server"), await load("@modelcontextprotocol/server/stdio")];

const server = new McpServer({ name: "fixture", version: "1.0.0" });
const shape = (fields) => (line === "1" ? fields : z.object(fields));
const text = (value) => ({ content: [{ type: "text", text: value }] });

server.registerTool("echo", { description: "Say it again.", inputSchema: shape({ text: z.string() }) }, ({ text: said }) =>
  text(said));
server.registerTool("fail", { description: "Raise.", inputSchema: shape({ why: z.string() }) }, ({ why }) => {
  throw new Error(why);
});
server.registerTool("large", { description: "As many letters.", inputSchema: shape({ size: z.number() }) }, ({ size }) =>
  text("x".repeat(size)));
server.registerTool("slow", { description: "Take a while.", inputSchema: shape({ seconds: z.number() }) }, async ({ seconds }) => {
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  return text("done");
});
await server.connect(new StdioServerTransport());
