/*
 * The `native` provider: places on this host behind walls of Berth's own (src/sandbox/, built by
 * the keeper). This file is config and policy only. The keeper has the truth about what exists:
 * each place carries its provider ref as a label, and files that outlive a relay are in a store
 * named after it.
 *
 * A place is made when it is acquired, not with its first command: what stands around it is known
 * before anybody holds it, and what was required and cannot be had refuses the lease.
 */
#include "driver/provider.h"

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

static int native_open_state(struct provider_host *host, int dirfd, const char *path, void **state,
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

static const struct provider_state_kind STATE = { NATIVE_KEY, native_open_state,
						  native_free_state };

static int filter_for(struct provider_host *host, const struct provider_request *request,
		      const struct seccomp_filter **out, struct error *err)
{
	enum seccomp_kind kind =
		native_shares(request->config, request->workspace) ? SECCOMP_SHARED : SECCOMP_PLAIN;
	void *state;
	int r = 0;

	if (provider_host_state(host, &STATE, &state, err) < 0)
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

static char *native_ref(const struct provider_request *request)
{
	return xasprintf(REF "%s", request->lease_id);
}

/* Opens the place for commands, as what it is to be made. */
static int open_place(struct provider_host *host, const struct provider_request *request,
		      const char *ref, bool keep, struct error *err)
{
	const struct seccomp_filter *filter;
	_cleanup_buf_ struct buf sandbox = { 0 };
	char store[STORE_NAME_SIZE];
	struct exec_place place = {
		.place_id = request->place_id,
		.generation = request->generation,
		.label = ref,
		/* A self-test is no sign that more will be wanted, somebody's own files neither. */
		.pool = request->lease_id && !request->workspace ? native_pool(request->config) : 0,
	};

	if (!request->place_id || !request->key)
		return error_set(err, ERR_INTERNAL, "a native place is made for a holding");
	store_name(ref, store);
	if (filter_for(host, request, &filter, err) < 0 ||
	    native_sandbox(request, keep ? store : NULL, provider_host_socket_dir(host), filter,
			   &sandbox, err) < 0)
		return -1;
	place.sandbox = sandbox.data;
	place.sandbox_len = sandbox.len;
	memcpy(place.key, request->key, sizeof(place.key));

	int r = places_open(provider_host_places(host), &place, err);

	wipe(place.key, sizeof(place.key));
	return r;
}

/* Closed again, whatever of it there is. */
static void close_place(struct provider_host *host, const struct provider_request *request)
{
	if (request->place_id)
		places_stop(provider_host_places(host), request->place_id, EXEC_LEASE_LOST,
			    STOP_WAIT_MS, NULL);
}

static int64_t make_wait(const struct provider_request *request)
{
	return request->deadline_ms > 0 ? request->deadline_ms : MAKE_WAIT_MS;
}

static void grant(const json_t *config, const char *ref, uint64_t walls, struct provider_lease *out)
{
	*out = (struct provider_lease){ .ref = xstrdup(ref), .metadata = description(config) };
	json_put_str(out->metadata, "remoteCwd", "/workspace");
	json_put_new(out->metadata, "boundary", native_boundary(walls));
}

static int make(struct provider_host *host, const struct provider_request *request, const char *ref,
		bool keep, struct provider_lease *out, struct error *err)
{
	struct places *places = provider_host_places(host);
	uint64_t walls = 0;

	if (open_place(host, request, ref, keep, err) < 0 ||
	    places_make(places, request->place_id, request->generation, make_wait(request), &walls,
			err) < 0) {
		close_place(host, request);
		return -1;
	}
	grant(request->config, ref, walls, out);
	return 0;
}

static bool keeps_files(const struct provider_request *request)
{
	return request->keep_files || native_is_reusable(request->config);
}

static int native_acquire(struct provider_host *host, const struct provider_request *request,
			  struct provider_lease *out, struct error *err)
{
	_cleanup_free_ char *ref = native_ref(request);

	return make(host, request, ref, keeps_files(request), out, err);
}

static int native_resume(struct provider_host *host, const struct provider_request *request,
			 const char *ref, struct provider_lease *out, struct error *err)
{
	char store[STORE_NAME_SIZE];

	store_name(ref, store);
	if (!places_has_store(provider_host_places(host), store))
		return 0;
	if (make(host, request, ref, true, out, err) < 0)
		return -1;
	json_put_bool(out->metadata, "resumedLease", true);
	return 1;
}

static int remove_files(struct provider_host *host, const char *ref, struct error *err)
{
	char store[STORE_NAME_SIZE];

	store_name(ref, store);
	return places_remove_store(provider_host_places(host), store, STOP_WAIT_MS, err);
}

static int native_destroy(struct provider_host *host, const json_t *config, const char *ref,
			  struct error *err)
{
	(void)config;
	if (places_stop_label(provider_host_places(host), ref, STOP_WAIT_MS, err) < 0)
		return -1;
	return remove_files(host, ref, err);
}

static void describe_failure(const json_t *config, const struct error *why, struct probe *out)
{
	*out = (struct probe){
		.driver = DRIVER_SANDBOX,
		.summary = xasprintf("A native place cannot be made: %s", why->message),
		.details = description(config),
	};
}

static int probe_made(struct provider_host *host, const struct provider_request *request,
		      const struct provider_lease *lease, struct probe *out, struct error *err)
{
	_cleanup_free_ char *path = NULL;
	json_t *evidence = NULL;
	struct native_probe p = { .place_id = request->place_id,
				  .generation = request->generation,
				  .network =
					  str_equal(json_str(request->config, "network"), "host") };
	bool ok;

	if (provider_host_dir(host, NATIVE_KEY, &p.dirfd, &path, err) < 0)
		return -1;
	p.state_path = path;
	if (native_attempts(provider_host_places(host), &p, &evidence, &ok, err) < 0)
		return -1;
	*out = (struct probe){
		.ok = ok,
		.driver = DRIVER_SANDBOX,
		.summary = xstrdup(ok ? "A native place was made and holds."
				      : "A native place was made and does not hold: see evidence."),
		.details = json_deep_copy(lease->metadata),
	};
	json_put_new(out->details, "evidence", evidence);
	json_put_time(out->details, "testedAt", clock_now(provider_host_clock(host)));
	native_keep_evidence(p.dirfd, out->details);
	return 0;
}

/* Whoever asks was judged by the config alone: no command of theirs will run in this place. */
static int native_probe(struct provider_host *host, const json_t *config, struct probe *out,
			struct error *err)
{
	static const struct allow_caller ANYTHING = { .trusted = true };
	_cleanup_(place_bounds_clear) struct place_bounds bounds = { 0 };
	struct place_needs needs = { 0 };
	_cleanup_(provider_lease_clear) struct provider_lease lease = { 0 };
	_cleanup_error_ struct error why = { 0 };
	_cleanup_free_ char *ref = NULL;
	uint8_t key[PLACE_KEY_SIZE];
	char place_id[ID_SIZE];
	struct provider_request request = {
		.config = config,
		.place_id = place_id,
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
	if (make(host, &request, ref, false, &lease, &why) < 0) {
		describe_failure(config, &why, out);
		return 0;
	}
	r = probe_made(host, &request, &lease, out, &why);
	places_stop(provider_host_places(host), place_id, EXEC_CANCELLED, STOP_WAIT_MS, NULL);
	if (r < 0)
		describe_failure(config, &why, out);
	(void)err;
	return 0;
}

static int native_release(struct provider_host *host, const json_t *config, const char *ref,
			  const char *status, struct error *err)
{
	(void)status;
	return native_is_reusable(config) ? 0 : remove_files(host, ref, err);
}

static int native_inventory(struct provider_host *host, struct provider_inventory *out,
			    struct error *err)
{
	_cleanup_strv_ char **labels = NULL;

	if (places_labels(provider_host_places(host), &labels, err) < 0)
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

/* It is there or it is lost: made a second time it would be another, and empty. */
static int native_open(struct provider_host *host, const json_t *config, const char *ref,
		       struct exec_place *place, struct error *err)
{
	static const char none[1];

	(void)config;
	place->label = ref;
	place->must_exist = true;
	place->sandbox = none;
	return places_open(provider_host_places(host), place, err);
}

static char **whole_environment(const json_t *config, char *const *given)
{
	char **all = NULL;
	const char *name;
	json_t *value;

	json_object_foreach (json_object_at(config, "env"), name, value) {
		size_t len = strlen(name);
		bool is_given = false;

		for (char *const *e = given; e && *e; e++)
			is_given |= strncmp(*e, name, len) == 0 && (*e)[len] == '=';
		if (!is_given)
			strv_push(&all, xasprintf("%s=%s", name, json_string_value(value)));
	}
	for (char *const *e = given; e && *e; e++)
		strv_push(&all, xstrdup(*e));
	return all;
}

/* What people meet first: their own tools are in a home, and no home is in here. */
static void error_explain(const json_t *config, struct error *err)
{
	char said[200];

	snprintf(said, sizeof(said), "%.199s", err->message);
	if (str_equal(json_str(config, "root"), "host"))
		error_set(err, ERR_COMMAND_NOT_FOUND,
			  "%s. A native place has the host's /usr; tools in a home directory (nvm, "
			  "cargo) are there only by a mount, see docs/sandboxes.md",
			  said);
}

static int native_start(struct provider_host *host, const json_t *config, const char *ref,
			const json_t *metadata, const struct exec_spec *spec, struct exec **exec,
			struct error *err)
{
	_cleanup_strv_ char **env = whole_environment(config, spec->env);
	int64_t most = json_int(json_object_at(config, "limits"), "wallSeconds", 0) * 1000;
	struct exec_spec there = *spec;

	(void)ref;
	(void)metadata;
	there.env = env;
	there.own_environment = true;
	if (most > 0 && (there.timeout_ms == 0 || there.timeout_ms > most))
		there.timeout_ms = most;
	if (exec_start(provider_host_places(host), &there, exec, err) == 0)
		return 0;
	if (err && err->code == ERR_COMMAND_NOT_FOUND)
		error_explain(config, err);
	return -1;
}

static int native_stop(struct provider_host *host, const json_t *config, const char *ref,
		       const char *place_id, int64_t wait_ms, struct error *err)
{
	(void)config;
	(void)ref;
	return places_stop(provider_host_places(host), place_id, EXEC_LEASE_LOST, wait_ms, err);
}

const struct provider PROVIDER_NATIVE = {
	.key = NATIVE_KEY,
	.display_name = "Native",
	.config = &NATIVE_CONFIG,
	.fencing = FENCING_PLACE,
	.discoverable = true,
	.supports_reuse = true,
	.fleeting = true,
	.mounts_workspace = true,
	.needs = native_needs,
	.normalize = native_normalize,
	.probe = native_probe,
	.ref = native_ref,
	.acquire = native_acquire,
	.resume = native_resume,
	.release = native_release,
	.destroy = native_destroy,
	.inventory = native_inventory,
	.config_from_metadata = native_config_from_metadata,
	.open = native_open,
	.start = native_start,
	.stop = native_stop,
};
