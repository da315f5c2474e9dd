#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "driver/native/native_config.h"
#include "driver/native/native_seccomp.h"
#include "driver/maker.h"
#include "wire/message.h"
#include "wire/walls.h"

static json_t *parse(const char *text)
{
	json_t *value = json_parse(text, strlen(text), NULL);

	assert_non_null(value);
	return value;
}

static void an_empty_config_means_the_defaults(void **state)
{
	_cleanup_json_ json_t *given = parse("{}");
	_cleanup_json_ json_t *normal = native_normalize(NULL, given, false, NULL);
	_cleanup_json_ json_t *again = native_normalize(NULL, normal, false, NULL);
	_cleanup_json_ json_t *wanted =
		parse("{\"provider\":\"native\",\"root\":\"host\",\"writable\":\"overlay\","
		      "\"network\":\"none\",\"reuseLease\":false}");

	(void)state;
	assert_true(json_equal(normal, wanted));
	assert_true(json_equal(again, normal));
}

static void what_cannot_be_had_or_meant_is_refused(void **state)
{
	static const struct {
		const char *config, *said;
	} refused[] = {
		{ "{\"limits\":{\"diskMb\":5}}", "tmpfs" },
		{ "{\"writable\":\"tmpfs\",\"reuseLease\":true}", "overlay" },
		{ "{\"limits\":{\"cpus\":0}}", "cpus" },
		{ "{\"limits\":{\"cpus\":\"2\"}}", "cpus" },
		{ "{\"limits\":{\"memoryMb\":1}}", "memoryMb" },
		{ "{\"network\":\"bridge\"}", "network" },
		{ "{\"root\":\"relative\"}", "root" },
		{ "{\"root\":\"/a/../b\"}", "root" },
		{ "{\"user\":\"Root\"}", "user" },
		{ "{\"user\":\"a:b\"}", "user" },
		{ "{\"mounts\":{}}", "mounts" },
		{ "{\"mounts\":[{\"source\":\"/a\"}]}", "mounts" },
		{ "{\"mounts\":[{\"source\":\"/a\",\"target\":\"b\"}]}", "mounts" },
		{ "{\"mounts\":[{\"source\":\"/a\",\"target\":\"/b\",\"suid\":true}]}", "mounts" },
		{ "{\"require\":[\"moat\"]}", "require" },
		{ "{\"warmPool\":{\"size\":17}}", "warmPool" },
		{ "{\"image\":\"debian\"}", "image" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		_cleanup_json_ json_t *config = parse(refused[i].config);
		_cleanup_error_ struct error err = { 0 };

		if (native_normalize(NULL, config, false, &err) ||
		    !strstr(err.message, refused[i].said))
			fail_msg("%s: %s", refused[i].config, err.message);
		assert_int_equal(err.code, ERR_UNPROCESSABLE);
	}
}

static const struct seccomp_filter filter = {
	.whole = { (char[]){ "12345678" }, 8 },
	.base = { (char[]){ "base5678" }, 8 },
	.exec = { (char[]){ "exec5678" }, 8 },
};

static void a_config_says_which_sandbox_the_keeper_builds(void **state)
{
	_cleanup_json_ json_t *config =
		parse("{\"network\":\"host\",\"writable\":\"tmpfs\",\"user\":\"root\","
		      "\"limits\":{\"memoryMb\":64,\"pids\":9,\"cpus\":1.5,\"diskMb\":2,"
		      "\"openFiles\":32},\"require\":[\"seccomp\"],"
		      "\"mounts\":[{\"source\":\"/a\",\"target\":\"/b\",\"readOnly\":false},"
		      "{\"source\":\"/c\",\"target\":\"/d\"}]}");
	const struct place_bounds bounds = { .mounts = { (char[]){ "/" }, (char[]){ "/c" } } };
	_cleanup_buf_ struct buf bytes = { 0 };
	_cleanup_wire_message_ struct wire_message m = { 0 };
	struct frame frame;
	size_t used;

	(void)state;
	assert_int_equal(
		native_sandbox(&(struct place_view){ .config = { config }, .bounds = &bounds },
			       "kept", NULL, &filter, &bytes, NULL),
		0);
	assert_int_equal(
		frame_parse((const uint8_t *)bytes.data, bytes.len, 65536, &frame, &used, NULL), 1);
	assert_int_equal(wire_decode(&frame, &m, NULL), 0);
	assert_int_equal(m.type, WIRE_SANDBOX);
	assert_true(m.sandbox.host_network && m.sandbox.tmpfs);
	assert_string_equal(m.sandbox.user, "root");
	assert_int_equal(m.sandbox.memory_bytes, 64 << 20);
	assert_int_equal(m.sandbox.disk_bytes, 2 << 20);
	assert_int_equal(m.sandbox.pids, 9);
	assert_int_equal(m.sandbox.cpu_percent, 150);
	assert_int_equal(m.sandbox.open_files, 32);
	assert_int_equal(m.sandbox.require, WALL_BIT(WALL_SECCOMP));
	assert_string_equal(m.sandbox.store, "kept");
	/* All of it for keepers that know no parts. */
	assert_memory_equal(m.sandbox.seccomp.data, "12345678", 8);
	assert_memory_equal(m.sandbox.seccomp_base.data, "base5678", 8);
	assert_memory_equal(m.sandbox.seccomp_exec.data, "exec5678", 8);
	assert_int_equal(m.sandbox.mounts.count, 6);
	assert_string_equal(m.sandbox.mounts.v[0], "rw");
	assert_string_equal(m.sandbox.mounts.v[3], "ro");
	assert_string_equal(m.sandbox.mounts.v[5], "/d");
	assert_true(native_shares(config, NULL));
	assert_int_equal(m.sandbox.within.count, 2);
	assert_string_equal(m.sandbox.within.v[1], "/c");
}

static void a_config_says_what_it_needs_of_the_host(void **state)
{
	_cleanup_json_ json_t *config =
		parse("{\"network\":\"host\",\"user\":\"root\",\"root\":\"/srv/root\","
		      "\"mounts\":[{\"source\":\"/a\",\"target\":\"/b\",\"readOnly\":false},"
		      "{\"source\":\"/c\",\"target\":\"/d\"}]}");
	_cleanup_json_ json_t *modest = parse("{}");
	struct place_needs needs = { 0 }, none = { 0 };

	(void)state;
	native_needs(config, &needs);
	assert_true(needs.host_network && needs.root_user);
	assert_string_equal(needs.root, "/srv/root");
	assert_int_equal(needs.mount_count, 2);
	assert_string_equal(needs.mounts[0].source, "/a");
	assert_true(needs.mounts[0].writable && !needs.mounts[1].writable);
	native_needs(modest, &none);
	assert_false(none.host_network || none.root_user || none.root || none.mount_count);
}

static void sent_for(const char *text, struct wire_message *m)
{
	_cleanup_json_ json_t *config = parse(text);
	static struct buf bytes;
	struct frame frame;
	size_t used;

	buf_free(&bytes);
	bytes = (struct buf){ 0 };
	assert_int_equal(native_sandbox(&(struct place_view){ .config = { config } }, NULL, NULL,
					&filter, &bytes, NULL),
			 0);
	assert_int_equal(
		frame_parse((const uint8_t *)bytes.data, bytes.len, 65536, &frame, &used, NULL), 1);
	assert_int_equal(wire_decode(&frame, m, NULL), 0);
}

static void a_place_has_limits_that_nobody_asked_for(void **state)
{
	_cleanup_wire_message_ struct wire_message plain = { 0 }, none = { 0 }, own = { 0 };
	const uint64_t machine =
		(uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	bool root = geteuid() == 0;

	(void)state;
	sent_for("{}", &plain);
	assert_int_equal(plain.sandbox.pids, root ? 4096 : 0);
	assert_true(plain.sandbox.open_files > 0 && plain.sandbox.open_files <= 16384);
	assert_true(!root || (plain.sandbox.memory_bytes > machine / 2 &&
			      plain.sandbox.memory_bytes <= machine / 4 * 3));
	assert_int_equal(plain.sandbox.soft_limits, WIRE_SOFT_MEMORY | WIRE_SOFT_PIDS);
	sent_for("{\"limits\":{\"memoryMb\":0,\"pids\":0,\"openFiles\":0}}", &none);
	assert_int_equal(none.sandbox.memory_bytes, 0);
	assert_int_equal(none.sandbox.pids, 0);
	assert_int_equal(none.sandbox.open_files, 0);
	/* What was asked for must be had. */
	sent_for("{\"limits\":{\"memoryMb\":64}}", &own);
	assert_int_equal(own.sandbox.soft_limits, WIRE_SOFT_PIDS);
}

static void a_workspace_of_the_host_is_asked_for(void **state)
{
	_cleanup_json_ json_t *config = parse("{}");
	struct workspace_mount mount = { .path = "/srv", .masks = "/data/masked" };
	_cleanup_buf_ struct buf bytes = { 0 };
	_cleanup_wire_message_ struct wire_message m = { 0 };
	struct frame frame;
	size_t used;

	(void)state;
	assert_int_equal(
		native_sandbox(&(struct place_view){ .config = { config }, .workspace = &mount },
			       NULL, NULL, &filter, &bytes, NULL),
		0);
	assert_int_equal(
		frame_parse((const uint8_t *)bytes.data, bytes.len, 65536, &frame, &used, NULL), 1);
	assert_int_equal(wire_decode(&frame, &m, NULL), 0);
	assert_string_equal(m.sandbox.workspace, "/srv");
	assert_string_equal(m.sandbox.masks, "/data/masked");
	assert_int_equal(m.sandbox.overlay, 1);
	assert_false(native_shares(config, &mount));
	/* Written to directly, set-user-id bits in it would be the host's. */
	mount.how = WORKSPACE_BIND;
	assert_true(native_shares(config, &mount));
}

static void every_wall_is_standing_or_missing(void **state)
{
	_cleanup_json_ json_t *boundary = native_boundary(WALL_BIT(WALL_SECCOMP));

	(void)state;
	assert_int_equal(json_array_size(json_array_at(boundary, "walls")), 1);
	assert_int_equal(json_array_size(json_array_at(boundary, "missing")), WALL_COUNT - 1);
	for (unsigned wall = 0; wall < WALL_COUNT; wall++)
		assert_int_equal(wall_find(wall_name(wall)), wall);
	assert_int_equal(wall_find("moat"), WALL_COUNT);
	assert_null(wall_name(WALL_COUNT));
}

static void filters_are_programs_that_fit_the_wire(void **state)
{
	struct seccomp_filter plain, shared;

	(void)state;
	assert_int_equal(seccomp_compile(SECCOMP_PLAIN, &plain, NULL), 0);
	assert_int_equal(seccomp_compile(SECCOMP_SHARED, &shared, NULL), 0);
	assert_true(plain.whole.len > 0 && plain.whole.len % 8 == 0);
	assert_true(shared.whole.len > plain.whole.len && shared.whole.len <= 16384);
	seccomp_filter_clear(&plain);
	seccomp_filter_clear(&shared);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_config_means_the_defaults),
		cmocka_unit_test(what_cannot_be_had_or_meant_is_refused),
		cmocka_unit_test(a_config_says_which_sandbox_the_keeper_builds),
		cmocka_unit_test(a_config_says_what_it_needs_of_the_host),
		cmocka_unit_test(a_place_has_limits_that_nobody_asked_for),
		cmocka_unit_test(a_workspace_of_the_host_is_asked_for),
		cmocka_unit_test(every_wall_is_standing_or_missing),
		cmocka_unit_test(filters_are_programs_that_fit_the_wire),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
