#include "places.h"

#include <unistd.h>
#include "base/fault.h"

#define ONCE "{\"provider\":\"fake\",\"image\":\"debian:12\",\"reuseLease\":false}"
#define REUSE "{\"provider\":\"fake\",\"image\":\"debian:12\",\"reuseLease\":true}"

static struct place_view request_of(json_t *config)
{
	return (struct place_view){
		.config = { config },
		.environment_id = ENV_1,
		.run_id = RUN_1,
		.lease_id = LEASE_1,
	};
}

static void acquire(struct places *p, json_t *config, struct made_place *lease)
{
	struct place_view request = request_of(config);
	_cleanup_error_ struct error err = { 0 };

	if (fake_acquire(p, &request, lease, &err) < 0)
		fail_msg("%s", err.message);
}

static size_t listed(struct places *p, const char *ref)
{
	_cleanup_(maker_inventory_clear) struct maker_inventory inventory = { 0 };
	size_t times = 0;

	assert_int_equal(fake_list(p, &inventory, NULL), 0);
	for (char **r = inventory.refs; *r; r++)
		times += streq(*r, ref);
	return times;
}

static char *workspace_of(const struct made_place *lease)
{
	return xstrdup(json_str(lease->metadata, "remoteCwd"));
}

static void a_place_that_is_not_reused_is_named_by_run_and_lease(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J(ONCE);
	_cleanup_(made_place_clear) struct made_place lease = { 0 };
	struct place_view request = request_of(config);

	acquire(p, config, &lease);
	assert_string_equal(lease.ref, "sandbox://fake/" RUN_1 "/" LEASE_1);
	request.run_id = NULL;

	_cleanup_free_ char *ref = p->fake->name(p->fake, &request);

	assert_string_equal(ref, "sandbox://fake/" LEASE_1 "/" LEASE_1);
}

static void the_name_is_known_before_anything_is_made(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *once = J(ONCE), *reuse = J(REUSE);
	json_t *configs[] = { once, reuse };

	for (size_t i = 0; i < ARRAY_SIZE(configs); i++) {
		_cleanup_(made_place_clear) struct made_place lease = { 0 };
		struct place_view request = request_of(configs[i]);
		_cleanup_free_ char *ref = p->fake->name(p->fake, &request);

		assert_int_equal(listed(p, ref), 0);
		acquire(p, configs[i], &lease);
		assert_string_equal(lease.ref, ref);
	}
}

static void a_place_is_in_the_inventory_also_after_a_restart(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J(ONCE);
	_cleanup_(made_place_clear) struct made_place lease = { 0 };

	acquire(p, config, &lease);

	_cleanup_free_ char *workspace = workspace_of(&lease);

	assert_true(str_starts(workspace, p->dir));
	assert_true(str_ends(workspace, "/workspace"));
	/* The directory comes with the first command. */
	assert_false(path_exists(workspace));
	assert_int_equal(listed(p, lease.ref), 1);
	places_restart(p);
	assert_int_equal(listed(p, lease.ref), 1);
}

static void acquiring_the_same_name_again_gives_the_same_place(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J(ONCE);
	_cleanup_(made_place_clear) struct made_place first = { 0 }, second = { 0 };

	acquire(p, config, &first);
	acquire(p, config, &second);
	assert_string_equal(first.ref, second.ref);
	assert_true(json_equal(first.metadata, second.metadata));
	assert_int_equal(listed(p, first.ref), 1);
}

static void a_place_of_another_image_is_not_handed_out_under_its_name(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J(REUSE);
	_cleanup_json_ json_t *other =
		J("{\"provider\":\"fake\",\"image\":\"x\",\"reuseLease\":true}");
	_cleanup_(made_place_clear) struct made_place lease = { 0 }, none = { 0 };
	struct place_view request = request_of(other);
	_cleanup_error_ struct error err = { 0 };

	acquire(p, config, &lease);
	assert_int_equal(fake_acquire(p, &request, &none, &err), -1);
	assert_says(&err, ERR_CONFLICT, "debian:12");
}

static void touch(const char *dir, const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, name);

	assert_int_equal(dir_make(AT_FDCWD, dir, 0700, NULL), 0);
	close(open(path, O_CREAT | O_WRONLY, 0600));
}

static void release_keeps_the_files_of_a_reusable_place_only(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *once = J(ONCE), *reuse = J(REUSE);
	_cleanup_(made_place_clear) struct made_place a = { 0 }, b = { 0 };

	acquire(p, once, &a);
	acquire(p, reuse, &b);

	_cleanup_free_ char *gone = workspace_of(&a), *kept = workspace_of(&b);
	_cleanup_free_ char *file = xasprintf("%s/note", kept);

	touch(gone, "note");
	touch(kept, "note");
	assert_int_equal(fake_release(p, once, a.ref, "released", NULL), 0);
	assert_int_equal(fake_release(p, reuse, b.ref, "failed", NULL), 0);
	assert_false(path_exists(gone));
	assert_true(path_exists(file));
	assert_int_equal(listed(p, a.ref), 0);
	assert_int_equal(listed(p, b.ref), 1);
}

static void destroy_leaves_nothing_and_may_be_repeated(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J(REUSE);
	_cleanup_(made_place_clear) struct made_place lease = { 0 };

	acquire(p, config, &lease);

	_cleanup_free_ char *workspace = workspace_of(&lease);

	touch(workspace, "note");
	for (int i = 0; i < 2; i++)
		assert_int_equal(fake_destroy(p, config, lease.ref, NULL), 0);
	assert_false(path_exists(workspace));
	assert_int_equal(listed(p, lease.ref), 0);
	assert_int_equal(fake_destroy(p, config, "sandbox://fake/never", NULL), 0);
}

static void a_crash_behind_the_inventory_can_be_cleaned_up(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J(ONCE);
	struct place_view request = request_of(config);
	_cleanup_free_ char *ref = p->fake->name(p->fake, &request);
	_cleanup_(made_place_clear) struct made_place lease = { 0 };

	assert_int_equal(fault_init("fake.acquire.listed:error", NULL), 0);
	assert_int_equal(fake_acquire(p, &request, &lease, NULL), -1);
	places_restart(p);
	assert_int_equal(listed(p, ref), 1);
	assert_int_equal(fake_resume(p, &request, ref, &lease, NULL), 1);

	assert_int_equal(fault_init("fake.destroy.emptied:error", NULL), 0);
	assert_int_equal(fake_destroy(p, config, ref, NULL), -1);
	places_restart(p);
	assert_int_equal(listed(p, ref), 1);
	assert_int_equal(fault_init(NULL, NULL), 0);
	assert_int_equal(fake_destroy(p, config, ref, NULL), 0);
	assert_int_equal(listed(p, ref), 0);
}

static void what_is_gone_cannot_be_resumed(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J(REUSE);
	_cleanup_(made_place_clear) struct made_place lease = { 0 }, none = { 0 };
	struct place_view request = request_of(config);

	acquire(p, config, &lease);

	assert_int_equal(fake_destroy(p, config, lease.ref, NULL), 0);
	assert_int_equal(fake_resume(p, &request, lease.ref, &none, NULL), 0);
	assert_null(none.ref);
	assert_int_equal(fake_resume(p, &request, "sandbox://fake/never", &none, NULL), 0);
}

/* Starts a command and gives what it printed. */
static char *run_there(struct places *p, json_t *config, const struct made_place *made,
		       const char *cwd, const char *script, struct error *err)
{
	const struct place place = fake_place(config, made->ref, made->metadata);
	struct runlog_store *store;
	struct runlog *log;
	struct exec_result result;
	struct exec *exec = NULL;
	struct runlog_reader *reader;
	struct runlog_chunk chunk;
	_cleanup_buf_ struct buf out = { 0 };
	char *argv[] = { (char *)"sh", (char *)"-c", (char *)script, NULL };
	struct exec_spec spec = {
		.exec_id = RUN_1,
		.place_id = PLACE_1,
		.generation = 1,
		.argv = argv,
		.cwd = cwd,
		.timeout_ms = 20000,
	};

	assert_int_equal(runlog_store_open(p->dirfd, 0, &store, NULL), 0);
	assert_int_equal(runlog_open(store, "out", &log, NULL), 0);
	spec.log = log;
	assert_int_equal(maker_open(&p->makers, &place, NULL), 0);

	int r = maker_start(&p->makers, &place, &spec, &exec, err);

	if (r == 0)
		assert_int_equal(exec_wait(exec, &result, NULL), 0);
	runlog_close(log);
	assert_int_equal(runlog_reader_open(store, "out", 0, &reader, NULL), 0);
	while (runlog_read(reader, 4096, &chunk, NULL) > 0)
		buf_append(&out, chunk.data, chunk.len);
	runlog_reader_close(reader);
	runlog_remove(store, "out", NULL);
	runlog_store_close(store);
	return r < 0 ? NULL : buf_steal(&out);
}

static void commands_run_in_the_directory_of_the_place(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J(ONCE);
	_cleanup_(made_place_clear) struct made_place lease = { 0 };

	acquire(p, config, &lease);

	_cleanup_free_ char *workspace = workspace_of(&lease);
	_cleanup_free_ char *line = xasprintf("%s\n", workspace);
	_cleanup_free_ char *file = xasprintf("%s/made", workspace);
	_cleanup_free_ char *out =
		run_there(p, config, &lease, NULL, "pwd -P; echo x > made", NULL);
	_cleanup_free_ char *elsewhere = run_there(p, config, &lease, "/", "pwd -P", NULL);

	assert_string_equal(out, line);
	assert_true(path_exists(file));
	assert_string_equal(elsewhere, "/\n");
}

static void a_command_in_a_place_that_is_gone_says_the_lease_is_lost(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J(ONCE);
	_cleanup_(made_place_clear) struct made_place lease = { 0 };
	_cleanup_error_ struct error err = { 0 };

	acquire(p, config, &lease);
	assert_int_equal(fake_destroy(p, config, lease.ref, NULL), 0);
	assert_null(run_there(p, config, &lease, NULL, "true", &err));
	assert_says(&err, ERR_LEASE_LOST, lease.ref);
}

static void stop_ends_what_runs_there(void **state)
{
	struct places *p = *state;
	_cleanup_json_ json_t *config = J(ONCE);
	_cleanup_(made_place_clear) struct made_place lease = { 0 };
	_cleanup_error_ struct error err = { 0 };

	acquire(p, config, &lease);

	const struct place place = fake_place(config, lease.ref, lease.metadata);

	assert_int_equal(maker_open(&p->makers, &place, NULL), 0);
	assert_int_equal(maker_stop(&p->makers, &place, 5000, NULL), 0);

	/* Closed: an exec that comes too late does not start. */
	struct runlog_store *store;
	struct runlog *log;
	struct exec *exec = NULL;
	char *argv[] = { (char *)"true", NULL };
	struct exec_spec spec = {
		.exec_id = RUN_1, .place_id = PLACE_1, .generation = 1, .argv = argv
	};

	assert_int_equal(runlog_store_open(p->dirfd, 0, &store, NULL), 0);
	assert_int_equal(runlog_open(store, "out", &log, NULL), 0);
	spec.log = log;
	assert_int_equal(maker_start(&p->makers, &place, &spec, &exec, &err), -1);
	assert_int_equal(err.code, ERR_LEASE_ENDED);
	runlog_close(log);
	runlog_store_close(store);
}

static void config_is_trimmed_defaulted_and_strict(void **state)
{
	static const struct {
		const char *in, *out, *complaint;
	} cases[] = {
		{ "{}", "{\"provider\":\"fake\",\"image\":\"ubuntu:24.04\",\"reuseLease\":false}",
		  NULL },
		{ "{\"image\":\" a \",\"reuseLease\":true}",
		  "{\"provider\":\"fake\",\"image\":\"a\",\"reuseLease\":true}", NULL },
		{ "{\"image\":\"  \"}", NULL, "image" },
		{ "{\"image\":null}", NULL, "image" },
		{ "{\"reuseLease\":\"true\"}", NULL, "reuseLease" },
		{ "{\"provider\":\"other\"}", NULL, "provider" },
		{ "{\"size\":3}", NULL, "size" },
		{ "[]", NULL, "object" },
	};

	struct places *p = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_json_ json_t *in = J(cases[i].in);
		_cleanup_error_ struct error err = { 0 };
		_cleanup_json_ json_t *out = p->fake->normalize(p->fake, in, false, &err);

		if (cases[i].out) {
			assert_json(out, cases[i].out);
		} else {
			assert_null(out);
			assert_says(&err, ERR_UNPROCESSABLE, cases[i].complaint);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		places_test(a_place_that_is_not_reused_is_named_by_run_and_lease),
		places_test(the_name_is_known_before_anything_is_made),
		places_test(a_place_is_in_the_inventory_also_after_a_restart),
		places_test(acquiring_the_same_name_again_gives_the_same_place),
		places_test(a_place_of_another_image_is_not_handed_out_under_its_name),
		places_test(release_keeps_the_files_of_a_reusable_place_only),
		places_test(destroy_leaves_nothing_and_may_be_repeated),
		places_test(a_crash_behind_the_inventory_can_be_cleaned_up),
		places_test(what_is_gone_cannot_be_resumed),
		places_test(commands_run_in_the_directory_of_the_place),
		places_test(a_command_in_a_place_that_is_gone_says_the_lease_is_lost),
		places_test(stop_ends_what_runs_there),
		places_test(config_is_trimmed_defaulted_and_strict),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
