#include "run/orchestrator.h"

#include <string.h>

#include "base/text.h"

#define DEFAULT_REMOTE_CWD "/tmp"

/*
 * Adapters whose command Berth itself starts inside the place. The rest speak to a service of their
 * own; giving them a place they would not use means running on the host behind the holder's back,
 * so they are refused anywhere but on the host.
 */
static const char *const IN_PLACE_ADAPTERS[] = {
	"process", "acpx_local",   "claude_local",   "codex_local",
	"cursor",  "gemini_local", "opencode_local", "pi_local",
};

static bool runs_in_place(const char *adapter_type)
{
	for (size_t i = 0; i < ARRAY_SIZE(IN_PLACE_ADAPTERS); i++) {
		if (streq(adapter_type, IN_PLACE_ADAPTERS[i]))
			return true;
	}
	return false;
}

/* Metadata comes from a provider: only these two words may name a shell. */
static const char *known_shell(const json_t *metadata)
{
	const char *shell = json_str(metadata, "shellCommand");

	if (str_equal(shell, "bash"))
		return "bash";
	if (str_equal(shell, "sh"))
		return "sh";
	return NULL;
}

int execution_target(const char *adapter_type, const struct environment *environment,
		     const json_t *lease_metadata, struct execution_target *out, struct error *err)
{
	const char *cwd;

	*out = (struct execution_target){ 0 };
	switch (environment->driver) {
	case DRIVER_LOCAL:
		return 0;
	case DRIVER_SANDBOX:
		break;
	default:
		return error_set(
			err, ERR_UNSUPPORTED_ENV,
			"environment \"%s\" uses driver \"%s\", which this server cannot reach yet",
			environment->name, driver_kind_name(environment->driver));
	}
	if (!runs_in_place(adapter_type))
		return error_set(
			err, ERR_UNSUPPORTED_ADAPTER,
			"adapter \"%s\" cannot run in \"%s\" (%s): choose a local environment "
			"or another adapter",
			adapter_type, environment->name, driver_kind_name(environment->driver));

	cwd = json_str_nonblank(lease_metadata, "remoteCwd");
	out->remote = true;
	out->transport = "sandbox";
	out->remote_cwd = cwd ? str_trimmed(cwd) : xstrdup(DEFAULT_REMOTE_CWD);
	out->shell = known_shell(lease_metadata);
	out->timeout_ms = json_int(environment->config, "timeoutMs", 0);
	return 0;
}

void execution_target_clear(struct execution_target *target)
{
	free(target->remote_cwd);
	*target = (struct execution_target){ 0 };
}
