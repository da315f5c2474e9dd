/*
 * Compressing the logs of runs that have ended. How far this node has got is a number in the
 * database, so that a restart goes on there and a million old runs are not looked at again; it is
 * raised after the logs are done, and doing one twice is nothing.
 */
#include "base/log.h"
#include "run/service.h"

#define BATCH 100

SQL(RUN_PACKED_GET, "SELECT value FROM counters WHERE name = $1");
SQL(RUN_PACKED_SET, "INSERT INTO counters (name, value) VALUES ($1, $2)"
		    " ON CONFLICT (name) DO UPDATE SET value = excluded.value");
SQL(RUN_TO_PACK, "SELECT id, finished_at FROM runs WHERE finished_at IS NOT NULL"
		 " AND finished_at >= CAST($1 AS BIGINT) AND finished_at < CAST($2 AS BIGINT)"
		 " AND (finished_at > CAST($1 AS BIGINT) OR id > CAST($3 AS TEXT))"
		 " AND node_id = $4 ORDER BY finished_at, id LIMIT CAST($5 AS BIGINT)");

struct packing {
	char counter[80];
	const char *node_id;
	int64_t from_ms, before_ms; /* of finished_at; from the run behind from_id on */
	char from_id[ID_SIZE];
	char ids[BATCH][ID_SIZE];
	size_t count;
};

static int read_progress(struct tx *tx, void *arg, struct error *err)
{
	struct packing *p = arg;
	_cleanup_cursor_ struct cursor c = { 0 };

	if (tx_query(tx, &c, &RUN_PACKED_GET, err, B_TEXT(p->counter)) < 0)
		return -1;

	int r = cursor_next(&c, err);

	p->from_ms = r > 0 ? col_int(&c, 0) : 0;
	return r < 0 ? -1 : 0;
}

static int write_progress(struct tx *tx, void *arg, struct error *err)
{
	const struct packing *p = arg;

	return tx_exec(tx, &RUN_PACKED_SET, err, B_TEXT(p->counter), B_INT(p->from_ms)) < 0 ? -1
											    : 0;
}

static int find_ended(struct tx *tx, void *arg, struct error *err)
{
	struct packing *p = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int64_t last_ms = p->from_ms;
	int more;

	p->count = 0;
	if (tx_query(tx, &c, &RUN_TO_PACK, err, B_INT(p->from_ms), B_INT(p->before_ms),
		     B_TEXT(p->from_id), B_TEXT(p->node_id), B_INT(BATCH)) < 0)
		return -1;
	while ((more = cursor_next(&c, err)) > 0) {
		id_copy(p->ids[p->count++], col_text(&c, 0));
		last_ms = col_int(&c, 1);
	}
	if (more == 0 && p->count) {
		p->from_ms = last_ms;
		id_copy(p->from_id, p->ids[p->count - 1]);
	}
	return more;
}

/* A log that cannot be compressed stays as it is and holds up no other. */
static int pack_batch(struct runs *runs, const struct packing *p, const atomic_bool *stop,
		      struct error *err)
{
	for (size_t i = 0; i < p->count; i++) {
		if (runlog_pack(runs->logs, p->ids[i], stop, err) == 0)
			continue;
		if (err->code == ERR_CANCELLED || err->code == ERR_DISK_FULL)
			return -1;
		log_warn("run %s: its log stays uncompressed: %s", p->ids[i], err->message);
		error_clear(err);
	}
	return 0;
}

int runs_pack_logs(struct runs *runs, int64_t before_ms, const atomic_bool *stop, struct error *err)
{
	_cleanup_free_ struct packing *p = xcalloc(1, sizeof(*p));

	snprintf(p->counter, sizeof(p->counter), "logs.packed.%s", runs->node->id);
	p->node_id = runs->node->id;
	p->before_ms = before_ms;
	if (db_read(runs->db, read_progress, p, err) < 0)
		return -1;
	do {
		if (atomic_load(stop))
			return error_set(err, ERR_CANCELLED, "compressing was stopped");
		if (db_read(runs->db, find_ended, p, err) < 0 || pack_batch(runs, p, stop, err) < 0)
			return -1;
		if (p->count && DB_WRITE(runs->db, "run.packed", write_progress, p, err) < 0)
			return -1;
	} while (p->count == BATCH);
	return 0;
}
