/*
 * Maker `fake`: deterministic, without a boundary, and willing to misbehave (fake_faults.h).
 * It stands in for a cloud in every test of leases, so it keeps its own truth: an inventory on disk
 * outside the database, and for each place a scratch directory in which commands really run.
 *
 *     <providers>/fake/journal.jsonl             what exists (fake_journal.h)
 *     <providers>/fake/places/<hash>/workspace   the files of one place; <hash> is of its ref
 *
 * Acquire writes the journal, then makes the directory; destroy removes the directory, then writes
 * the journal. So whatever crashes in between, there is never a directory that the inventory does
 * not tell of, and doing either again does no harm.
 *
 * With `relay: false` it stands in for a cloud that offers nothing but "execute": its places take
 * no relay, and commands run by fake_execute.h. They are found again by a mark in their
 * environment, so that what a killed server left running ends with the place.
 */
#include "driver/maker.h"

#include <fcntl.h>
#include <string.h>
#include "base/fault.h"
#include "base/fd.h"
#include "base/sha256.h"
#include "base/path.h"
#include "base/text.h"
#include "driver/config.h"
#include "driver/fake/fake_execute.h"
#include "driver/fake/fake_faults.h"
#include "driver/fake/fake_journal.h"

#define KEY "fake"
#define DEFAULT_IMAGE "ubuntu:24.04"
#define HASH_SHOWN 32
#define END_MS 10000
#define PLACE_DIR_SIZE (sizeof("places/") + HASH_SHOWN + sizeof("/workspace"))

static const char *const OWN_KEY[] = { KEY, NULL };

static const struct field CONFIG_FIELDS[] = {
	{ .name = "provider", .type = FIELD_STRING, .one_of = OWN_KEY, .summary = "always fake" },
	{ .name = "image",
	  .type = FIELD_STRING,
	  .flags = FIELD_NONBLANK,
	  .max = 512,
	  .summary = "name of an image; nothing is fetched" },
	{ .name = "leasePolicy",
	  .type = FIELD_STRING,
	  .one_of = lease_policy_names,
	  .summary = "what becomes of a place after its lease, unless a lease or run says so; "
		     "counts more than reuseLease" },
	{ .name = "reuseLease", .type = FIELD_BOOL, .summary = "keep the place between leases" },
	{ .name = "relay",
	  .type = FIELD_BOOL,
	  .summary = "false: places that cannot take a relay, only one-shot commands" },
	{ .name = "faults",
	  .type = FIELD_OBJECT,
	  .fields = FAKE_FAULT_FIELDS,
	  .summary = "how to misbehave; needs a server that allows the fake provider" },
	{ 0 },
};

static const struct config_rule CONFIG_RULES[] = {
	{ .name = "provider", .how = CONFIG_TRIM, .fallback = "\"" KEY "\"" },
	{ .name = "image", .how = CONFIG_TRIM, .fallback = "\"" DEFAULT_IMAGE "\"" },
	{ .name = "reuseLease", .fallback = "false" },
	{ .name = "faults", .refuse = fake_faults_refuse },
	{ 0 },
};

static const struct config_schema CONFIG = { .fields = CONFIG_FIELDS, .rules = CONFIG_RULES };

static json_t *fake_normalize(const struct maker *self, const json_t *config, bool saving,
			      struct error *err)
{
	(void)saving;
	if (json_object_get(config, "faults") && !self->host->allow_fake) {
		error_set(err, ERR_UNPROCESSABLE,
			  "Invalid environment config: faults need a server that allows the fake "
			  "provider (--allow-fake)");
		return NULL;
	}
	return config_normalize(&CONFIG, config, err);
}

static const char *image_of(const json_t *config)
{
	const char *image = json_str(config, "image");

	return image ? image : DEFAULT_IMAGE;
}

static bool is_reusable(const json_t *config)
{
	return json_is_true(json_object_get(config, "reuseLease"));
}

static bool has_relay(const json_t *config)
{
	return !json_is_false(json_object_get(config, "relay"));
}

/* {provider, image, reuseLease}: details of a probe, and what metadata begins with. */
static json_t *description(const json_t *config)
{
	json_t *out = json_object();

	json_put_str(out, "provider", KEY);
	json_put_str(out, "image", image_of(config));
	json_put_bool(out, "reuseLease", is_reusable(config));
	if (!has_relay(config))
		json_put_bool(out, "relay", false);
	return out;
}

struct fake {
	struct maker_host *host;
	int dirfd; /* of the maker's directory; the host's, as is the path */
	const char *path;
	struct fake_journal *journal;
};

static void fake_free(void *state)
{
	struct fake *fake = state;

	fake_journal_free(fake->journal);
	free(fake);
}

static int fake_open(struct maker_host *host, int dirfd, const char *path, void **state,
		     struct error *err)
{
	struct fake_journal *journal;

	if (dir_make(dirfd, "places", 0700, err) < 0 || fake_journal_open(dirfd, &journal, err) < 0)
		return -1;

	struct fake *fake = xcalloc(1, sizeof(*fake));

	*fake = (struct fake){ .host = host, .dirfd = dirfd, .path = path, .journal = journal };
	*state = fake;
	return 0;
}

static const struct maker_state_kind STATE = { KEY, fake_open, fake_free };

static struct fake *fake_of(const struct maker *self, struct error *err)
{
	void *state;

	return maker_host_state(self->host, &STATE, &state, err) < 0 ? NULL : state;
}

/* "places/<hash>", or the workspace in it. */
static void place_dir(const char *ref, const char *child, char out[PLACE_DIR_SIZE])
{
	char hash[SHA256_HEX_SIZE];

	sha256_hex(ref, strlen(ref), hash);
	snprintf(out, PLACE_DIR_SIZE, "places/%.*s%s", HASH_SHOWN, hash, child);
}

static char *workspace_path(const struct fake *fake, const char *ref)
{
	char dir[PLACE_DIR_SIZE];

	place_dir(ref, "/workspace", dir);
	return path_join(fake->path, dir);
}

static int begin(struct fake *fake, enum fake_operation operation, const json_t *config,
		 const char *scope, int64_t deadline_ms, struct fake_call *call, struct error *err)
{
	struct fake_plan plan = {
		.operation = operation,
		.scope = scope,
		.deadline_ms = deadline_ms,
	};

	if (fake->host->allow_fake)
		plan.faults = json_object_at(config, "faults");
	return fake_call_begin(fake->journal, fake->host->clock, &plan, call, err);
}

/* For operations that know a place only by its name. */
static int begin_for(struct fake *fake, enum fake_operation operation,
		     const struct place_view *place, int64_t deadline_ms, struct fake_call *call,
		     struct error *err)
{
	_cleanup_json_ json_t *known = fake_journal_get(fake->journal, place->ref);
	const char *environment = json_str(known, "environmentId");

	if (begin(fake, operation, place->config.json, environment ? environment : place->ref,
		  deadline_ms, call, err) < 0)
		return -1;
	return call->fail ? fake_call_refuse(call, err) : 0;
}

static int fake_probe(const struct maker *self, const struct place_view *wanted,
		      int64_t deadline_ms, struct probe *out, struct error *err)
{
	const json_t *config = wanted->config.json;
	struct fake *fake = fake_of(self, err);
	_cleanup_free_ char *scope = json_canonical(config);
	_cleanup_error_ struct error refusal = { 0 };
	struct fake_call call;

	if (!fake || begin(fake, FAKE_PROBE, config, scope, deadline_ms, &call, err) < 0 ||
	    fake_call_end(&call, err) < 0)
		return -1;
	if (call.fail)
		fake_call_refuse(&call, &refusal);
	*out = (struct probe){
		.ok = !call.fail,
		.driver = DRIVER_SANDBOX,
		.summary = call.fail ? xstrdup(refusal.message)
				     : xasprintf("Fake sandbox provider is ready for image %s.",
						 image_of(config)),
		.details = description(config),
	};
	return 0;
}

static char *fake_name(const struct maker *self, const struct place_view *wanted)
{
	const char *run = wanted->run_id ? wanted->run_id : wanted->lease_id;

	(void)self;
	if (is_reusable(wanted->config.json))
		return xasprintf("sandbox://" KEY "/%s", wanted->environment_id);
	return xasprintf("sandbox://" KEY "/%s/%s", run, wanted->lease_id);
}

static int make_place(struct fake *fake, const char *ref, const struct place_view *wanted,
		      struct error *err)
{
	const json_t *config = wanted->config.json;
	const char *image = image_of(config);
	_cleanup_json_ json_t *known = fake_journal_get(fake->journal, ref);
	_cleanup_json_ json_t *place = NULL;

	if (known) {
		if (!str_equal(json_str(known, "image"), image))
			return error_set(err, ERR_CONFLICT, "%s exists with image \"%.100s\"", ref,
					 json_str(known, "image"));
		if (has_relay(known) != has_relay(config))
			return error_set(err, ERR_CONFLICT, "%s exists %s a relay", ref,
					 has_relay(known) ? "with" : "without");
		return 0;
	}
	place = json_object();
	json_put_str(place, "environmentId", wanted->environment_id);
	json_put_str(place, "leaseId", wanted->lease_id);
	json_put_str(place, "image", image);
	json_put_bool(place, "reuseLease", is_reusable(config));
	if (!has_relay(config))
		json_put_bool(place, "relay", false);

	json_t *inventory = json_object_at(json_object_at(config, "faults"), "inventory");

	/* The config may be gone when the inventory is asked for: its plan stays with the place. */
	if (inventory) {
		json_t *faults = json_object();

		json_put_new(faults, "inventory", json_deep_copy(inventory));
		json_put_new(place, "faults", faults);
	}
	if (fake_journal_add(fake->journal, ref, place, err) < 0)
		return -1;
	return FAULT_HERE("fake.acquire.listed", err);
}

/* "BERTH_FAKE_PLACE=<hash>": in the environment of everything that one-shot calls start there. */
static char *mark_of(const char *ref)
{
	char dir[PLACE_DIR_SIZE];

	place_dir(ref, "", dir);
	return xasprintf("BERTH_FAKE_PLACE=%s", strrchr(dir, '/') + 1);
}

/* What one-shot calls of an earlier server have left running there. */
static int end_commands(struct fake *fake, const char *ref, int64_t wait_ms, struct error *err)
{
	_cleanup_json_ json_t *place = fake_journal_get(fake->journal, ref);
	_cleanup_free_ char *mark = mark_of(ref);

	return has_relay(place) ? 0 : fake_end_marked(mark, wait_ms, err);
}

static int remove_place(struct fake *fake, const char *ref, struct error *err)
{
	char dir[PLACE_DIR_SIZE];

	if (end_commands(fake, ref, END_MS, err) < 0)
		return -1;
	place_dir(ref, "", dir);
	if (dir_remove_tree(fake->dirfd, dir, err) < 0 ||
	    FAULT_HERE("fake.destroy.emptied", err) < 0)
		return -1;
	return fake_journal_remove(fake->journal, ref, err);
}

static void grant(struct fake *fake, const json_t *config, const char *ref, struct made_place *out)
{
	_cleanup_free_ char *workspace = workspace_path(fake, ref);

	*out = (struct made_place){ .ref = xstrdup(ref),
				    .metadata = description(config),
				    .no_relay = !has_relay(config) };
	json_put_str(out->metadata, "remoteCwd", workspace);
}

static int fake_acquire(const struct maker *self, const struct place_view *wanted,
			int64_t deadline_ms, struct made_place *out, struct error *err)
{
	struct fake *fake = fake_of(self, err);
	_cleanup_free_ char *ref = fake_name(self, wanted);
	struct fake_call call;

	if (!fake || begin(fake, FAKE_ACQUIRE, wanted->config.json, wanted->environment_id,
			   deadline_ms, &call, err) < 0)
		return -1;
	if (call.fail)
		return fake_call_refuse(&call, err);
	if (make_place(fake, ref, wanted, err) < 0 ||
	    (call.twice && make_place(fake, ref, wanted, err) < 0) ||
	    (call.lose && remove_place(fake, ref, err) < 0) || fake_call_end(&call, err) < 0)
		return -1;
	grant(fake, wanted->config.json, ref, out);
	return 0;
}

static int fake_resume(const struct maker *self, const struct place_view *place,
		       int64_t deadline_ms, struct made_place *out, struct error *err)
{
	struct fake *fake = fake_of(self, err);
	struct fake_call call;

	if (!fake || begin(fake, FAKE_RESUME, place->config.json, place->environment_id,
			   deadline_ms, &call, err) < 0)
		return -1;
	if (call.fail)
		return fake_call_refuse(&call, err);
	if ((call.lose && remove_place(fake, place->ref, err) < 0) || fake_call_end(&call, err) < 0)
		return -1;

	_cleanup_json_ json_t *known = fake_journal_get(fake->journal, place->ref);

	if (!known)
		return 0;
	grant(fake, place->config.json, place->ref, out);
	json_put_bool(out->metadata, "resumedLease", true);
	return 1;
}

static int fake_release(const struct maker *self, const struct place_view *place,
			const char *status, int64_t deadline_ms, struct error *err)
{
	struct fake *fake = fake_of(self, err);
	struct fake_call call;

	(void)status; /* how a run ended is all the same to a directory */
	if (!fake || end_commands(fake, place->ref, END_MS, err) < 0 ||
	    begin_for(fake, FAKE_RELEASE, place, deadline_ms, &call, err) < 0)
		return -1;
	if (call.lose || !is_reusable(place->config.json)) {
		if (remove_place(fake, place->ref, err) < 0 ||
		    (call.twice && remove_place(fake, place->ref, err) < 0))
			return -1;
	}
	return fake_call_end(&call, err);
}

static int fake_destroy(const struct maker *self, const struct place_view *place,
			int64_t deadline_ms, struct error *err)
{
	struct fake *fake = fake_of(self, err);
	struct fake_call call;

	if (!fake || begin_for(fake, FAKE_DESTROY, place, deadline_ms, &call, err) < 0)
		return -1;
	if (remove_place(fake, place->ref, err) < 0 ||
	    (call.twice && remove_place(fake, place->ref, err) < 0))
		return -1;
	return fake_call_end(&call, err);
}

/* Each environment's plan counts as one call of it, however many places it has. */
static int begin_listing(struct fake *fake, const json_t *place, json_t *times, struct error *err)
{
	const char *environment = json_str(place, "environmentId");
	struct fake_call call;

	if (!environment || json_object_get(times, environment))
		return 0;
	if (begin(fake, FAKE_INVENTORY, place, environment, 0, &call, err) < 0)
		return -1;
	if (call.fail)
		return fake_call_refuse(&call, err);
	json_put_int(times, environment, call.lose ? 0 : call.twice ? 2 : 1);
	return fake_call_end(&call, err);
}

static int fake_inventory(const struct maker *self, int64_t deadline_ms,
			  struct maker_inventory *out, struct error *err)
{
	struct fake *fake = fake_of(self, err);
	_cleanup_json_ json_t *places = fake ? fake_journal_places(fake->journal) : NULL;
	_cleanup_json_ json_t *times = json_object(); /* how often to list an environment's */
	_cleanup_strv_ char **refs = NULL;
	const char *ref;
	json_t *place;
	size_t count = 0;

	(void)deadline_ms; /* each plan has one of its own */
	if (!fake)
		return -1;
	json_object_foreach (places, ref, place) {
		if (begin_listing(fake, place, times, err) < 0)
			return -1;
	}
	refs = xcalloc(2 * json_object_size(places) + 1, sizeof(*refs));
	json_object_foreach (places, ref, place) {
		const char *environment = json_str(place, "environmentId");

		for (int64_t n = json_int(times, environment ? environment : "", 1); n > 0; n--)
			refs[count++] = xstrdup(ref);
	}
	out->refs = steal(refs);
	return 0;
}

static json_t *fake_config_from_metadata(const json_t *metadata)
{
	if (!str_equal(json_str(metadata, "provider"), KEY) || !json_str(metadata, "image"))
		return NULL;
	return description(metadata);
}

/* With the first command: most places that only a test holds for a moment never need one. */
static int make_directory(struct fake *fake, const char *ref, struct error *err)
{
	char dir[PLACE_DIR_SIZE];

	place_dir(ref, "/workspace", dir);
	return dir_make(fake->dirfd, dir, 0700, err);
}

/* For an operation that runs a command: under its plan, while the place is there. */
static int begin_command(struct fake *fake, const struct place_view *place, int64_t deadline_ms,
			 struct error *err)
{
	struct fake_call call;

	if (begin_for(fake, FAKE_EXECUTE, place, deadline_ms, &call, err) < 0)
		return -1;
	if (call.lose && remove_place(fake, place->ref, err) < 0)
		return -1;

	_cleanup_json_ json_t *known = fake_journal_get(fake->journal, place->ref);

	if (!known)
		return error_set(err, ERR_LEASE_LOST, "%s does not exist any more", place->ref);
	return make_directory(fake, place->ref, err);
}

static int fake_execute(const struct maker *self, const struct place_view *place,
			const struct one_shot_call *call, struct one_shot_result *result,
			struct error *err)
{
	struct fake *fake = fake_of(self, err);
	_cleanup_free_ char *workspace = fake ? workspace_path(fake, place->ref) : NULL;
	_cleanup_free_ char *mark = mark_of(place->ref);

	if (!fake || begin_command(fake, place, call->timeout_ms, err) < 0)
		return -1;
	return fake_run(call, workspace, mark, result, err);
}

static int fake_prepare(const struct maker *self, const struct place_view *place,
			const struct exec_spec *spec, struct error *err)
{
	struct fake *fake = fake_of(self, err);

	(void)spec;
	return fake ? begin_command(fake, place, 0, err) : -1;
}

/* Where the place is stands in its metadata. */
static int fake_describe(const struct maker *self, const struct place_view *place,
			 struct exec_place *out, struct error *err)
{
	const char *directory = json_str_nonblank(place->metadata, "remoteCwd");

	(void)self;
	if (!directory)
		return error_set(err, ERR_PROTOCOL,
				 "provider \"" KEY "\" does not report where its place is");
	out->root = out->cwd = directory;
	return 0;
}

static const struct maker FAKE = {
	.key = KEY,
	.display_name = "Fake",
	.driver = DRIVER_SANDBOX,
	.traits = { .takes_relay = true,
		    .below_directory = true,
		    .lists = true,
		    .names_ahead = true,
		    .reusable = true,
		    .for_tests = true,
		    .fencing = FENCING_PLACE },
	.config = &CONFIG,
	.normalize = fake_normalize,
	.probe = fake_probe,
	.name = fake_name,
	.acquire = fake_acquire,
	.resume = fake_resume,
	.release = fake_release,
	.destroy = fake_destroy,
	.inventory = fake_inventory,
	.config_from_metadata = fake_config_from_metadata,
	.describe = fake_describe,
	.prepare = fake_prepare,
	.execute = fake_execute,
};
MAKER_REGISTER(FAKE);
