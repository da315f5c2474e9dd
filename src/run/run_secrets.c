/*
 * Values of a run's env, and its standard input (a prompt is one), may be secrets. A run needs them
 * until it has ended, and a retry once more: those of a run that succeeded or was cancelled are
 * deleted with its end, those of one that failed or timed out a day later. Names of env stay, for
 * people. A run whose values are gone cannot be retried.
 */
#include "run/service.h"

#include <string.h>

#include "run/row.h"

#define BATCH 200

SQL(RUN_SECRETS, "SELECT env FROM runs WHERE id = $1 AND secrets = 1");
SQL(RUN_DELETE_SECRETS, "UPDATE runs SET env = $2, stdin = NULL, secrets = 2"
			" WHERE id = $1 AND secrets = 1");
SQL(RUN_SECRETS_OVER, "SELECT id FROM runs WHERE secrets = 1 AND finished_at IS NOT NULL"
		      " AND (finished_at < CAST($1 AS BIGINT)"
		      "  OR status IN ('succeeded', 'cancelled'))"
		      " ORDER BY finished_at LIMIT CAST($2 AS BIGINT)");

static char *names_only(const char *env)
{
	_cleanup_json_ json_t *values = env ? json_parse(env, strlen(env), NULL) : NULL;
	_cleanup_json_ json_t *names = json_object();
	const char *key;
	json_t *value;

	json_object_foreach (values, key, value) {
		(void)value;
		json_put_new(names, key, NULL);
	}
	return json_text(names);
}

int run_delete_secrets_tx(struct tx *tx, const char *id, struct error *err)
{
	_cleanup_free_ char *names = NULL;
	_cleanup_cursor_ struct cursor c = { 0 };
	int found;

	if (tx_query(tx, &c, &RUN_SECRETS, err, B_TEXT(id)) < 0)
		return -1;
	found = cursor_next(&c, err);
	if (found <= 0)
		return found;
	names = names_only(col_text(&c, 0));
	cursor_close(&c);
	return tx_exec(tx, &RUN_DELETE_SECRETS, err, B_TEXT(id), B_TEXT(names)) < 0 ? -1 : 0;
}

struct over {
	int64_t before;
	char ids[BATCH][ID_SIZE];
	size_t count;
};

static int find_over(struct tx *tx, void *arg, struct error *err)
{
	struct over *o = arg;
	_cleanup_cursor_ struct cursor c = { 0 };
	int more;

	o->count = 0;
	if (tx_query(tx, &c, &RUN_SECRETS_OVER, err, B_INT(o->before), B_INT(BATCH)) < 0)
		return -1;
	while ((more = cursor_next(&c, err)) > 0 && o->count < BATCH)
		id_copy(o->ids[o->count++], col_text(&c, 0));
	return more < 0 ? -1 : 0;
}

static int delete_all(struct tx *tx, void *arg, struct error *err)
{
	struct over *o = arg;

	for (size_t i = 0; i < o->count; i++) {
		if (run_delete_secrets_tx(tx, o->ids[i], err) < 0)
			return -1;
	}
	return 0;
}

int runs_delete_secrets(struct runs *runs, int64_t before_ms, struct error *err)
{
	_cleanup_free_ struct over *o = xcalloc(1, sizeof(*o));

	o->before = before_ms;
	do {
		if (db_read(runs->db, find_over, o, err) < 0 ||
		    (o->count && DB_WRITE(runs->db, "run.delete_secrets", delete_all, o, err) < 0))
			return -1;
	} while (o->count == BATCH);
	return 0;
}

bool run_can_repeat(const struct run *run, struct error *err)
{
	if (json_bool(json_object_at(run->context, "request"), "stdinStream", false)) {
		error_set(err, ERR_RUN_STATE,
			  "the standard input of this run came from its client and was not kept: "
			  "start a new run with its input instead");
		return false;
	}
	if (run->secrets == SECRETS_DELETED) {
		error_set(err, ERR_RUN_STATE,
			  "the values of env and the standard input of this run were deleted after "
			  "its end: start a new run with them instead");
		return false;
	}
	return true;
}
