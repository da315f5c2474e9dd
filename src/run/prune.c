#include "run/service.h"

#define BATCH 200

SQL(RUN_OLD, "SELECT id FROM runs WHERE finished_at < CAST($1 AS BIGINT)"
	     " AND status IN ('succeeded', 'failed', 'cancelled', 'timed_out')"
	     " ORDER BY finished_at LIMIT CAST($2 AS BIGINT)");
SQL(RUN_DELETE, "DELETE FROM runs WHERE id = $1"
		" AND status IN ('succeeded', 'failed', 'cancelled', 'timed_out')");

struct old {
	int64_t before_ms;
	char ids[BATCH][ID_SIZE];
	size_t count;
};

static int find_old(struct tx *tx, void *arg, struct error *err)
{
	struct old *o = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int more;

	o->count = 0;
	if (tx_query(tx, &c, &RUN_OLD, err, B_INT(o->before_ms), B_INT(BATCH)) < 0)
		return -1;
	while ((more = cursor_next(&c, err)) > 0 && o->count < BATCH)
		id_copy(o->ids[o->count++], col_text(&c, 0));
	return more < 0 ? -1 : 0;
}

static int delete_old(struct tx *tx, void *arg, struct error *err)
{
	const struct old *o = arg;

	for (size_t i = 0; i < o->count; i++) {
		if (tx_exec(tx, &RUN_DELETE, err, B_TEXT(o->ids[i])) < 0)
			return -1;
	}
	return 0;
}

/* Logs go first: a crash in between leaves a row whose log is gone, never a log nobody knows of. */
int64_t runs_prune(struct runs *runs, int64_t before_ms, struct error *err)
{
	_cleanup_free_ struct old *o = xcalloc(1, sizeof(*o));
	int64_t pruned = 0;

	o->before_ms = before_ms;
	do {
		if (db_read(runs->db, find_old, o, err) < 0)
			return -1;
		for (size_t i = 0; i < o->count; i++) {
			if (runlog_remove(runs->logs, o->ids[i], err) < 0)
				return -1;
		}
		if (o->count && DB_WRITE(runs->db, "run.prune", delete_old, o, err) < 0)
			return -1;
		pruned += (int64_t)o->count;
	} while (o->count == BATCH);
	return pruned;
}
