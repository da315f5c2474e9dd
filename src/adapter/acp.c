#include "adapter/adapter.h"
#include "adapter/config_keys.h"

static const struct field ACPX_CONFIG[] = {
	TOOL_KEYS,
	{ "agent", FIELD_STRING, FIELD_NULLABLE, 0, 200,
	  .summary = "the agent acpx speaks to; codex unless given" },
	{ 0 },
};

ADAPTER(ACPX) = {
	.order = 30,
	.type = "acpx_local",
	.name = "ACPX",
	.remote_managed = true,
	.config = ACPX_CONFIG,
	.program = "acpx",
	.arguments = ADAPTER_WORDS("--format", "json"),
	.model_flag = "--model",
	.closing = ADAPTER_WORDS("{agent}", "exec", "--file", "-"),
	.version = ADAPTER_WORDS("--version"),
	.install_hint = "npm install -g acpx",
};
