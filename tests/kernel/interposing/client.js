// Starts the server with sockets, as Node does, and prints what it said and how it ended.
const { spawn } = require("child_process");
const [command, ...words] = process.argv.slice(2);
const child = spawn(command, words, { stdio: ["pipe", "pipe", "inherit"] });
let said = "", greeted = false;
child.stdout.on("data", (data) => {
  said += data;
  if (!greeted && said.includes("\n")) { greeted = true; child.stdin.write("hello\n"); }
  if (said.includes("echo hello\n")) child.stdin.end();
});
child.on("close", (status) => { process.stdout.write(said + status); });
