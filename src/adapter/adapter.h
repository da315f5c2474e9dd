/*
 * Adapters: how a tool that works on a prompt is started. A run may name an adapter and a prompt
 * instead of a command; its adapter turns both into argv, environment, directory and standard
 * input, and says where the tool may run. Berth starts every command in the leased place itself, so
 * an adapter that cannot run there is refused and never runs on the host instead.
 *
 * Prompts travel on standard input: an argument list can be read by every process of the place.
 */
#pragma once

#include "base/json.h"
#include "record/kinds.h"

struct adapter {
	int order;        /* in lists; no two have the same */
	const char *type; /* "claude_local" */
	const char *name; /* "Claude Code" */
	bool remote_managed;
	/* Its keys of adapterConfig. NULL: it speaks to a service of its own, nothing is started.
	 */
	const struct field *config;
	const char *program;          /* unless adapterConfig.command; NULL: that one is needed */
	const char *const *arguments; /* behind the program; NULL for none */
	const char *model_flag;       /* NULL: it takes no model */
	const char *const *closing;   /* behind the config's own arguments; "{agent}" is replaced */
	const char *const *version;   /* arguments of the version probe; NULL: none is known */
	const char *install_hint;
};

/*
 * Defines an adapter and registers it in a linker section: a new CLI is one file. Its place in
 * lists, AGENT_ADAPTER_TYPES (spec 01 A.2), is `order`; `grep -rn "order =" src/adapter`.
 */
#define ADAPTER(ident)                                                                             \
	extern const struct adapter ident;                                                         \
	static const struct adapter *const ident##_ref                                             \
		__attribute__((used, section("berth_adapters"))) = &(ident);                       \
	const struct adapter ident
#define ADAPTER_WORDS(...) ((const char *const[]){ __VA_ARGS__, NULL })
/* In their order: the first behind `before` (NULL: the first of all), NULL behind the last. */
const struct adapter *adapter_after(const struct adapter *before);
const struct adapter *adapter_find(const char *type); /* NULL: not one we know */
/* Whether a command of this adapter can be started in such a place; unknown adapters: local only.
 */
bool adapter_allows(const char *type, enum driver_kind driver);
/* The `adapters` of spec 01 F.5: array of {adapterType, drivers, sandboxProviders}. */
struct makers;
json_t *adapter_capabilities(const struct makers *makers);
/* Array of everything in the table that clients may want to know. */
json_t *adapter_list(unsigned usable);

/*
 * Checks what adapterConfig says, as FIELDS do: ERR_VALIDATION with details whose paths begin with
 * "adapterConfig". A key that is null counts as not set. Keys the adapter does not know are refused
 * with `strict`, else left alone: stored configs carry keys of other software.
 */
int adapter_config_check(const struct adapter *adapter, const json_t *config, bool strict,
			 struct error *err);
/* Names the adapter does not know; array, new reference. */
json_t *adapter_config_unknown(const struct adapter *adapter, const json_t *config);
/* `over` laid over `base` (either may be NULL), `env` name by name; null takes a key away. */
json_t *adapter_config_lay(const json_t *base, const json_t *over);

struct adapter_prompt {
	const char *text;
	const char *run_id, *company_id, *agent_id, *agent_name; /* for the template; NULL: "" */
};
/* What a place is asked to run. */
struct adapter_command {
	char **argv;
	char *cwd;          /* NULL: the place's */
	json_t *env;        /* object of strings */
	char *input;        /* standard input */
	int64_t timeout_ms; /* 0: not said, -1: without end */
};
void adapter_command_clear(struct adapter_command *command);
/*
 * `config` is checked. Without a prompt there is no input. ERR_UNSUPPORTED_ADAPTER when nothing can
 * be started, ERR_UNPROCESSABLE when no program is named or a secret would have to be resolved.
 */
int adapter_command(const struct adapter *adapter, const json_t *config,
		    const struct adapter_prompt *prompt, struct adapter_command *out,
		    struct error *err);
/* The environment alone; see adapter_command. */
int adapter_environment(const json_t *config, json_t **env, struct error *err);
