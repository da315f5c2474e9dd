#include "adapter/adapter.h"
#include "adapter/config_keys.h"

ADAPTER(OPENCODE) = {
	.order = 80,
	.type = "opencode_local",
	.name = "OpenCode",
	.remote_managed = true,
	.config = TOOL_CONFIG,
	.program = "opencode",
	.arguments = ADAPTER_WORDS("run", "--format", "json"),
	.model_flag = "--model",
	.version = ADAPTER_WORDS("--version"),
	.install_hint = "npm install -g opencode-ai",
};
