#include "adapter/adapter.h"
#include "adapter/config_keys.h"

ADAPTER(CLAUDE) = {
	.order = 40,
	.type = "claude_local",
	.name = "Claude Code",
	.remote_managed = true,
	.config = TOOL_CONFIG,
	.program = "claude",
	.arguments = ADAPTER_WORDS("-p", "--output-format", "stream-json", "--verbose"),
	.model_flag = "--model",
	.version = ADAPTER_WORDS("--version"),
	.install_hint = "npm install -g @anthropic-ai/claude-code",
};
