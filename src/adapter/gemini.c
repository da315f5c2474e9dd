#include "adapter/adapter.h"
#include "adapter/config_keys.h"

/* Without a terminal it reads the prompt from standard input; -p would want it as argument. */
ADAPTER(GEMINI) = {
	.order = 70,
	.type = "gemini_local",
	.name = "Gemini CLI",
	.remote_managed = true,
	.config = TOOL_CONFIG,
	.program = "gemini",
	.arguments = ADAPTER_WORDS("--output-format", "stream-json"),
	.model_flag = "--model",
	.version = ADAPTER_WORDS("--version"),
	.install_hint = "npm install -g @google/gemini-cli",
};
