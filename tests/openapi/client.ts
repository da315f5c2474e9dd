// A client made from the document alone: creates an environment, runs a command there, reads the
// log. That it compiles says that the types are right; that it runs says that they are true.
import createClient from "openapi-fetch";
import type { paths } from "./gen/api.js";

const client = createClient<paths>({ baseUrl: process.argv[2]! });

function must<T>(what: string, answer: { data?: T; error?: unknown }): T {
	if (answer.data === undefined) throw new Error(`${what}: ${JSON.stringify(answer.error)}`);
	return answer.data;
}

const company = must(
	"company",
	await client.POST("/api/companies", { body: { name: "made by a generated client" } }),
);
const environment = must(
	"environment",
	await client.POST("/api/companies/{cid}/environments", {
		params: { path: { cid: company.id }, header: { "Idempotency-Key": "once" } },
		body: { name: "box", driver: "sandbox", config: { provider: "fake" } },
	}),
);
const run = must(
	"run",
	await client.POST("/api/companies/{cid}/runs", {
		params: { path: { cid: company.id } },
		body: { command: ["echo", "hello from a client"], environmentId: environment.id },
	}),
);
// Following the log ends when the run does.
const log = await client.GET("/api/runs/{id}/log", {
	params: { path: { id: run.id }, query: { follow: true } },
	headers: { Accept: "application/octet-stream" },
	parseAs: "text",
});
const text = must("log", log);
if (text !== "hello from a client\n") throw new Error(`the log is ${JSON.stringify(text)}`);

let ended = must("run", await client.GET("/api/runs/{id}", { params: { path: { id: run.id } } }));
for (const deadline = Date.now() + 20000; !ended.finishedAt && Date.now() < deadline; )
	ended = must("run", await client.GET("/api/runs/{id}", { params: { path: { id: run.id } } }));
if (ended.status !== "succeeded" || ended.exitCode !== 0) throw new Error(JSON.stringify(ended));

const refused = await client.GET("/api/environments/{id}", { params: { path: { id: company.id } } });
if (refused.response.status !== 404 || refused.error?.code !== "not_found")
	throw new Error("an id of nothing was not refused");
console.log("a generated client ran", run.id);
