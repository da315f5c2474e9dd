#include "record/record.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"

/*
 * The identity is in the data directory and the epoch is both there and in the database; each start
 * takes one more than the larger. So it rises also when the database is put back from a backup, and
 * when the file is.
 */

#define NODE_FILE "node.json"
#define NODE_FILE_MAX 4096
#define HOSTNAME_MAX 256
#define CLOCK_STEP_MS 1000 /* less is a clock that is being kept right */

SQL(NODE_REGISTER,
    "INSERT INTO nodes (id, boot_epoch, boot_id, pid, hostname, version, started_at, heartbeat_at,"
    " clock_offset_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $7, $8) ON CONFLICT (id) DO UPDATE SET"
    " boot_epoch = CASE WHEN nodes.boot_epoch >= excluded.boot_epoch THEN nodes.boot_epoch + 1"
    " ELSE excluded.boot_epoch END,"
    " boot_id = excluded.boot_id, pid = excluded.pid, hostname = excluded.hostname,"
    " version = excluded.version, started_at = excluded.started_at,"
    " heartbeat_at = excluded.heartbeat_at, clock_offset_ms = excluded.clock_offset_ms"
    " RETURNING boot_epoch");
SQL(NODE_CLOCK, "SELECT clock_offset_ms FROM nodes WHERE id = $1 AND boot_id = $2"
		" AND clock_offset_ms IS NOT NULL");
SQL(LEASES_SHIFT, "UPDATE leases SET expires_at = expires_at + $2,"
		  " last_used_at = last_used_at + $2 WHERE node_id = $1 AND status = 'active'");
SQL(PLACES_SHIFT, "UPDATE places SET retain_until = retain_until + $2,"
		  " cleanup_next_at = cleanup_next_at + $2 WHERE node_id = $1 AND state <> 'gone'");
SQL(RUNS_SHIFT, "UPDATE runs SET place_kept_until = place_kept_until + $2"
		" WHERE node_id = $1 AND place_kept_until IS NOT NULL");
SQL(NODE_BEAT, "UPDATE nodes SET heartbeat_at = $3 WHERE id = $1 AND boot_epoch = $2");

/* A damaged file is not replaced by a new identity: the old one may still own places. */
static int parse_identity(const struct buf *text, struct node *node, struct error *err)
{
	_cleanup_json_ json_t *file = json_parse(buf_str(text), text->len, NULL);
	const char *id = json_str(file, "id");
	int64_t epoch = json_int(file, "bootEpoch", 0);

	if (!id_is_valid(id) || epoch < 1 || epoch == INT64_MAX)
		return error_set(err, ERR_IO,
				 NODE_FILE " in the data directory is damaged: put back a copy, or "
					   "remove it and this becomes a new node, which takes "
					   "over the old one's work after %d s",
				 NODE_DEAD_MS / 1000);
	id_copy(node->id, id);
	node->boot_epoch = epoch;
	return 0;
}

/* A first start gives epoch 0 and a new id. */
static int read_identity(int dirfd, struct node *node, struct error *err)
{
	_cleanup_buf_ struct buf text = { 0 };

	if (faccessat(dirfd, NODE_FILE, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			return error_errno(err, errno, "look for " NODE_FILE);
		id_new(node->id);
		node->boot_epoch = 0;
		return 0;
	}
	if (file_read(dirfd, NODE_FILE, &text, NODE_FILE_MAX, err) < 0)
		return -1;
	return parse_identity(&text, node, err);
}

static int write_identity(int dirfd, const struct node *node, struct error *err)
{
	_cleanup_json_ json_t *file = json_object();
	_cleanup_free_ char *text = NULL;

	json_put_str(file, "id", node->id);
	json_put_int(file, "bootEpoch", node->boot_epoch);
	text = json_text(file);
	return file_replace(dirfd, NODE_FILE, text, strlen(text), 0600, err);
}

/*
 * A full disk must not keep a server from its places: of the two epochs the larger counts, and the
 * database has it.
 */
static int save_identity(int dirfd, const struct node *node, bool is_new, struct error *err)
{
	if (write_identity(dirfd, node, err) == 0)
		return 0;
	if (is_new || err->code != ERR_DISK_FULL)
		return -1;
	log_warn(NODE_FILE " stays as it was: %s", err->message);
	error_clear(err);
	return 0;
}

struct node_start {
	const struct node *node;
	char hostname[HOSTNAME_MAX];
	int64_t now, clock_offset, granted_epoch;
};

/*
 * A server takes the wall clock once, when it starts. One that was started before the clock was set
 * has written every deadline with the wrong time; since the machine has not been booted since, the
 * error is known to the millisecond. Deadlines of what lives are moved by it, so that a lease lasts
 * as long as was promised.
 */
static int follow_clock(struct tx *tx, const struct node_start *start, struct error *err)
{
	const char *id = start->node->id;
	struct cursor c;
	int64_t step = 0;
	int r;

	if (tx_query(tx, &c, &NODE_CLOCK, err, B_TEXT(id), B_TEXT(start->node->boot_id)) < 0)
		return -1;
	r = cursor_next(&c, err);
	if (r > 0)
		step = start->clock_offset - col_int(&c, 0);
	cursor_close(&c);
	if (r < 0 || (step > -CLOCK_STEP_MS && step < CLOCK_STEP_MS))
		return r < 0 ? -1 : 0;
	log_warn("the clock was set by %lld ms since the last server started: deadlines move with "
		 "it",
		 (long long)step);
	return tx_exec(tx, &LEASES_SHIFT, err, B_TEXT(id), B_INT(step)) < 0 ||
			       tx_exec(tx, &PLACES_SHIFT, err, B_TEXT(id), B_INT(step)) < 0 ||
			       tx_exec(tx, &RUNS_SHIFT, err, B_TEXT(id), B_INT(step)) < 0
		       ? -1
		       : 0;
}

static int upsert_node(struct tx *tx, void *arg, struct error *err)
{
	struct node_start *start = arg;
	const struct node *node = start->node;
	_cleanup_cursor_ struct cursor c = { 0 };

	if (follow_clock(tx, start, err) < 0)
		return -1;
	if (tx_query(tx, &c, &NODE_REGISTER, err, B_TEXT(node->id), B_INT(node->boot_epoch),
		     B_TEXT(node->boot_id), B_INT(getpid()), B_TEXT(start->hostname),
		     B_TEXT(BERTH_VERSION), B_INT(start->now), B_INT(start->clock_offset)) < 0)
		return -1;

	int r = cursor_next(&c, err);

	if (r <= 0)
		return r < 0 ? -1 : error_set(err, ERR_DB, "the node could not be registered");
	start->granted_epoch = col_int(&c, 0);
	return 0;
}

int node_register(struct db *db, struct clock *clock, int data_dirfd, struct node *node,
		  struct error *err)
{
	struct node started = { 0 };
	struct node_start start = { .node = &started,
				    .now = clock_now(clock),
				    .clock_offset = clock_now(clock) - clock_mono(clock) };

	bool is_new;

	if (read_identity(data_dirfd, &started, err) < 0)
		return -1;
	is_new = started.boot_epoch == 0;
	started.boot_epoch++;
	boot_id(started.boot_id);
	if (gethostname(start.hostname, sizeof(start.hostname) - 1) < 0)
		start.hostname[0] = '\0';
	/* The file first: an id in the database that the directory forgot would be a dead node. */
	if (save_identity(data_dirfd, &started, is_new, err) < 0)
		return -1;
	if (DB_WRITE(db, "node.register", upsert_node, &start, err) < 0)
		return -1;
	if (start.granted_epoch != started.boot_epoch) {
		started.boot_epoch = start.granted_epoch;
		if (save_identity(data_dirfd, &started, is_new, err) < 0)
			return -1;
	}
	*node = started;
	return 0;
}

struct node_heartbeat {
	const struct node *node;
	int64_t now;
};

static int write_beat(struct tx *tx, void *arg, struct error *err)
{
	const struct node_heartbeat *beat = arg;
	int64_t n = tx_exec(tx, &NODE_BEAT, err, B_TEXT(beat->node->id),
			    B_INT(beat->node->boot_epoch), B_INT(beat->now));

	if (n == 0)
		return error_set(err, ERR_CONFLICT,
				 "another server runs as node %s: two share a copy of one data "
				 "directory",
				 beat->node->id);
	return n < 0 ? -1 : 0;
}

int node_beat(struct db *db, struct clock *clock, const struct node *node, struct error *err)
{
	struct node_heartbeat beat = { node, clock_now(clock) };

	return DB_WRITE(db, "node.beat", write_beat, &beat, err);
}
