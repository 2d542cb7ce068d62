// Has the conversation with a server, outside of browsers: node program.js ws://HOST:PORT/, and so for deno and bun.
import { converse } from "./conversation.js";

const url = process.argv[2];
if (url === undefined) {
  throw new Error("which server? program.js ws://HOST:PORT/");
}
await converse(url, "proto");
await converse(url, "json");
console.log("all went well");
