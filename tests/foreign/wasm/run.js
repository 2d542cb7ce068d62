// Has the conversation with a server in Node: node --experimental-websocket run.js FOLDER URL REFUSING_URL
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [, , folder, url, refusing] = process.argv;
const { default: start, converse } = await import(pathToFileURL(join(folder, "wasm_conversation.js")));
await start({ module_or_path: readFileSync(join(folder, "wasm_conversation_bg.wasm")) });
await converse(url, refusing);
console.log("all went well");
// The WebSocket of Node keeps the process for a moment.
process.exit(0);
