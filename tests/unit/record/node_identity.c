#include "record_fixture.h"

#include <sys/stat.h>
#include "base/fd.h"

SQL(NODE_EPOCH, "SELECT boot_epoch FROM nodes WHERE id = $1");
SQL(NODE_HEARTBEAT, "SELECT heartbeat_at FROM nodes WHERE id = $1");
SQL(NODE_COUNT, "SELECT COUNT(*) FROM nodes");
SQL(SET_EPOCH, "UPDATE nodes SET boot_epoch = $2 WHERE id = $1");

static int start(struct records *r, struct node *node)
{
	error_clear(&r->err);
	return node_register(r->db, r->clock, r->dirfd, node, &r->err);
}

static void a_node_keeps_its_id_and_every_start_raises_its_epoch(void **state)
{
	struct records *r = records_of(state);
	struct node first, second;
	struct stat st;

	assert_done(r, start(r, &first));
	assert_true(id_is_valid(first.id));
	assert_int_equal(first.boot_epoch, 1);
	assert_true(first.boot_id[0]);
	assert_int_equal(fstatat(r->dirfd, "node.json", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_done(r, start(r, &second));
	assert_string_equal(second.id, first.id);
	assert_int_equal(second.boot_epoch, 2);
	assert_int_equal(records_number(r, &NODE_EPOCH, B_TEXT(first.id)), 2);
	assert_int_equal(records_number(r, &NODE_COUNT), 1);
}

static void the_epoch_rises_when_the_database_was_put_back(void **state)
{
	struct records *r = records_of(state);
	struct node node;

	for (int i = 0; i < 5; i++)
		assert_done(r, start(r, &node));
	records_exec(r, &SET_EPOCH, B_TEXT(node.id), B_INT(2));
	assert_done(r, start(r, &node));
	assert_int_equal(node.boot_epoch, 6);
	assert_int_equal(records_number(r, &NODE_EPOCH, B_TEXT(node.id)), 6);
}

static void the_epoch_rises_when_the_data_directory_was_put_back(void **state)
{
	struct records *r = records_of(state);
	struct node node;

	assert_done(r, start(r, &node));
	records_exec(r, &SET_EPOCH, B_TEXT(node.id), B_INT(40));
	assert_done(r, start(r, &node));
	assert_int_equal(node.boot_epoch, 41);
	assert_done(r, start(r, &node));
	assert_int_equal(node.boot_epoch, 42);
}

static void a_damaged_identity_is_refused_and_left_alone(void **state)
{
	struct records *r = records_of(state);
	const char *const damaged[] = {
		"",
		"{",
		"[]",
		"{\"id\":\"nonsense\",\"bootEpoch\":1}",
		"{\"id\":\"0b5ff5f6-5c35-4d4d-93e8-5d3d4a6e1f11\"}",
		"{\"id\":\"0b5ff5f6-5c35-4d4d-93e8-5d3d4a6e1f11\",\"bootEpoch\":-4}",
		("{\"id\":\"0b5ff5f6-5c35-4d4d-93e8-5d3d4a6e1f11\","
		 "\"bootEpoch\":9223372036854775807}"),
	};

	for (size_t i = 0; i < ARRAY_SIZE(damaged); i++) {
		_cleanup_buf_ struct buf after = { 0 };
		struct node node;

		assert_done(r, file_replace(r->dirfd, "node.json", damaged[i], strlen(damaged[i]),
					    0600, &r->err));
		assert_refused(r, ERR_IO, start(r, &node));
		assert_non_null(strstr(r->err.message, "node.json"));
		assert_done(r, file_read(r->dirfd, "node.json", &after, 4096, &r->err));
		assert_string_equal(buf_str(&after), damaged[i]);
	}
	assert_int_equal(records_number(r, &NODE_COUNT), 0);
}

static void a_heartbeat_is_written_and_stops_when_somebody_took_over(void **state)
{
	struct records *r = records_of(state);
	struct node first, second;

	assert_done(r, start(r, &first));
	clock_fake_advance(&r->fake, 10000);
	assert_done(r, node_beat(r->db, r->clock, &first, &r->err));
	assert_int_equal(records_number(r, &NODE_HEARTBEAT, B_TEXT(first.id)),
			 RECORDS_START_MS + 10000);
	assert_done(r, start(r, &second));
	assert_refused(r, ERR_CONFLICT, node_beat(r->db, r->clock, &first, &r->err));
	assert_done(r, node_beat(r->db, r->clock, &second, &r->err));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON_BOTH(a_node_keeps_its_id_and_every_start_raises_its_epoch),
		ON_BOTH(the_epoch_rises_when_the_database_was_put_back),
		ON_BOTH(the_epoch_rises_when_the_data_directory_was_put_back),
		ON_SQLITE(a_damaged_identity_is_refused_and_left_alone),
		ON_BOTH(a_heartbeat_is_written_and_stops_when_somebody_took_over),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
