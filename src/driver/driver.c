#include "driver/driver.h"

#include "base/text.h"

#include "base/fault.h"

const struct driver *const DRIVERS_DEFAULT[] = {
	&DRIVER_LOCAL_HOST,
	&DRIVER_SSH_CONFIG,
	&DRIVER_SANDBOX_PROVIDER,
	&DRIVER_PLUGIN_CONFIG,
	NULL,
};

/*
 * Around one call of a driver: a point where nothing has been asked for yet, and one where it has
 * been done and nobody knows. An error at the latter loses the answer, so whoever uses this gives
 * back what the answer held.
 */
#define DRIVER_CALL(op, call, err)                                                                 \
	({                                                                                         \
		FAULT_POINT_REGISTER(_before, "driver." op ".before");                             \
		FAULT_POINT_REGISTER(_after, "driver." op ".after");                               \
		int _r = fault_hit(&_before, (err));                                               \
		if (_r == 0)                                                                       \
			_r = (call);                                                               \
		if (_r >= 0 && fault_hit(&_after, (err)) < 0)                                      \
			_r = -1;                                                                   \
		_r;                                                                                \
	})

void place_grant_clear(struct place_grant *grant)
{
	free(grant->provider);
	free(grant->provider_ref);
	json_decref(grant->metadata);
	*grant = (struct place_grant){ 0 };
}

void place_realization_clear(struct place_realization *realization)
{
	free(realization->cwd);
	json_decref(realization->metadata);
	*realization = (struct place_realization){ 0 };
}

static const struct driver *driver_of(const struct drivers *drivers, enum driver_kind kind)
{
	const struct driver *found = NULL;

	for (size_t i = 0; drivers->table[i]; i++) {
		if (drivers->table[i]->kind == kind)
			found = drivers->table[i];
	}
	return found;
}

unsigned drivers_usable(const struct drivers *drivers)
{
	unsigned usable = 0;

	for (enum driver_kind kind = 0; kind < DRIVER_KIND_COUNT; kind++) {
		const struct driver *driver = driver_of(drivers, kind);

		if (driver && driver->acquire && !(kind == DRIVER_LOCAL && drivers->host->no_local))
			usable |= 1u << kind;
	}
	return usable;
}

const struct driver *drivers_require(const struct drivers *drivers, enum driver_kind kind,
				     struct error *err)
{
	const struct driver *driver = driver_of(drivers, kind);

	if (!driver)
		error_set(err, ERR_UNSUPPORTED_ENV,
			  "Environment driver \"%s\" is not registered in the environment runtime "
			  "yet.",
			  driver_kind_name(kind));
	return driver;
}

static int lacks(const struct driver *driver, const char *operation, struct error *err)
{
	return error_set(err, ERR_UNSUPPORTED_ENV, "Environment driver \"%s\" does not support %s.",
			 driver_kind_name(driver->kind), operation);
}

json_t *driver_normalize(const struct drivers *d, enum driver_kind kind, const json_t *config,
			 bool saving, struct error *err)
{
	const struct driver *driver = drivers_require(d, kind, err);

	return driver ? driver->normalize(d->host, config, saving, err) : NULL;
}

int driver_probe(const struct drivers *d, const struct environment *environment, struct probe *out,
		 struct error *err)
{
	const struct driver *driver = drivers_require(d, environment->driver, err);

	*out = (struct probe){ 0 };
	if (!driver)
		return -1;
	if (!driver->probe)
		return lacks(driver, "probing", err);

	int r = DRIVER_CALL("probe", driver->probe(d->host, environment, out, err), err);

	if (r < 0)
		probe_clear(out);
	return r;
}

int driver_name_place(const struct drivers *d, const struct place_request *request, char **provider,
		      char **provider_ref, struct error *err)
{
	const struct driver *driver = drivers_require(d, request->environment->driver, err);

	*provider = *provider_ref = NULL;
	if (!driver)
		return -1;
	if (!driver->name)
		return lacks(driver, "leases", err);
	return driver->name(d->host, request, provider, provider_ref, err);
}

bool driver_reuses(const struct drivers *d, const struct environment *environment)
{
	const struct driver *driver = driver_of(d, environment->driver);

	return driver && driver->reuses && driver->reuses(environment);
}

bool driver_is_fleeting(const struct drivers *d, const struct environment *environment)
{
	const struct driver *driver = driver_of(d, environment->driver);

	return driver && driver->fleeting && driver->fleeting(environment);
}

int driver_check_mount(const struct drivers *d, const struct environment *environment,
		       struct error *err)
{
	const struct driver *driver = drivers_require(d, environment->driver, err);

	if (!driver)
		return -1;
	if (driver->mounts && driver->mounts(environment))
		return 0;
	return error_set(err, ERR_UNPROCESSABLE,
			 "places of this environment (%s) cannot have a directory of this host "
			 "mounted as their workspace: %s",
			 driver_kind_name(driver->kind),
			 driver->kind == DRIVER_LOCAL ? "they work in it directly" : "copy it");
}

struct place_needs driver_needs(const struct drivers *d, enum driver_kind kind,
				const json_t *config)
{
	const struct driver *driver = driver_of(d, kind);
	struct place_needs needs = { 0 };

	if (driver && driver->needs)
		driver->needs(config, &needs);
	return needs;
}

int driver_acquire(const struct drivers *d, const struct place_request *request,
		   struct place_grant *out, struct error *err)
{
	const struct driver *driver = drivers_require(d, request->environment->driver, err);

	*out = (struct place_grant){ 0 };
	if (!driver)
		return -1;
	if (!driver->acquire)
		return lacks(driver, "leases", err);

	int r = DRIVER_CALL("acquire", driver->acquire(d->host, request, out, err), err);

	if (r < 0)
		place_grant_clear(out);
	return r;
}

int driver_resume(const struct drivers *d, const struct place_request *request,
		  const struct place *place, struct place_grant *out, struct error *err)
{
	const struct driver *driver = drivers_require(d, place->driver, err);

	*out = (struct place_grant){ 0 };
	if (!driver)
		return -1;
	if (!driver->resume)
		return lacks(driver, "lease resume", err);

	int r = DRIVER_CALL("resume", driver->resume(d->host, request, place, out, err), err);

	if (r <= 0)
		place_grant_clear(out);
	return r;
}

int driver_release(const struct drivers *d, const struct place *place, const char *status,
		   struct error *err)
{
	const struct driver *driver = drivers_require(d, place->driver, err);

	if (!driver)
		return -1;
	if (!driver->release)
		return lacks(driver, "lease release", err);
	return DRIVER_CALL("release", driver->release(d->host, place, status, err), err);
}

int driver_destroy(const struct drivers *d, const struct place *place, struct error *err)
{
	const struct driver *driver = drivers_require(d, place->driver, err);

	if (!driver)
		return -1;
	if (!driver->destroy)
		return lacks(driver, "lease destroy", err);
	return DRIVER_CALL("destroy", driver->destroy(d->host, place, err), err);
}

int driver_inventory(const struct drivers *d, enum driver_kind kind, const char *provider,
		     struct provider_inventory *out, struct error *err)
{
	const struct driver *driver = drivers_require(d, kind, err);

	*out = (struct provider_inventory){ 0 };
	if (!driver)
		return -1;
	if (!driver->inventory)
		return 0;

	int r = DRIVER_CALL("inventory", driver->inventory(d->host, provider, out, err), err);

	if (r <= 0)
		provider_inventory_clear(out);
	return r;
}

int driver_realize(const struct drivers *d, const struct place *place, const char *lease_id,
		   const struct place_workspace *workspace, struct place_realization *out,
		   struct error *err)
{
	const struct driver *driver = drivers_require(d, place->driver, err);

	*out = (struct place_realization){ 0 };
	if (!driver)
		return -1;
	if (!driver->realize)
		return lacks(driver, "workspace realization", err);

	int r = DRIVER_CALL("realize",
			    driver->realize(d->host, place, lease_id, workspace, out, err), err);

	if (r < 0)
		place_realization_clear(out);
	return r;
}

int place_exec_fill(const struct place *place, struct exec_place *out, struct error *err)
{
	*out = (struct exec_place){ .place_id = place->id,
				    .generation = place->generation,
				    .absence_ms = place->absence_ms };
	if (!hex_decode(out->key, place->relay_key, sizeof(out->key)))
		return error_set(err, ERR_INTERNAL, "place %s has no key to its relay", place->id);
	return 0;
}

int place_exec_open(struct driver_host *host, const struct place *place, const char *root,
		    const char *cwd, struct error *err)
{
	struct exec_place here;
	int opened;

	if (place_exec_fill(place, &here, err) < 0)
		return -1;
	here.root = root;
	here.cwd = cwd;
	opened = places_open(host->places, &here, err);
	wipe(here.key, sizeof(here.key));
	return opened;
}

/* What the calls of a place without a relay need, for as long as it is open. */
struct caller {
	struct drivers drivers;
	struct place place;
};

static void caller_free(void *arg)
{
	struct caller *caller = arg;

	place_clear(&caller->place);
	free(caller);
}

static int call_place(void *arg, const struct one_shot_call *call, struct one_shot_result *result,
		      struct error *err)
{
	struct caller *caller = arg;

	return driver_execute(&caller->drivers, &caller->place, call, result, err);
}

static int open_without_relay(const struct drivers *d, const struct place *place, struct error *err)
{
	const char *directory = json_str_nonblank(place->metadata, "remoteCwd");
	struct caller *caller;
	struct exec_place there = { .place_id = place->id,
				    .generation = place->generation,
				    .root = directory,
				    .cwd = directory };

	if (!directory)
		return error_set(err, ERR_PROTOCOL,
				 "provider \"%s\" does not report where its place is",
				 place->provider);
	caller = xcalloc(1, sizeof(*caller));
	caller->drivers = *d;
	id_copy(caller->place.id, place->id);
	id_copy(caller->place.environment_id, place->environment_id);
	caller->place.driver = place->driver;
	caller->place.provider = xstrdup(place->provider);
	caller->place.provider_ref = xstrdup(place->provider_ref);
	caller->place.config = json_deep_copy(place->config);
	caller->place.metadata = json_deep_copy(place->metadata);
	there.one_shot = (struct one_shot){ call_place, caller, caller_free };
	return places_open(d->host->places, &there, err);
}

int driver_open(const struct drivers *d, const struct place *place, struct error *err)
{
	const struct driver *driver = drivers_require(d, place->driver, err);

	if (!driver)
		return -1;
	if (!driver->open)
		return lacks(driver, "command execution", err);
	if (json_is_true(json_object_get(place->metadata, PLACE_NO_RELAY)))
		return driver->execute ? open_without_relay(d, place, err)
				       : lacks(driver, "one-shot execute", err);
	return DRIVER_CALL("open", driver->open(d->host, place, err), err);
}

int driver_start(const struct drivers *d, const struct place *place, const struct exec_spec *spec,
		 struct exec **exec, struct error *err)
{
	const struct driver *driver = drivers_require(d, place->driver, err);

	*exec = NULL;
	if (!driver)
		return -1;
	if (!driver->start)
		return lacks(driver, "command execution", err);

	int r = DRIVER_CALL("start", driver->start(d->host, place, spec, exec, err), err);

	/* The caller gets an error and will not wait for it: nobody else would end this command. */
	if (r < 0 && *exec) {
		struct exec_result result;

		places_cancel(d->host->places, spec->exec_id, EXEC_CANCELLED, true);
		exec_wait(*exec, &result, NULL);
		*exec = NULL;
	}
	return r;
}

int driver_execute(const struct drivers *d, const struct place *place,
		   const struct one_shot_call *call, struct one_shot_result *result,
		   struct error *err)
{
	const struct driver *driver = drivers_require(d, place->driver, err);

	if (!driver)
		return -1;
	if (!driver->execute)
		return lacks(driver, "one-shot execute", err);

	int r = DRIVER_CALL("execute", driver->execute(d->host, place, call, result, err), err);

	if (r < 0)
		one_shot_result_clear(result);
	return r;
}

int driver_stop(const struct drivers *d, const struct place *place, int64_t wait_ms,
		struct error *err)
{
	const struct driver *driver = drivers_require(d, place->driver, err);

	if (!driver)
		return -1;
	if (!driver->stop)
		return lacks(driver, "ending commands", err);
	return DRIVER_CALL("stop", driver->stop(d->host, place, wait_ms, err), err);
}
