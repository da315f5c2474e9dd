#include "adapter/adapter.h"

#include "base/text.h"
#include "driver/maker.h"

#define PROMPT_TEMPLATE_MAX (64 << 10)

#define COMMAND_KEY(text)                                                                          \
	{                                                                                          \
		"command", FIELD_STRING, FIELD_NULLABLE | FIELD_NONBLANK, 1, 4096, .summary = text \
	}
/* timeoutSec and env are looked at by config.c: no type of field says what they may be. */
#define COMMON_KEYS                                                                                \
	{                                                                                          \
		"cwd", FIELD_STRING, FIELD_NULLABLE,                                               \
		0,     4096,         .summary = "absolute directory in the place"                  \
	},                                                                                         \
		{ "env", FIELD_ANY, FIELD_NULLABLE,                                                \
		  .summary = "environment: text, or {type: plain|secret_ref, ...} by name" },      \
		{ "timeoutSec", FIELD_ANY, FIELD_NULLABLE,                                         \
		  .summary = "seconds; 0: the usual, negative: without end" },                     \
	{                                                                                          \
		"promptTemplate", FIELD_STRING, FIELD_NULLABLE, 0, PROMPT_TEMPLATE_MAX,            \
			.summary = "what the tool is told; {{prompt}} stands for the run's prompt" \
	}
#define TOOL_KEYS                                                                                  \
	COMMAND_KEY("program; the tool's own name unless given"),                                  \
		{ "extraArgs",    FIELD_STRING_ARRAY,                                              \
		  FIELD_NULLABLE, 0,                                                               \
		  1000,           .summary = "further arguments" },                                \
		{ "model", FIELD_STRING, FIELD_NULLABLE,                                           \
		  0,       200,          .summary = "which model the tool uses" },                 \
		COMMON_KEYS

static const struct field PROCESS_CONFIG[] = {
	COMMAND_KEY("program to run"),
	{ "args", FIELD_STRING_ARRAY, FIELD_NULLABLE, 0, 1000, .summary = "its arguments" },
	COMMON_KEYS,
	{ 0 },
};
static const struct field TOOL_CONFIG[] = { TOOL_KEYS, { 0 } };
static const struct field ACPX_CONFIG[] = {
	TOOL_KEYS,
	{ "agent", FIELD_STRING, FIELD_NULLABLE, 0, 200,
	  .summary = "the agent acpx speaks to; codex unless given" },
	{ 0 },
};

#define WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define SAYS_VERSION .version = WORDS("--version")

const struct adapter ADAPTERS[] = {
	{ "process", "Process", false, PROCESS_CONFIG,
	  .install_hint = "Install it in the place, or name its path in adapterConfig.command." },
	{ .type = "http", .name = "HTTP" },
	{ "acpx_local", "ACPX", true, ACPX_CONFIG, "acpx", .arguments = WORDS("--format", "json"),
	  .model_flag = "--model", .closing = WORDS("{agent}", "exec", "--file", "-"), SAYS_VERSION,
	  .install_hint = "npm install -g acpx" },
	{ "claude_local", "Claude Code", true, TOOL_CONFIG, "claude",
	  .arguments = WORDS("-p", "--output-format", "stream-json", "--verbose"),
	  .model_flag = "--model", SAYS_VERSION,
	  .install_hint = "npm install -g @anthropic-ai/claude-code" },
	{ "codex_local", "Codex", true, TOOL_CONFIG, "codex",
	  .arguments = WORDS("exec", "--json", "--skip-git-repo-check"), .model_flag = "--model",
	  .closing = WORDS("-"), SAYS_VERSION, .install_hint = "npm install -g @openai/codex" },
	{ .type = "cursor_cloud", .name = "Cursor Cloud" },
	/* Without a terminal it reads the prompt from standard input; -p would want it as argument.
	 */
	{ "gemini_local", "Gemini CLI", true, TOOL_CONFIG, "gemini",
	  .arguments = WORDS("--output-format", "stream-json"), .model_flag = "--model",
	  SAYS_VERSION, .install_hint = "npm install -g @google/gemini-cli" },
	{ "opencode_local", "OpenCode", true, TOOL_CONFIG, "opencode",
	  .arguments = WORDS("run", "--format", "json"), .model_flag = "--model", SAYS_VERSION,
	  .install_hint = "npm install -g opencode-ai" },
	{ "pi_local", "Pi", true, TOOL_CONFIG, "pi",
	  .arguments = WORDS("--print", "--mode", "json"), .model_flag = "--model", SAYS_VERSION,
	  .install_hint = "npm install -g @earendil-works/pi-coding-agent" },
	{ "cursor", "Cursor", true, TOOL_CONFIG, "cursor-agent",
	  .arguments = WORDS("-p", "--output-format", "stream-json"), .model_flag = "--model",
	  SAYS_VERSION, .install_hint = "curl -fsS https://cursor.com/install | bash" },
	{ .type = "openclaw_gateway", .name = "OpenClaw Gateway" },
	{ 0 },
};

const struct adapter *adapter_find(const char *type)
{
	for (const struct adapter *a = ADAPTERS; type && a->type; a++) {
		if (streq(a->type, type))
			return a;
	}
	return NULL;
}

/*
 * Besides the remote-managed ones `process` runs in a sandbox, since Berth starts its command there
 * itself. Driver `plugin` can be stored and is offered to nobody.
 */
bool adapter_allows(const char *type, enum driver_kind driver)
{
	const struct adapter *adapter = adapter_find(type);

	switch (driver) {
	case DRIVER_LOCAL:
		return true;
	case DRIVER_SSH:
		return adapter && adapter->remote_managed;
	case DRIVER_SANDBOX:
		return adapter && adapter->config;
	default:
		return false;
	}
}

static const char *status(bool supported)
{
	return supported ? "supported" : "unsupported";
}

static json_t *drivers_json(const struct adapter *adapter, unsigned usable)
{
	json_t *drivers = json_object();

	for (enum driver_kind kind = 0; kind < DRIVER_KIND_COUNT; kind++)
		json_put_str(drivers, driver_kind_name(kind),
			     status((usable & 1u << kind) && adapter_allows(adapter->type, kind)));
	return drivers;
}

/* Those for tests are never offered for runs. */
static json_t *providers_json(const struct makers *makers, const struct adapter *adapter)
{
	json_t *providers = json_object();

	for (size_t i = 0; i < makers->count; i++) {
		const struct maker *maker = makers->items[i];

		if (maker->driver == DRIVER_SANDBOX)
			json_put_str(providers, maker->key,
				     status(!maker->traits.for_tests &&
					    adapter_allows(adapter->type, maker->driver)));
	}
	return providers;
}

json_t *adapter_capabilities(const struct makers *makers)
{
	unsigned usable = makers_usable(makers);
	json_t *list = json_array();

	for (const struct adapter *a = ADAPTERS; a->type; a++) {
		json_t *entry = json_object();

		json_put_str(entry, "adapterType", a->type);
		json_put_new(entry, "drivers", drivers_json(a, usable));
		json_put_new(entry, "sandboxProviders", providers_json(makers, a));
		json_array_append_new(list, entry);
	}
	return list;
}

static json_t *words_json(const char *const *words)
{
	return words ? json_from_strv((char *const *)words) : NULL;
}

static json_t *keys_json(const struct field *fields)
{
	json_t *keys = json_array();

	for (; fields && fields->name; fields++) {
		json_t *key = json_object();

		json_put_str(key, "name", fields->name);
		json_put_str(key, "summary", fields->summary);
		json_array_append_new(keys, key);
	}
	return keys;
}

json_t *adapter_list(unsigned usable)
{
	json_t *list = json_array();

	for (const struct adapter *a = ADAPTERS; a->type; a++) {
		json_t *entry = json_object();

		json_put_str(entry, "adapterType", a->type);
		json_put_str(entry, "name", a->name);
		json_put_bool(entry, "takesPrompt", a->config != NULL);
		json_put_bool(entry, "remoteManaged", a->remote_managed);
		json_put_str(entry, "command", a->program);
		json_put_new(entry, "versionArgs", words_json(a->version));
		json_put_str(entry, "installHint", a->install_hint);
		json_put_new(entry, "drivers", drivers_json(a, usable));
		json_put_new(entry, "configKeys", keys_json(a->config));
		json_array_append_new(list, entry);
	}
	return list;
}
