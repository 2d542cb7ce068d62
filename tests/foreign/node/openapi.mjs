// Checks OpenAPI documents with the schema of their version: openapi.mjs FILE...
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Validator } from "@seriousme/openapi-schema-validator";

for (const file of process.argv.slice(2)) {
  const validator = new Validator();
  const document = JSON.parse(readFileSync(file, "utf8"));
  const { valid, errors } = await validator.validate(document);
  assert.ok(valid, JSON.stringify(errors, null, 2));
  assert.equal(validator.version, "3.1");
  const names = Object.values(document.paths).flatMap((path) => Object.values(path).map((one) => one.operationId));
  assert.equal(new Set(names).size, names.length, "operations have different names");
}
console.log("all went well");
