#include "adapter/adapter.h"
#include "adapter/config_keys.h"

ADAPTER(PI) = {
	.order = 90,
	.type = "pi_local",
	.name = "Pi",
	.remote_managed = true,
	.config = TOOL_CONFIG,
	.program = "pi",
	.arguments = ADAPTER_WORDS("--print", "--mode", "json"),
	.model_flag = "--model",
	.version = ADAPTER_WORDS("--version"),
	.install_hint = "npm install -g @earendil-works/pi-coding-agent",
};
