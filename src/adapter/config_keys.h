/*
 * The keys of adapterConfig that the adapters have in common. Private to src/adapter/: each file of
 * a CLI puts its table of keys together from these.
 */
#pragma once

#include "base/json.h"

#define PROMPT_TEMPLATE_MAX (64 << 10)

#define COMMAND_KEY(text)                                                                          \
	{                                                                                          \
		"command", FIELD_STRING, FIELD_NULLABLE | FIELD_NONBLANK, 1, 4096, .summary = text \
	}
/* timeoutSec and env are checked by config.c: no type of field says what they may be. */
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

/* Of a CLI without keys of its own. */
extern const struct field TOOL_CONFIG[];
