#include "adapter/adapter.h"
#include "adapter/config_keys.h"

ADAPTER(CURSOR) = {
	.order = 100,
	.type = "cursor",
	.name = "Cursor",
	.remote_managed = true,
	.config = TOOL_CONFIG,
	.program = "cursor-agent",
	.arguments = ADAPTER_WORDS("-p", "--output-format", "stream-json"),
	.model_flag = "--model",
	.version = ADAPTER_WORDS("--version"),
	.install_hint = "curl -fsS https://cursor.com/install | bash",
};
