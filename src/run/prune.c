#include "run/service.h"

#define BATCH 200

/* From the run behind $3, $4 on: those that are held back are not looked at again. */
SQL(RUN_OLD, "SELECT id, finished_at FROM runs WHERE finished_at < CAST($1 AS BIGINT)"
	     " AND status IN ('succeeded', 'failed', 'cancelled', 'timed_out')"
	     " AND finished_at >= CAST($3 AS BIGINT)"
	     " AND (finished_at > CAST($3 AS BIGINT) OR id > CAST($4 AS TEXT))"
	     " ORDER BY finished_at, id LIMIT CAST($2 AS BIGINT)");
SQL(RUN_DELETE, "DELETE FROM runs WHERE id = $1"
		" AND status IN ('succeeded', 'failed', 'cancelled', 'timed_out')");

struct old {
	struct runs *runs;
	bool dry_run;
	int64_t before_ms, from_ms;
	char from_id[ID_SIZE];
	struct {
		char id[ID_SIZE];
		int64_t finished_at;
		bool stays;
	} found[BATCH];
	size_t count;
};

static int find_old(struct tx *tx, void *arg, struct error *err)
{
	struct old *o = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int more;

	o->count = 0;
	if (tx_query(tx, &c, &RUN_OLD, err, B_INT(o->before_ms), B_INT(BATCH), B_INT(o->from_ms),
		     B_TEXT(o->from_id)) < 0)
		return -1;
	while ((more = cursor_next(&c, err)) > 0 && o->count < BATCH) {
		id_copy(o->found[o->count].id, col_text(&c, 0));
		o->found[o->count].stays = false;
		o->found[o->count++].finished_at = col_int(&c, 1);
	}
	return more < 0 ? -1 : 0;
}

static int delete_old(struct tx *tx, void *arg, struct error *err)
{
	const struct old *o = arg;

	for (size_t i = 0; i < o->count; i++) {
		if (!o->found[i].stays && tx_exec(tx, &RUN_DELETE, err, B_TEXT(o->found[i].id)) < 0)
			return -1;
	}
	return 0;
}

/*
 * Logs and results go first: a crash in between leaves a row whose log is gone, never a log nobody
 * knows of. A run whose results or displaced files are still kept stays.
 */
static int64_t forget_files(struct old *o, struct error *err)
{
	int64_t gone = 0;

	for (size_t i = 0; i < o->count; i++) {
		const char *id = o->found[i].id;

		o->found[i].stays = runs_files_hold_back(o->runs, id, o->found[i].finished_at);
		if (o->found[i].stays)
			continue;
		if (!o->dry_run && (runlog_remove(o->runs->logs, id, err) < 0 ||
				    runs_drop_results(o->runs, id, err) < 0))
			return -1;
		gone++;
	}
	return gone;
}

int64_t runs_prune(struct runs *runs, int64_t before_ms, bool dry_run, struct error *err)
{
	_cleanup_free_ struct old *o = xcalloc(1, sizeof(*o));
	int64_t pruned = 0, gone;

	o->runs = runs;
	o->dry_run = dry_run;
	o->before_ms = before_ms;
	do {
		if (db_read(runs->db, find_old, o, err) < 0)
			return -1;
		gone = forget_files(o, err);
		if (gone < 0 || (gone > 0 && !dry_run &&
				 DB_WRITE(runs->db, "run.prune", delete_old, o, err) < 0))
			return -1;
		pruned += gone;
		if (o->count) {
			o->from_ms = o->found[o->count - 1].finished_at;
			id_copy(o->from_id, o->found[o->count - 1].id);
		}
	} while (o->count == BATCH);
	return pruned;
}
