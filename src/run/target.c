#include "run/orchestrator.h"

#include <string.h>

#include "base/text.h"
#include "adapter/adapter.h"

#define DEFAULT_REMOTE_CWD "/tmp"

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
	if (!adapter_allows(adapter_type, environment->driver))
		return error_set(
			err, ERR_UNSUPPORTED_ADAPTER,
			"adapter \"%s\" cannot run in \"%s\" (%s): choose a local environment "
			"or another adapter",
			adapter_type, environment->name, driver_kind_name(environment->driver));

	cwd = json_str_nonblank(lease_metadata, "remoteCwd");
	out->remote_cwd = cwd ? str_trimmed(cwd) : xstrdup(DEFAULT_REMOTE_CWD);
	if (out->remote_cwd[0] != '/') {
		error_set(err, ERR_TRANSPORT,
			  "its provider named the working directory \"%.200s\", which is not an "
			  "absolute path",
			  out->remote_cwd);
		execution_target_clear(out);
		return -1;
	}
	out->remote = true;
	out->transport = "sandbox";
	out->shell = known_shell(lease_metadata);
	out->timeout_ms = json_int(environment->config, "timeoutMs", 0);
	return 0;
}

void execution_target_clear(struct execution_target *target)
{
	free(target->remote_cwd);
	*target = (struct execution_target){ 0 };
}

json_t *execution_target_json(const struct execution_target *target,
			      const struct environment *environment, const char *lease_id)
{
	json_t *out = json_object();

	json_put_str(out, "kind", target->remote ? "remote" : "local");
	json_put_str(out, "environmentId", environment->id);
	json_put_str(out, "leaseId", lease_id);
	if (!target->remote)
		return out;
	json_put_str(out, "transport", target->transport);
	json_put_str(out, "providerKey", json_str(environment->config, "provider"));
	json_put_str(out, "shellCommand", target->shell);
	json_put_str(out, "remoteCwd", target->remote_cwd);
	json_put_new(out, "timeoutMs",
		     target->timeout_ms > 0 ? json_integer(target->timeout_ms) : NULL);
	return out;
}
