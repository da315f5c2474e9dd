/*
 * Driver `local`: commands run on this host as the server's own user. A local place is nothing but
 * its name and the processes started for it, so there is nothing to make, and ending it means
 * ending them.
 */
#include "driver/driver.h"

#include <unistd.h>

#define PROVIDER "local"
/* Processes have been stopped by the time a place is released; this is for what came after. */
#define LAST_STOP_MS 10000

int refuse_host(struct error *err)
{
	return error_set(err, ERR_FORBIDDEN,
			 "this server runs no command on its own host (--no-local): choose another "
			 "environment");
}

/* No validation: whatever an operator wants to note there is kept. */
static json_t *local_normalize(struct driver_host *host, const json_t *config, bool saving,
			       struct error *err)
{
	(void)host;
	(void)saving;
	if (config && !json_is_object(config)) {
		error_set(err, ERR_UNPROCESSABLE, "Invalid environment config: not an object");
		return NULL;
	}
	return config ? json_deep_copy(config) : json_object();
}

static int local_probe(struct driver_host *host, const struct environment *environment,
		       struct probe *out, struct error *err)
{
	char hostname[256];

	(void)environment;
	(void)err;
	if (gethostname(hostname, sizeof(hostname)) < 0)
		hostname[0] = '\0';
	hostname[sizeof(hostname) - 1] = '\0';

	json_t *details = json_object();

	json_put_str(details, "hostname", hostname);
	json_put_str(details, "cwd", host->home_path);
	*out = (struct probe){
		.ok = true,
		.driver = DRIVER_LOCAL,
		.summary = xasprintf("Local environment is ready on %s.", hostname),
		.details = details,
	};
	return 0;
}

static int local_name(struct driver_host *host, const struct place_request *request,
		      char **provider, char **provider_ref, struct error *err)
{
	(void)host;
	(void)err;
	*provider = xstrdup(PROVIDER);
	*provider_ref = xasprintf("local://%s", request->lease_id);
	return 0;
}

static int local_acquire(struct driver_host *host, const struct place_request *request,
			 struct place_grant *out, struct error *err)
{
	if (host->no_local)
		return refuse_host(err);
	if (local_name(host, request, &out->provider, &out->provider_ref, err) < 0)
		return -1;
	out->ref_is_private = true;
	out->fencing = FENCING_PLACE;
	out->discoverable = true;
	out->metadata = json_object();
	json_put_str(out->metadata, "driver", driver_kind_name(DRIVER_LOCAL));
	json_put_str(out->metadata, "executionWorkspaceMode", request->workspace_mode);
	return 0;
}

static int local_stop(struct driver_host *host, const struct place *place, int64_t wait_ms,
		      struct error *err)
{
	return places_stop(host->places, place->id, EXEC_LEASE_LOST, wait_ms, err);
}

static int local_release(struct driver_host *host, const struct place *place, const char *status,
			 struct error *err)
{
	(void)status;
	return local_stop(host, place, LAST_STOP_MS, err);
}

static int local_destroy(struct driver_host *host, const struct place *place, struct error *err)
{
	return local_stop(host, place, LAST_STOP_MS, err);
}

/* Making a local place leaves nothing behind that could be found: the list is empty and complete.
 */
static int local_inventory(struct driver_host *host, const char *provider,
			   struct provider_inventory *out, struct error *err)
{
	(void)host;
	(void)provider;
	(void)err;
	out->refs = xcalloc(1, sizeof(*out->refs));
	return 1;
}

static int local_realize(struct driver_host *host, const struct place *place, const char *lease_id,
			 const struct place_workspace *workspace, struct place_realization *out,
			 struct error *err)
{
	const char *cwd = workspace->local_path ? workspace->local_path : workspace->remote_path;

	(void)host;
	(void)err;
	out->cwd = xstrdup(cwd ? cwd : "/");
	out->metadata = json_object();
	json_put_new(out->metadata, "workspaceRealization",
		     realization_record(place, lease_id, workspace, NULL));
	return 0;
}

static int local_open(struct driver_host *host, const struct place *place, struct error *err)
{
	return place_exec_open(host, place, NULL, host->home_path, err);
}

static int local_start(struct driver_host *host, const struct place *place,
		       const struct exec_spec *spec, struct exec **exec, struct error *err)
{
	struct exec_spec here = *spec;

	(void)place;
	if (host->no_local)
		return refuse_host(err);
	if (!here.cwd)
		here.cwd = host->home_path;
	return exec_start(host->places, &here, exec, err);
}

/* Its places are processes. */
static bool local_is_fleeting(const struct environment *environment)
{
	(void)environment;
	return true;
}

const struct driver DRIVER_LOCAL_HOST = {
	.kind = DRIVER_LOCAL,
	.normalize = local_normalize,
	.probe = local_probe,
	.name = local_name,
	.fleeting = local_is_fleeting,
	.acquire = local_acquire,
	.release = local_release,
	.destroy = local_destroy,
	.inventory = local_inventory,
	.realize = local_realize,
	.open = local_open,
	.start = local_start,
	.stop = local_stop,
};
