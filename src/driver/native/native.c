/*
 * Maker `native`: places on this host behind walls of Berth's own (src/sandbox/, built by
 * the keeper). This file is config and policy only. The keeper has the truth about what exists:
 * each place carries its provider ref as a label, and files that outlive a relay are in a store
 * named after it.
 *
 * A place is made when it is acquired, not with its first command: what stands around it is known
 * before anybody holds it, and what was required and cannot be had refuses the lease.
 */
#include "driver/maker.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "base/sha256.h"
#include "base/text.h"
#include "driver/host.h"
#include "driver/native/native_config.h"
#include "driver/native/native_probe.h"
#include "driver/native/native_seccomp.h"
#include "wire/walls.h"

#define MAKE_WAIT_MS 30000
#define STOP_WAIT_MS 30000
#define STORE_NAME_SIZE 33
#define REF "sandbox://" NATIVE_KEY "/"

struct native {
	pthread_mutex_t lock;
	struct seccomp_filter filters[SECCOMP_KINDS];
};

static int native_open_state(struct maker_host *host, int dirfd, const char *path, void **state,
			     struct error *err)
{
	struct native *n = xcalloc(1, sizeof(*n));

	(void)host;
	(void)dirfd;
	(void)path;
	(void)err;
	pthread_mutex_init(&n->lock, NULL);
	*state = n;
	return 0;
}

static void native_free_state(void *state)
{
	struct native *n = state;

	for (size_t i = 0; i < SECCOMP_KINDS; i++)
		seccomp_filter_clear(&n->filters[i]);
	pthread_mutex_destroy(&n->lock);
	free(n);
}

static const struct maker_state_kind STATE = { NATIVE_KEY, native_open_state, native_free_state };

static int filter_for(const struct maker *self, const struct place_view *wanted,
		      const struct seccomp_filter **out, struct error *err)
{
	enum seccomp_kind kind = native_shares(wanted->config.json, wanted->workspace)
					 ? SECCOMP_SHARED
					 : SECCOMP_PLAIN;
	void *state;
	int r = 0;

	if (maker_host_state(self->host, &STATE, &state, err) < 0)
		return -1;

	struct native *n = state;

	pthread_mutex_lock(&n->lock);
	if (!n->filters[kind].whole.data)
		r = seccomp_compile(kind, &n->filters[kind], err);
	pthread_mutex_unlock(&n->lock);
	*out = &n->filters[kind];
	return r;
}

static void store_name(const char *ref, char out[STORE_NAME_SIZE])
{
	char hash[SHA256_HEX_SIZE];

	sha256_hex(ref, strlen(ref), hash);
	snprintf(out, STORE_NAME_SIZE, "%.32s", hash);
}

static json_t *description(const json_t *config)
{
	json_t *out = json_object();

	json_put_str(out, "provider", NATIVE_KEY);
	json_put_ref(out, "root", json_object_get(config, "root"));
	json_put_ref(out, "writable", json_object_get(config, "writable"));
	json_put_ref(out, "network", json_object_get(config, "network"));
	json_put_bool(out, "reuseLease", native_is_reusable(config));
	return out;
}

static char *native_name(const struct maker *self, const struct place_view *wanted)
{
	(void)self;
	return xasprintf(REF "%s", wanted->lease_id);
}

/* Opens the place for commands, as what it is to be made. */
static int open_place(const struct maker *self, const struct place_view *wanted, const char *ref,
		      bool keep, struct error *err)
{
	const struct seccomp_filter *filter;
	_cleanup_buf_ struct buf sandbox = { 0 };
	char store[STORE_NAME_SIZE];
	struct exec_place place = {
		.place_id = wanted->id,
		.generation = wanted->generation,
		.label = ref,
		/* Don't warm the pool for self-tests or for places with a host workspace. */
		.pool = wanted->lease_id && !wanted->workspace ? native_pool(wanted->config.json)
							       : 0,
		.commands = { .own_environment = true },
	};

	if (!wanted->id || !wanted->key)
		return error_set(err, ERR_INTERNAL, "a native place is made for a holding");
	store_name(ref, store);
	if (filter_for(self, wanted, &filter, err) < 0 ||
	    native_sandbox(wanted, keep ? store : NULL, self->host->socket_dir, filter, &sandbox,
			   err) < 0)
		return -1;
	place.sandbox = sandbox.data;
	place.sandbox_len = sandbox.len;
	memcpy(place.key, wanted->key, sizeof(place.key));

	int r = places_open(self->host->places, &place, err);

	wipe(place.key, sizeof(place.key));
	return r;
}

/* Closed again, whatever of it there is. */
static void close_place(const struct maker *self, const struct place_view *wanted)
{
	if (wanted->id)
		places_stop(self->host->places, wanted->id, EXEC_LEASE_LOST, STOP_WAIT_MS, NULL);
}

static void grant(const json_t *config, const char *ref, uint64_t walls, struct made_place *out)
{
	*out = (struct made_place){ .ref = xstrdup(ref), .metadata = description(config) };
	json_put_str(out->metadata, "remoteCwd", "/workspace");
	json_put_new(out->metadata, "boundary", native_boundary(walls));
}

static int make(const struct maker *self, const struct place_view *wanted, const char *ref,
		bool keep, int64_t deadline_ms, struct made_place *out, struct error *err)
{
	uint64_t walls = 0;

	if (open_place(self, wanted, ref, keep, err) < 0 ||
	    places_make(self->host->places, wanted->id, wanted->generation,
			deadline_ms > 0 ? deadline_ms : MAKE_WAIT_MS, &walls, err) < 0) {
		close_place(self, wanted);
		return -1;
	}
	grant(wanted->config.json, ref, walls, out);
	return 0;
}

static int native_acquire(const struct maker *self, const struct place_view *wanted,
			  int64_t deadline_ms, struct made_place *out, struct error *err)
{
	_cleanup_free_ char *ref = native_name(self, wanted);
	bool keep = wanted->keep_files || native_is_reusable(wanted->config.json);

	return make(self, wanted, ref, keep, deadline_ms, out, err);
}

static int native_resume(const struct maker *self, const struct place_view *place,
			 int64_t deadline_ms, struct made_place *out, struct error *err)
{
	char store[STORE_NAME_SIZE];

	store_name(place->ref, store);
	if (!places_has_store(self->host->places, store))
		return 0;
	if (make(self, place, place->ref, true, deadline_ms, out, err) < 0)
		return -1;
	json_put_bool(out->metadata, "resumedLease", true);
	return 1;
}

static int remove_files(const struct maker *self, const char *ref, struct error *err)
{
	char store[STORE_NAME_SIZE];

	store_name(ref, store);
	return places_remove_store(self->host->places, store, STOP_WAIT_MS, err);
}

static int native_destroy(const struct maker *self, const struct place_view *place,
			  int64_t deadline_ms, struct error *err)
{
	if (places_stop_label(self->host->places, place->ref,
			      deadline_ms > 0 ? deadline_ms : STOP_WAIT_MS, err) < 0)
		return -1;
	return remove_files(self, place->ref, err);
}

static void describe_failure(const json_t *config, const struct error *why, struct probe *out)
{
	*out = (struct probe){
		.driver = DRIVER_SANDBOX,
		.summary = xasprintf("A native place cannot be made: %s", why->message),
		.details = description(config),
	};
}

static int probe_made(const struct maker *self, const struct place_view *wanted,
		      const struct made_place *made, struct probe *out, struct error *err)
{
	_cleanup_free_ char *path = NULL;
	json_t *evidence = NULL;
	struct native_probe p = {
		.place_id = wanted->id,
		.generation = wanted->generation,
		.network = str_equal(json_str(wanted->config.json, "network"), "host"),
	};
	bool ok;

	if (maker_store_dir(self->host->store, NATIVE_KEY, &p.dirfd, &path, err) < 0)
		return -1;
	p.state_path = path;
	if (native_attempts(self->host->places, &p, &evidence, &ok, err) < 0)
		return -1;
	*out = (struct probe){
		.ok = ok,
		.driver = DRIVER_SANDBOX,
		.summary = xstrdup(ok ? "A native place was made and holds."
				      : "A native place was made and does not hold: see evidence."),
		.details = json_deep_copy(made->metadata),
	};
	json_put_new(out->details, "evidence", evidence);
	json_put_time(out->details, "testedAt", clock_now(self->host->clock));
	native_keep_evidence(p.dirfd, out->details);
	return 0;
}

/* Whoever asks was judged by the config alone: no command of theirs will run in this place. */
static int native_probe(const struct maker *self, const struct place_view *wanted,
			int64_t deadline_ms, struct probe *out, struct error *err)
{
	static const struct allow_caller ANYTHING = { .trusted = true };
	_cleanup_(place_bounds_clear) struct place_bounds bounds = { 0 };
	struct place_needs needs = { 0 };
	_cleanup_(made_place_clear) struct made_place made = { 0 };
	const json_t *config = wanted->config.json;
	_cleanup_error_ struct error why = { 0 };
	_cleanup_free_ char *ref = NULL;
	uint8_t key[PLACE_KEY_SIZE];
	char place_id[ID_SIZE];
	struct place_view tried = {
		.config = wanted->config,
		.id = place_id,
		.generation = 1,
		.key = key,
		.bounds = &bounds,
	};
	int r;

	native_needs(config, &needs);
	if (allow_needs(&ANYTHING, &needs, &bounds, err) < 0)
		return -1;

	id_new(place_id);
	random_bytes(key, sizeof(key));
	/* No place of the database: an inventory must not take it for a lost one. */
	ref = xasprintf("selftest/%s", place_id);
	if (make(self, &tried, ref, false, deadline_ms, &made, &why) < 0) {
		describe_failure(config, &why, out);
		return 0;
	}
	r = probe_made(self, &tried, &made, out, &why);
	places_stop(self->host->places, place_id, EXEC_CANCELLED, STOP_WAIT_MS, NULL);
	if (r < 0)
		describe_failure(config, &why, out);
	(void)err;
	return 0;
}

static int native_release(const struct maker *self, const struct place_view *place,
			  const char *status, int64_t deadline_ms, struct error *err)
{
	(void)status;
	(void)deadline_ms;
	return native_is_reusable(place->config.json) ? 0 : remove_files(self, place->ref, err);
}

static int native_inventory(const struct maker *self, int64_t deadline_ms,
			    struct maker_inventory *out, struct error *err)
{
	_cleanup_strv_ char **labels = NULL;

	(void)deadline_ms;
	if (places_labels(self->host->places, &labels, err) < 0)
		return -1;
	out->refs = xcalloc(strv_len(labels) + 1, sizeof(*out->refs));
	for (size_t i = 0, count = 0; labels && labels[i]; i++)
		if (str_starts(labels[i], REF))
			out->refs[count++] = xstrdup(labels[i]);
	return 0;
}

static json_t *native_config_from_metadata(const json_t *metadata)
{
	return str_equal(json_str(metadata, "provider"), NATIVE_KEY) ? description(metadata) : NULL;
}

static char **environment(const json_t *config)
{
	char **env = NULL;
	const char *name;
	json_t *value;

	json_object_foreach (json_object_at(config, "env"), name, value)
		strv_push(&env, xasprintf("%s=%s", name, json_string_value(value)));
	return env;
}

/* It is there or it is lost: made a second time it would be another, and empty. */
static int native_describe(const struct maker *self, const struct place_view *place,
			   struct exec_place *out, struct error *err)
{
	static const char none[1];
	const json_t *config = place->config.json;

	(void)self;
	(void)err;
	out->label = place->ref;
	out->must_exist = true;
	out->sandbox = none;
	out->commands = (struct place_commands){
		.env = environment(config),
		.own_environment = true,
		.wall_ms = json_int(json_object_at(config, "limits"), "wallSeconds", 0) * 1000,
		/* What people meet first: their tools are in a home, and no home is in here. */
		.missing_hint = str_equal(json_str(config, "root"), "host")
					? "A native place has the host's /usr; tools in a home "
					  "directory (nvm, cargo) are there only by a mount, see "
					  "docs/sandboxes.md"
					: NULL,
	};
	return 0;
}

static const struct maker NATIVE = {
	.key = NATIVE_KEY,
	.display_name = "Native",
	.driver = DRIVER_SANDBOX,
	.traits = { .takes_relay = true,
		    .mounts_workspace = true,
		    .lists = true,
		    .names_ahead = true,
		    .fleeting = true,
		    .reusable = true,
		    .fencing = FENCING_PLACE },
	.config = &NATIVE_CONFIG,
	.needs = native_needs,
	.normalize = native_normalize,
	.probe = native_probe,
	.name = native_name,
	.acquire = native_acquire,
	.resume = native_resume,
	.release = native_release,
	.destroy = native_destroy,
	.inventory = native_inventory,
	.config_from_metadata = native_config_from_metadata,
	.describe = native_describe,
};
MAKER_REGISTER(NATIVE);
