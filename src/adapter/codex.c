#include "adapter/adapter.h"
#include "adapter/config_keys.h"

ADAPTER(CODEX) = {
	.order = 50,
	.type = "codex_local",
	.name = "Codex",
	.remote_managed = true,
	.config = TOOL_CONFIG,
	.program = "codex",
	.arguments = ADAPTER_WORDS("exec", "--json", "--skip-git-repo-check"),
	.model_flag = "--model",
	.closing = ADAPTER_WORDS("-"),
	.version = ADAPTER_WORDS("--version"),
	.install_hint = "npm install -g @openai/codex",
};
