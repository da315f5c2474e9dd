#include "lease_fixture.h"

#include "../open_places.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"

SQL(TEST_PLACE_STATE, "SELECT state FROM places WHERE id = $1");
SQL(TEST_LEASE_COUNT, "SELECT COUNT(*) FROM leases");
SQL(TEST_LEASE_STATUS, "SELECT status FROM leases WHERE id = $1");
SQL(TEST_RUN_INSERT, "INSERT INTO runs (id, company_id, status, command, node_id, boot_epoch,"
		     " created_at, finished_at, updated_at)"
		     " VALUES ($1, $2, $3, '[]', $4, $5, $6, $7, $6)");
SQL(TEST_RUN_STATUS, "UPDATE runs SET status = $2, finished_at = $3, updated_at = $3"
		     " WHERE id = $1");
SQL(TEST_ACTIVITY, "SELECT COUNT(*) FROM activity WHERE action = $1");

static int open_directory(struct yard *y, const char *name, char **path)
{
	int fd = -1;

	*path = path_join(y->r->dir, name);
	assert_done(y->r, dir_make(AT_FDCWD, *path, 0700, y->err));
	assert_done(y->r, dir_open(AT_FDCWD, *path, &fd, y->err));
	return fd;
}

void yard_start(struct yard *y)
{
	assert_done(y->r, node_register(y->db, y->r->clock, y->r->dirfd, &y->node, y->err));
	assert_done(y->r, test_places_new(&y->system, y->node.id, y->node.boot_epoch, y->r->dir,
					  &y->places, y->err));

	y->host = (struct maker_host){ .places = y->places,
				       .clock = &y->system,
				       .home_path = y->home_path,
				       .allow_fake = true };
	assert_done(y->r,
		    maker_store_new(y->providers_fd, y->providers_path, &y->host.store, y->err));
	/* What a test has changed stays changed over a restart. */
	if (!y->makers.count)
		makers_init(&y->makers, &y->host);

	struct leases_options options = {
		.db = y->db,
		.clock = y->r->clock,
		.node = &y->node,
		.makers = &y->makers,
		.spool_dirfd = y->spool_fd,
	};

	assert_done(y->r, leases_new(&options, &y->leases, y->err));
}

void yard_stop(struct yard *y)
{
	leases_free(y->leases);
	maker_store_free(y->host.store);
	places_free(y->places);
	y->leases = NULL;
	y->places = NULL;
}

void yard_restart(struct yard *y)
{
	yard_stop(y);
	yard_start(y);
	assert_done(y->r, leases_recover(y->leases, y->err));
}

static int yard_setup(void **state, int (*records_setup)(void **))
{
	void *records;
	struct yard *y;
	char *path;
	int logs_fd;

	records_setup(&records);
	*state = NULL;
	if (!records)
		return 0;
	y = xcalloc(1, sizeof(*y));
	y->r = records;
	y->db = y->r->db;
	y->err = &y->r->err;
	clock_init_system(&y->system);
	y->providers_fd = open_directory(y, "providers", &y->providers_path);
	y->spool_fd = open_directory(y, "spool", &path);
	free(path);
	y->home_path = xstrdup(y->r->dir);
	logs_fd = open_directory(y, "logs", &path);
	free(path);
	assert_done(y->r, runlog_store_open(logs_fd, 0, &y->logs, y->err));
	close(logs_fd);
	yard_start(y);
	assert_done(y->r, environment_ensure_local(y->db, y->r->clock, y->r->company.id, &y->local,
						   y->err));
	*state = y;
	return 0;
}

int yard_setup_sqlite(void **state)
{
	return yard_setup(state, records_setup_sqlite);
}

int yard_setup_postgres(void **state)
{
	return yard_setup(state, records_setup_postgres);
}

int yard_teardown(void **state)
{
	struct yard *y = *state;
	void *records;

	if (!y)
		return 0;
	fault_disarm();
	yard_stop(y);
	end_keeper(y->r->dir);
	runlog_store_close(y->logs);
	environment_clear(&y->local);
	close(y->providers_fd);
	makers_clear(&y->makers);
	close(y->spool_fd);
	free(y->providers_path);
	free(y->home_path);
	records = y->r;
	free(y);
	return records_teardown(&records);
}

struct yard *yard_of(void **state)
{
	if (!*state)
		skip();
	return *state;
}

void yard_sandbox(struct yard *y, const char *name, const char *config, int64_t max,
		  struct environment *out)
{
	_cleanup_json_ json_t *raw = json_of(config), *metadata = json_object();
	struct environment in = {
		.name = (char *)name,
		.driver = DRIVER_SANDBOX,
		.status = ENVIRONMENT_ACTIVE,
	};

	in.config = maker_normalize(&y->makers, DRIVER_SANDBOX, raw, true, y->err);
	if (!in.config)
		fail_msg("%s", y->err->message);
	id_copy(in.company_id, y->r->company.id);
	if (max > 0) {
		json_put_int(metadata, "maxLeases", max);
		in.metadata = metadata;
	}
	assert_done(y->r, environment_create(y->db, y->r->clock, &SOMEBODY, &in, out, y->err));
	json_decref(in.config);
}

struct lease_request yard_request(struct yard *y, const struct environment *environment)
{
	return (struct lease_request){
		.company_id = y->r->company.id,
		.environment = environment,
		.cancel_fd = -1,
		.actor = &SOMEBODY,
	};
}

void yard_acquire(struct yard *y, const struct lease_request *request, struct lease *lease)
{
	assert_done(y->r, lease_acquire(y->leases, request, lease, NULL, y->err));
}

void yard_acquire_from(struct yard *y, const struct environment *environment, struct lease *lease)
{
	struct lease_request request = yard_request(y, environment);

	yard_acquire(y, &request, lease);
}

int yard_end(struct yard *y, const char *id, int64_t generation, enum lease_status status,
	     struct lease *lease)
{
	struct lease_release release = { .generation = generation,
					 .status = status,
					 .actor = &SOMEBODY };

	error_clear(y->err);
	return lease_release(y->leases, id, &release, lease, y->err);
}

void yard_release(struct yard *y, struct lease *lease)
{
	char id[ID_SIZE];

	id_copy(id, lease->id);
	assert_done(y->r, yard_end(y, id, lease->generation, LEASE_RELEASED, lease));
}

struct metadata_change {
	const char *id, *text;
	int64_t now;
};

static int set_metadata(struct tx *tx, void *arg, struct error *err)
{
	const struct metadata_change *m = arg;

	return lease_set_metadata_tx(tx, m->now, m->id, m->text, err);
}

int yard_set_metadata(struct yard *y, const char *id, const json_t *metadata)
{
	_cleanup_free_ char *text = json_text(metadata);
	struct metadata_change m = { id, text, clock_now(&y->r->fake.clock) };

	return DB_WRITE(y->db, "lease.metadata", set_metadata, &m, y->err);
}

void yard_sweep(struct yard *y)
{
	assert_done(y->r, leases_sweep(y->leases, y->err));
}

void yard_pass(struct yard *y, int64_t ms)
{
	clock_fake_advance(&y->r->fake, ms);
	yard_sweep(y);
}

void yard_reload(struct yard *y, struct lease *lease)
{
	char id[ID_SIZE];

	id_copy(id, lease->id);
	assert_done(y->r, lease_get(y->leases, id, lease, NULL, y->err));
}

char *yard_place_state(struct yard *y, const char *place_id)
{
	return records_text(y->r, &TEST_PLACE_STATE, B_TEXT(place_id));
}

void assert_place(struct yard *y, const char *place_id, const char *state)
{
	_cleanup_free_ char *is = yard_place_state(y, place_id);

	assert_non_null(is);
	assert_string_equal(is, state);
}

static char **inventory(struct yard *y)
{
	struct maker_inventory list = { 0 };
	_cleanup_error_ struct error err = { 0 };
	char **refs;

	if (maker_inventory(&y->makers, DRIVER_SANDBOX, "fake", &list, &err) != 1)
		fail_msg("inventory: %s", err.message);
	refs = list.refs ? strv_copy(list.refs) : xcalloc(1, sizeof(char *));
	maker_inventory_clear(&list);
	return refs;
}

size_t yard_inventory(struct yard *y)
{
	_cleanup_strv_ char **refs = inventory(y);

	return strv_len(refs);
}

bool yard_has(struct yard *y, const char *ref)
{
	_cleanup_strv_ char **refs = inventory(y);

	for (char **r = refs; *r; r++) {
		if (streq(*r, ref))
			return true;
	}
	return false;
}

void assert_status(struct yard *y, const char *lease_id, const char *status)
{
	_cleanup_free_ char *is = records_text(y->r, &TEST_LEASE_STATUS, B_TEXT(lease_id));

	assert_non_null(is);
	assert_string_equal(is, status);
}

void assert_clean(struct yard *y)
{
	_cleanup_json_ json_t *list = leases_audit(y->leases, y->err);

	if (!list)
		fail_msg("audit: %s", y->err->message);
	if (json_array_size(list) > 0) {
		_cleanup_free_ char *text = json_text(list);

		fail_msg("audit is not clean: %s", text);
	}
}

size_t yard_audit_count(struct yard *y, const char *kind)
{
	_cleanup_json_ json_t *list = leases_audit(y->leases, y->err);
	size_t i, n = 0;
	json_t *entry;

	if (!list)
		fail_msg("audit: %s", y->err->message);
	json_array_foreach (list, i, entry)
		n += str_equal(json_str(entry, "kind"), kind);
	return n;
}

int64_t yard_lease_rows(struct yard *y)
{
	return records_number(y->r, &TEST_LEASE_COUNT);
}

void yard_run(struct yard *y, const char *id, const char *status, int64_t finished_at)
{
	records_exec(y->r, &TEST_RUN_INSERT, B_TEXT(id), B_TEXT(y->r->company.id), B_TEXT(status),
		     B_TEXT(y->node.id), B_INT(y->node.boot_epoch), B_INT(clock_now(y->r->clock)),
		     B_TIME(finished_at));
}

void yard_set_run_status(struct yard *y, const char *id, const char *status)
{
	records_exec(y->r, &TEST_RUN_STATUS, B_TEXT(id), B_TEXT(status),
		     B_INT(clock_now(y->r->clock)));
}

size_t yard_activity_count(struct yard *y, const char *action)
{
	return (size_t)records_number(y->r, &TEST_ACTIVITY, B_TEXT(action));
}

void fault_arm(const char *spec)
{
	_cleanup_error_ struct error err = { 0 };

	if (fault_init(spec, &err) < 0)
		fail_msg("%s: %s", spec, err.message);
}

void fault_disarm(void)
{
	fault_init(NULL, NULL);
}

int yard_exec_begin(struct yard *y, const struct lease *lease, const char *script,
		    struct runlog **log, struct exec **exec, struct error *err)
{
	_cleanup_place_ struct place place = { 0 };
	_cleanup_lease_ struct lease used = { 0 };
	char exec_id[ID_SIZE];
	char *argv[] = { (char *)"/bin/sh", (char *)"-c", (char *)script, NULL };
	struct exec_spec spec = { .exec_id = exec_id,
				  .generation = lease->generation,
				  .argv = argv };

	*log = NULL;
	if (lease_use(y->leases, lease->id, lease->generation, &used, &place, err) < 0)
		return -1;
	id_new(exec_id);
	if (runlog_open(y->logs, exec_id, log, err) < 0)
		return -1;
	spec.place_id = place.id;
	spec.log = *log;
	if (maker_start(&y->makers, &place, &spec, exec, err) == 0)
		return 0;
	runlog_close(*log);
	return -1;
}

int yard_exec_end(struct runlog *log, struct exec *exec, struct exec_result *result,
		  struct error *err)
{
	int r = exec_wait(exec, result, err);

	runlog_close(log);
	return r;
}

int yard_exec(struct yard *y, const struct lease *lease, const char *script, struct error *err)
{
	struct exec_result result = { 0 };
	struct runlog *log;
	struct exec *exec;

	if (yard_exec_begin(y, lease, script, &log, &exec, err) < 0)
		return -1;
	return yard_exec_end(log, exec, &result, err);
}
