/*
 * The only callers of makers: each finds the maker, makes the view of the place, and stands between
 * two fault points.
 */
#include "driver/maker.h"

#include "base/fault.h"
#include "base/text.h"

#define DEADLINE_MS 30000 /* of one call, and on top of the config's own */
#define DEADLINE_MAX_MS ((int64_t)365 * 24 * 3600 * 1000)

/*
 * Around one call: a point where nothing has been asked for yet, and one where it has been done and
 * the server does not know. An error at the latter loses the answer, so the caller gives back what
 * the answer held.
 */
#define MAKER_CALL(op, call, err)                                                                  \
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

void runtime_config_clear(struct runtime_config *config)
{
	json_decref(config->json);
	config->json = NULL;
}

void probe_clear(struct probe *probe)
{
	free(probe->summary);
	json_decref(probe->details);
	*probe = (struct probe){ 0 };
}

json_t *probe_json(const struct probe *probe)
{
	json_t *out = json_object();

	json_put_bool(out, "ok", probe->ok);
	json_put_str(out, "driver", driver_kind_name(probe->driver));
	json_put_str(out, "summary", probe->summary);
	json_put_ref(out, "details", probe->details);
	return out;
}

void maker_inventory_clear(struct maker_inventory *inventory)
{
	strv_free(inventory->refs);
	inventory->refs = NULL;
}

void place_realization_clear(struct place_realization *realization)
{
	free(realization->cwd);
	json_decref(realization->said);
	json_decref(realization->metadata);
	*realization = (struct place_realization){ 0 };
}

static int lacks(const struct maker *maker, const char *operation, struct error *err)
{
	return error_set(err, ERR_UNSUPPORTED_ENV, "Environment driver \"%s\" does not support %s.",
			 driver_kind_name(maker->driver), operation);
}

int64_t maker_deadline_ms(struct stored_config config)
{
	int64_t own = MAX_OF(json_int(config.json, "timeoutMs", 0),
			     json_int(config.json, "bridgeRequestTimeoutMs", 0));

	return (own > 0 ? MIN_OF(own, DEADLINE_MAX_MS) : 0) + DEADLINE_MS;
}

/* Stored config and runtime config */

json_t *place_config_stored(struct stored_config config)
{
	json_t *stored;

	if (!config.json || json_object_size(json_object_at(config.json, "env")) == 0)
		return config.json ? json_incref(config.json) : json_object();
	stored = json_copy(config.json);
	json_object_del(stored, "env");
	json_put_bool(stored, PLACE_ENV_ELSEWHERE, true);
	return stored;
}

static bool has_values_elsewhere(struct stored_config config)
{
	return json_bool(config.json, PLACE_ENV_ELSEWHERE, false);
}

/*
 * Before every call. A place is ended without the values that its environment has: they may be gone
 * with it, and ending must not depend on them.
 */
enum resolving { TO_USE, TO_END };

static int resolve(const struct maker_host *host, struct stored_config stored,
		   const char *environment_id, enum resolving why, struct runtime_config *out,
		   struct error *err)
{
	_cleanup_environment_ struct environment environment = { 0 };

	if (why == TO_END || !has_values_elsewhere(stored)) {
		out->json = stored.json ? json_incref(stored.json) : json_object();
		return 0;
	}
	if (!host->db || !id_is_set(environment_id))
		return error_set(err, ERR_ENV_NOT_FOUND,
				 "the environment that has the values of this place's env is gone: "
				 "release the lease");
	if (environment_get(host->db, environment_id, &environment, err) < 0)
		return -1;
	out->json = json_copy(stored.json);
	json_object_del(out->json, PLACE_ENV_ELSEWHERE);
	json_put_ref(out->json, "env", json_object_at(environment.config, "env"));
	return 0;
}

/*
 * The config a place is finished with: the one recorded on it, whatever its environment says today.
 * A place without a usable one can still be ended by its maker and name.
 */
static struct stored_config recorded_config(const struct maker *maker, const struct place *place)
{
	json_t *config;

	if (maker->driver != DRIVER_SANDBOX ||
	    str_equal(json_str(place->config.json, "provider"), maker->key))
		return (struct stored_config){ json_incref(place->config.json) };
	config = maker->config_from_metadata ? maker->config_from_metadata(place->metadata) : NULL;
	if (!config) {
		config = json_object();
		json_put_str(config, "provider", maker->key);
	}
	return (struct stored_config){ config };
}

/* The place of a row, and the maker that it is recorded with. NULL: err says why. */
static const struct maker *view_place(const struct makers *makers, const struct place *place,
				      enum resolving why, struct place_view *view,
				      int64_t *deadline_ms, struct error *err)
{
	const struct maker *maker = makers_require(makers, place->driver, place->provider, err);

	*view = (struct place_view){ 0 };
	if (!maker)
		return NULL;

	struct stored_config config = recorded_config(maker, place);

	*view = (struct place_view){
		.id = id_is_set(place->id) ? place->id : NULL,
		.ref = place->provider_ref,
		.metadata = place->metadata,
		.company_id = id_is_set(place->company_id) ? place->company_id : NULL,
		.environment_id = id_is_set(place->environment_id) ? place->environment_id : NULL,
		.lease_id = id_is_set(place->holder_lease) ? place->holder_lease : NULL,
		.generation = place->generation,
	};
	if (deadline_ms)
		*deadline_ms = maker_deadline_ms(config);
	if (resolve(makers->host, config, view->environment_id, why, &view->config, err) < 0)
		maker = NULL;
	json_decref(config.json);
	return maker;
}

static void view_clear(struct place_view *view)
{
	runtime_config_clear(&view->config);
}
#define _cleanup_view_ _cleanup_(view_clear)

static struct stored_config config_of(const struct place_request *request)
{
	return request->config.json ? request->config
				    : (struct stored_config){ request->environment->config };
}

/* The place of a request, and the maker that its config names. */
static const struct maker *view_request(const struct makers *makers,
					const struct place_request *request,
					struct place_view *view, struct error *err)
{
	const struct environment *environment = request->environment;
	struct stored_config config = config_of(request);
	const struct maker *maker =
		makers_require(makers, environment->driver, json_str(config.json, "provider"), err);

	*view = (struct place_view){
		.id = request->place_id,
		.company_id = environment->company_id,
		.environment_id = environment->id,
		.lease_id = request->lease_id,
		.run_id = request->run_id,
		.issue_id = request->issue_id,
		.agent_id = request->agent_id,
		.workspace_id = request->workspace_id,
		.generation = request->generation,
		.key = request->key,
		.keep_files = request->keep_files,
		.workspace = request->workspace,
		.bounds = request->bounds,
	};
	if (maker && resolve(makers->host, config, environment->id, TO_USE, &view->config, err) < 0)
		return NULL;
	return maker;
}

/* A place without the files that were asked for would be another place. */
static int refuse_workspace(const struct maker *maker, const struct place_view *wanted,
			    struct error *err)
{
	if (!wanted->workspace || maker->traits.mounts_workspace)
		return 0;
	return error_set(err, ERR_UNPROCESSABLE,
			 "places of provider \"%s\" cannot have a directory of this host mounted: "
			 "copy the workspace",
			 maker->key);
}

/* The calls */

static int probe_missing(const char *key, struct probe *out)
{
	*out = (struct probe){
		.driver = DRIVER_SANDBOX,
		.summary = xasprintf("Sandbox provider \"%s\" is not installed.", key),
		.details = json_object(),
	};
	json_put_str(out->details, "provider", key);
	return 0;
}

static int probe_wanted(const struct makers *makers, const struct environment *environment,
			struct probe *out, struct error *err)
{
	_cleanup_json_ json_t *config =
		maker_normalize(makers, environment->driver, environment->config, false, err);
	_cleanup_view_ struct place_view view = { 0 };
	struct stored_config stored = { config };
	const struct maker *maker;

	if (!config)
		return -1;
	maker = makers_find(makers, environment->driver, json_str(config, "provider"));
	if (!maker)
		return probe_missing(json_str(config, "provider"), out);
	view.company_id = environment->company_id;
	view.environment_id = environment->id;
	if (resolve(makers->host, stored, environment->id, TO_USE, &view.config, err) < 0)
		return -1;
	return maker->probe(maker, &view, maker_deadline_ms(stored), out, err);
}

int maker_probe(const struct makers *makers, const struct environment *environment,
		struct probe *out, struct error *err)
{
	const struct maker *maker = NULL;
	int r;

	*out = (struct probe){ 0 };
	if (environment->driver != DRIVER_SANDBOX) {
		maker = makers_require(makers, environment->driver, NULL, err);
		if (!maker)
			return -1;
		if (!maker->probe)
			return lacks(maker, "probing", err);
	}
	r = MAKER_CALL("probe", probe_wanted(makers, environment, out, err), err);
	if (r < 0)
		probe_clear(out);
	return r;
}

int maker_name_place(const struct makers *makers, const struct place_request *request,
		     char **provider, char **provider_ref, struct error *err)
{
	_cleanup_view_ struct place_view view = { 0 };
	const struct maker *maker = view_request(makers, request, &view, err);

	*provider = *provider_ref = NULL;
	if (!maker)
		return -1;
	if (!maker->name)
		return lacks(maker, "leases", err);
	*provider = xstrdup(maker->key);
	*provider_ref = maker->name(maker, &view);
	return 0;
}

bool maker_reuses(const struct makers *makers, const struct environment *environment)
{
	return environment_traits(makers, environment).reusable &&
	       json_is_true(json_object_get(environment->config, "reuseLease"));
}

int maker_check_mount(const struct makers *makers, const struct environment *environment,
		      struct error *err)
{
	const struct traits traits = environment_traits(makers, environment);

	if (traits.mounts_workspace)
		return 0;
	return error_set(err, ERR_UNPROCESSABLE,
			 "places of this environment (%s) cannot have a directory of this host "
			 "mounted as their workspace: %s",
			 driver_kind_name(environment->driver),
			 traits.is_host ? "they work in it directly" : "copy it");
}

struct place_needs maker_needs(const struct makers *makers, enum driver_kind driver,
			       const json_t *config)
{
	const struct maker *maker = makers_find(makers, driver, json_str(config, "provider"));
	struct place_needs needs = { 0 };

	if (maker && maker->needs)
		maker->needs(config, &needs);
	return needs;
}

int maker_acquire(const struct makers *makers, const struct place_request *request,
		  struct place_grant *out, struct error *err)
{
	_cleanup_(made_place_clear) struct made_place made = { 0 };
	_cleanup_view_ struct place_view view = { 0 };
	const struct maker *maker = view_request(makers, request, &view, err);

	*out = (struct place_grant){ 0 };
	if (!maker)
		return -1;
	if (!maker->acquire)
		return lacks(maker, "leases", err);
	if (refuse_workspace(maker, &view, err) < 0 ||
	    MAKER_CALL("acquire", maker->acquire(maker, &view, request->deadline_ms, &made, err),
		       err) < 0)
		return -1;
	place_grant_fill(maker, request, &made, out);
	return 0;
}

int maker_resume(const struct makers *makers, const struct place_request *request,
		 const struct place *place, struct place_grant *out, struct error *err)
{
	_cleanup_(made_place_clear) struct made_place made = { 0 };
	_cleanup_view_ struct place_view view = { 0 };
	const struct maker *maker = view_request(makers, request, &view, err);
	int r;

	*out = (struct place_grant){ 0 };
	if (!maker)
		return -1;
	if (!maker->resume)
		return lacks(maker, "lease resume", err);
	if (refuse_workspace(maker, &view, err) < 0)
		return -1;
	view.ref = place->provider_ref;
	view.metadata = place->metadata;
	r = MAKER_CALL("resume", maker->resume(maker, &view, request->deadline_ms, &made, err),
		       err);
	if (r > 0)
		place_grant_fill(maker, request, &made, out);
	return r;
}

int maker_release(const struct makers *makers, const struct place *place, const char *status,
		  struct error *err)
{
	_cleanup_view_ struct place_view view = { 0 };
	int64_t deadline_ms;
	const struct maker *maker = view_place(makers, place, TO_END, &view, &deadline_ms, err);

	if (!maker)
		return -1;
	if (!maker->release)
		return lacks(maker, "lease release", err);
	return MAKER_CALL("release", maker->release(maker, &view, status, deadline_ms, err), err);
}

int maker_destroy(const struct makers *makers, const struct place *place, struct error *err)
{
	_cleanup_view_ struct place_view view = { 0 };
	int64_t deadline_ms;
	const struct maker *maker = view_place(makers, place, TO_END, &view, &deadline_ms, err);

	if (!maker)
		return -1;
	if (!maker->destroy)
		return lacks(maker, "lease destroy", err);
	return MAKER_CALL("destroy", maker->destroy(maker, &view, deadline_ms, err), err);
}

int maker_inventory(const struct makers *makers, enum driver_kind driver, const char *provider,
		    struct maker_inventory *out, struct error *err)
{
	const struct maker *maker = makers_find(makers, driver, provider);
	int r;

	*out = (struct maker_inventory){ 0 };
	/* A maker that is not here has no list either. */
	if (!maker || !maker->traits.lists)
		return 0;
	r = MAKER_CALL("inventory", maker->inventory(maker, DEADLINE_MS, out, err), err);
	if (r < 0)
		maker_inventory_clear(out);
	return r < 0 ? -1 : 1;
}

static int realize(const struct maker *maker, const struct place *place,
		   const struct place_view *view, const char *lease_id,
		   const struct place_workspace *workspace, int64_t deadline_ms,
		   struct place_realization *out, struct error *err)
{
	const char *remote, *local;
	json_t *record;

	if (maker->realize && maker->realize(maker, view, workspace, deadline_ms, out, err) < 0)
		return -1;
	record = realization_record(place, lease_id, workspace, out->said);
	remote = json_str(json_object_at(record, "remote"), "path");
	local = json_str(json_object_at(record, "local"), "path");
	if (!out->cwd)
		out->cwd = xstrdup(remote ? remote : local);
	out->metadata = json_object();
	json_put_new(out->metadata, "workspaceRealization", record);
	return 0;
}

int maker_realize(const struct makers *makers, const struct place *place, const char *lease_id,
		  const struct place_workspace *workspace, struct place_realization *out,
		  struct error *err)
{
	_cleanup_view_ struct place_view view = { 0 };
	int64_t deadline_ms;
	const struct maker *maker = view_place(makers, place, TO_USE, &view, &deadline_ms, err);
	int r;

	*out = (struct place_realization){ 0 };
	if (!maker)
		return -1;
	if (!maker->acquire)
		return lacks(maker, "workspace realization", err);
	view.lease_id = lease_id;
	r = MAKER_CALL("realize",
		       realize(maker, place, &view, lease_id, workspace, deadline_ms, out, err),
		       err);
	if (r < 0)
		place_realization_clear(out);
	return r;
}

/* What the dialer of a place, or the calls of one without a relay, need while it is open. */
struct caller {
	const struct makers *makers;
	struct place place;
	enum resolving why;
};

static void caller_free(void *arg)
{
	struct caller *caller = arg;

	place_clear(&caller->place);
	free(caller);
}

static int execute(void *arg, const struct one_shot_call *call, struct one_shot_result *result,
		   struct error *err)
{
	struct caller *caller = arg;
	_cleanup_view_ struct place_view view = { 0 };
	const struct maker *maker =
		view_place(caller->makers, &caller->place, TO_USE, &view, NULL, err);
	int r;

	if (!maker)
		return -1;
	r = MAKER_CALL("execute", maker->execute(maker, &view, call, result, err), err);
	if (r < 0)
		one_shot_result_clear(result);
	return r;
}

static int get_dialer(void *arg, int64_t deadline, struct dialer **out, struct error *err)
{
	struct caller *caller = arg;
	_cleanup_view_ struct place_view view = { 0 };
	const struct maker *maker =
		view_place(caller->makers, &caller->place, caller->why, &view, NULL, err);

	/* No fault points here: a dialer has its own around what it does. */
	return maker ? maker->dialer(maker, &view, MAX_OF(deadline - boottime_ms(), 1), out, err)
		     : -1;
}

static struct caller *caller_new(const struct makers *makers, const struct place *place,
				 enum resolving why)
{
	struct caller *caller = xcalloc(1, sizeof(*caller));

	caller->makers = makers;
	caller->why = why;
	id_copy(caller->place.id, place->id);
	id_copy(caller->place.company_id, place->company_id);
	id_copy(caller->place.environment_id, place->environment_id);
	caller->place.driver = place->driver;
	caller->place.provider = xstrdup(place->provider);
	caller->place.provider_ref = xstrdup(place->provider_ref);
	caller->place.config.json = json_deep_copy(place->config.json);
	caller->place.metadata = json_deep_copy(place->metadata);
	return caller;
}

static struct dialer_source dialer_of(const struct makers *makers, const struct maker *maker,
				      const struct place *place, enum resolving why)
{
	if (!maker->dialer)
		return (struct dialer_source){ 0 };
	return (struct dialer_source){ get_dialer, caller_new(makers, place, why), caller_free };
}

static bool is_without_relay(const struct place *place)
{
	return json_is_true(json_object_get(place->metadata, PLACE_NO_RELAY));
}

static int open_without_relay(const struct makers *makers, const struct place *place,
			      struct error *err)
{
	const char *directory = json_str_nonblank(place->metadata, "remoteCwd");
	struct exec_place there = { .place_id = place->id,
				    .generation = place->generation,
				    .root = directory,
				    .cwd = directory };

	if (!directory)
		return error_set(err, ERR_PROTOCOL,
				 "provider \"%s\" does not report where its place is",
				 place->provider);
	there.one_shot =
		(struct one_shot){ execute, caller_new(makers, place, TO_USE), caller_free };
	return places_open(makers->host->places, &there, err);
}

static int open_with_relay(const struct makers *makers, const struct maker *maker,
			   const struct place *place, const struct place_view *view,
			   struct error *err)
{
	struct exec_place here = { .place_id = place->id,
				   .generation = place->generation,
				   .absence_ms = place->absence_ms };
	int r;

	if (!hex_decode(here.key, place->relay_key, sizeof(here.key)))
		return error_set(err, ERR_INTERNAL, "place %s has no key to its relay", place->id);
	r = maker->describe(maker, view, &here, err);
	if (r == 0) {
		here.dialer = dialer_of(makers, maker, place, TO_USE);
		r = places_open(makers->host->places, &here, err);
	}
	wipe(here.key, sizeof(here.key));
	strv_free(here.commands.env);
	return r;
}

int maker_open(const struct makers *makers, const struct place *place, struct error *err)
{
	_cleanup_view_ struct place_view view = { 0 };
	const struct maker *maker = view_place(makers, place, TO_USE, &view, NULL, err);

	if (!maker)
		return -1;
	if (!maker->describe)
		return lacks(maker, "command execution", err);
	if (is_without_relay(place))
		return maker->execute ? open_without_relay(makers, place, err)
				      : lacks(maker, "one-shot execute", err);
	return MAKER_CALL("open", open_with_relay(makers, maker, place, &view, err), err);
}

/* The values may have changed since the place was opened. */
static int refresh_commands(const struct makers *makers, const struct maker *maker,
			    const struct place_view *view, struct error *err)
{
	struct exec_place here = { .place_id = view->id, .generation = view->generation };
	int r = maker->describe(maker, view, &here, err);

	if (r == 0)
		places_set_commands(makers->host->places, &here);
	strv_free(here.commands.env);
	return r;
}

static int start(const struct makers *makers, const struct maker *maker, const struct place *place,
		 const struct exec_spec *spec, struct exec **exec, struct error *err)
{
	_cleanup_view_ struct place_view view = { 0 };

	if (is_without_relay(place))
		return exec_start(makers->host->places, spec, exec, err);
	if ((maker->prepare || has_values_elsewhere(place->config)) &&
	    !view_place(makers, place, TO_USE, &view, NULL, err))
		return -1;
	if (maker->prepare && maker->prepare(maker, &view, spec, err) < 0)
		return -1;
	if (has_values_elsewhere(place->config) && refresh_commands(makers, maker, &view, err) < 0)
		return -1;
	return exec_start(makers->host->places, spec, exec, err);
}

int maker_start(const struct makers *makers, const struct place *place,
		const struct exec_spec *spec, struct exec **exec, struct error *err)
{
	const struct maker *maker = makers_require(makers, place->driver, place->provider, err);
	int r;

	*exec = NULL;
	if (!maker)
		return -1;
	if (!maker->describe)
		return lacks(maker, "command execution", err);
	if (maker->traits.is_host && makers->host->no_local)
		return refuse_host(err);
	r = MAKER_CALL("start", start(makers, maker, place, spec, exec, err), err);
	/* The caller gets an error and will not wait for it: nobody else would end this command. */
	if (r < 0 && *exec) {
		struct exec_result result;

		places_cancel(makers->host->places, spec->exec_id, EXEC_CANCELLED, true);
		exec_wait(*exec, &result, NULL);
		*exec = NULL;
	}
	return r;
}

int maker_stop(const struct makers *makers, const struct place *place, int64_t wait_ms,
	       struct error *err)
{
	const struct maker *maker = makers_require(makers, place->driver, place->provider, err);
	struct dialer_source dialer;
	int r;

	if (!maker)
		return -1;
	if (!maker->describe)
		return lacks(maker, "ending commands", err);
	dialer = dialer_of(makers, maker, place, TO_END);
	r = MAKER_CALL("stop",
		       places_stop_through(makers->host->places, place->id, &dialer,
					   EXEC_LEASE_LOST, wait_ms, err),
		       err);
	if (dialer.free)
		dialer.free(dialer.arg);
	return r;
}
