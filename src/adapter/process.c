/*
 * A command of the user's own, and those who speak to a service of theirs: Berth knows no CLI here.
 */
#include "adapter/adapter.h"
#include "adapter/config_keys.h"

const struct field TOOL_CONFIG[] = { TOOL_KEYS, { 0 } };
static const struct field PROCESS_CONFIG[] = {
	COMMAND_KEY("program to run"),
	{ "args", FIELD_STRING_ARRAY, FIELD_NULLABLE, 0, 1000, .summary = "its arguments" },
	COMMON_KEYS,
	{ 0 },
};

ADAPTER(PROCESS) = {
	.order = 10,
	.type = "process",
	.name = "Process",
	.config = PROCESS_CONFIG,
	.install_hint = "Install it in the place, or name its path in adapterConfig.command.",
};
ADAPTER(HTTP) = { .order = 20, .type = "http", .name = "HTTP" };
ADAPTER(CURSOR_CLOUD) = { .order = 60, .type = "cursor_cloud", .name = "Cursor Cloud" };
ADAPTER(OPENCLAW) = { .order = 110, .type = "openclaw_gateway", .name = "OpenClaw Gateway" };
