/*
 * Maker `local`: commands run on this host as the server's own user. A local place is nothing but
 * its name and the processes started for it, so there is nothing to make, and ending it means
 * ending them, which maker_stop has done by the time it is released.
 */
#include "driver/maker.h"

#include <unistd.h>

/* Processes have been stopped by the time a place is released; this is for an undone acquire. */
#define LAST_STOP_MS 10000

int refuse_host(struct error *err)
{
	return error_set(err, ERR_FORBIDDEN,
			 "this server runs no command on its own host (--no-local): choose another "
			 "environment");
}

/* No validation: whatever an operator wants to note there is kept. */
static json_t *local_normalize(const struct maker *self, const json_t *config, bool saving,
			       struct error *err)
{
	(void)self;
	(void)saving;
	if (config && !json_is_object(config)) {
		error_set(err, ERR_UNPROCESSABLE, "Invalid environment config: not an object");
		return NULL;
	}
	return config ? json_deep_copy(config) : json_object();
}

static int local_probe(const struct maker *self, const struct place_view *wanted,
		       int64_t deadline_ms, struct probe *out, struct error *err)
{
	char hostname[256];

	(void)wanted;
	(void)deadline_ms;
	(void)err;
	if (gethostname(hostname, sizeof(hostname)) < 0)
		hostname[0] = '\0';
	hostname[sizeof(hostname) - 1] = '\0';

	json_t *details = json_object();

	json_put_str(details, "hostname", hostname);
	json_put_str(details, "cwd", self->host->home_path);
	*out = (struct probe){
		.ok = true,
		.driver = DRIVER_LOCAL,
		.summary = xasprintf("Local environment is ready on %s.", hostname),
		.details = details,
	};
	return 0;
}

static char *local_name(const struct maker *self, const struct place_view *wanted)
{
	(void)self;
	return xasprintf("local://%s", wanted->lease_id);
}

static int local_acquire(const struct maker *self, const struct place_view *wanted,
			 int64_t deadline_ms, struct made_place *out, struct error *err)
{
	(void)deadline_ms;
	if (self->host->no_local)
		return refuse_host(err);
	*out = (struct made_place){ .ref = local_name(self, wanted) };
	return 0;
}

static int local_release(const struct maker *self, const struct place_view *place,
			 const char *status, int64_t deadline_ms, struct error *err)
{
	(void)self;
	(void)place;
	(void)status;
	(void)deadline_ms;
	(void)err;
	return 0;
}

static int local_destroy(const struct maker *self, const struct place_view *place,
			 int64_t deadline_ms, struct error *err)
{
	(void)deadline_ms;
	return place->id ? places_stop(self->host->places, place->id, EXEC_LEASE_LOST, LAST_STOP_MS,
				       err)
			 : 0;
}

/* Making a local place leaves nothing behind that could be found: the list is empty and complete.
 */
static int local_inventory(const struct maker *self, int64_t deadline_ms,
			   struct maker_inventory *out, struct error *err)
{
	(void)self;
	(void)deadline_ms;
	(void)err;
	out->refs = xcalloc(1, sizeof(*out->refs));
	return 0;
}

static int local_realize(const struct maker *self, const struct place_view *place,
			 const struct place_workspace *workspace, int64_t deadline_ms,
			 struct place_realization *out, struct error *err)
{
	const char *cwd = workspace->local_path ? workspace->local_path : workspace->remote_path;

	(void)self;
	(void)place;
	(void)deadline_ms;
	(void)err;
	out->cwd = xstrdup(cwd ? cwd : "/");
	return 0;
}

static int local_describe(const struct maker *self, const struct place_view *place,
			  struct exec_place *out, struct error *err)
{
	(void)place;
	(void)err;
	out->cwd = self->host->home_path;
	return 0;
}

static const struct maker LOCAL = {
	.key = "local",
	.display_name = "Local",
	.driver = DRIVER_LOCAL,
	.traits = { .is_host = true,
		    .takes_relay = true,
		    .lists = true,
		    .names_ahead = true,
		    .fleeting = true,
		    .fencing = FENCING_PLACE },
	.normalize = local_normalize,
	.probe = local_probe,
	.name = local_name,
	.acquire = local_acquire,
	.realize = local_realize,
	.release = local_release,
	.destroy = local_destroy,
	.inventory = local_inventory,
	.describe = local_describe,
};
MAKER_REGISTER(LOCAL);
