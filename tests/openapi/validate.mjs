// A validator that is not ours accepts the document: node validate.mjs openapi.json
import { readFileSync } from "node:fs";
import { Validator } from "@seriousme/openapi-schema-validator";

const document = JSON.parse(readFileSync(process.argv[2], "utf8"));
const result = await new Validator().validate(document);
if (!result.valid) {
	console.error(JSON.stringify(result.errors, null, 2));
	process.exit(1);
}
const ids = Object.values(document.paths).flatMap((path) =>
	Object.values(path).map((operation) => operation.operationId),
);
if (new Set(ids).size !== ids.length) {
	console.error("two operations have the same operationId");
	process.exit(1);
}
console.log(`${ids.length} operations`);
