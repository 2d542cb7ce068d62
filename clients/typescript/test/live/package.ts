// Does what the README begins with in a project of its own, with the package as it would be published, and has the program call a
// server: node package.js PACKAGES ws://HOST:PORT/. PACKAGES is a node_modules with buf.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const [packages, url] = process.argv.slice(2);
assert(packages !== undefined && url !== undefined, "which packages, and which server? package.js PACKAGES ws://HOST:PORT/");
const client = fileURLToPath(new URL("../../../", import.meta.url));
const own = join(client, "node_modules");
const readme = readFileSync(join(client, "README.md"), "utf8");

function found(what: RegExp): string {
  const [, text] = what.exec(readme) ?? [];
  assert(text !== undefined, `the README has no ${what}`);
  return text;
}

const project = mkdtempSync(join(tmpdir(), "frpc-package-"));
function run(program: string, ...args: string[]): string {
  const env = { ...process.env, PATH: `${join(packages!, ".bin")}:${join(own, ".bin")}:${process.env["PATH"]}` };
  return execFileSync(program, args, { cwd: project, env, encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
}

try {
  // As npm would install it, without asking the registry.
  const at = join(project, "node_modules/frisbee-rpc");
  mkdirSync(at, { recursive: true });
  run("npm", "pack", "--silent", "--ignore-scripts", "--pack-destination", project, client);
  run("tar", "-xzf", "frisbee-rpc-0.1.0.tgz", "-C", at, "--strip-components", "1");
  symlinkSync(join(own, "@bufbuild"), join(project, "node_modules/@bufbuild"));
  writeFileSync(join(project, "package.json"), `{"type": "module"}`);

  const protos = join(client, "../../examples/proto");
  run("buf", "generate", "--template", found(/npx buf generate --template '(.*)' proto/), protos, "--path", join(protos, "helloworld.proto"));
  const program = found(/```ts\n([^]*?)```/);
  assert(program.includes('"ws://localhost:7300/"'));
  writeFileSync(join(project, "main.ts"), program.replace("ws://localhost:7300/", url));
  run("tsc", ...found(/npx tsc (.*)\n/).split(" "));
  assert.equal(run("node", "--experimental-websocket", "build/main.js"), "Hello Ann!\n");
  console.log("all went well");
} finally {
  rmSync(project, { recursive: true });
}
