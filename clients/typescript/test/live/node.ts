// Has the conversation with a server: node --experimental-websocket node.js ws://HOST:PORT/
import { converse } from "./conversation.js";

const url = process.argv[2];
if (url === undefined) {
  throw new Error("which server? node.js ws://HOST:PORT/");
}
await converse(url, "proto");
await converse(url, "json");
console.log("all went well");
